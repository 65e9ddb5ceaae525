"""The images of the quickstart, built by the engine: what is in them, what is not, and that any uid can run them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gym_compose.compiler.deployment import Deployment
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.project.project import Project
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
MEBIBYTE = 2**20
SERVERS_WITHOUT_REQUIREMENTS = ("policy_model", "reasoning_gym_simple_agent", "reasoning_gym_environment")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    engine = DockerEngine(os.environ, Settings())
    try:
        engine.check(Deadline.after(10, "the check for Docker"))
    except PrerequisiteError as error:
        engine.close()
        if os.environ.get("GYM_COMPOSE_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("images")
    answers = directory / "resources_servers" / "reasoning_gym" / "data"
    answers.mkdir(parents=True)
    (answers / "answers.jsonl").write_text('{"prompt": "p", "answer": "a"}\n')
    project = Project.load(
        [f"+config_paths=[{ROOT}/configs/quickstart.yaml]"],
        engine=engine,
        cwd=directory,
        environ=os.environ,
        settings=Settings(),
        name="imagetest",
    )
    project.build(Deadline.after(800, "the images"), lambda line: None)
    yield project.deployment
    engine.close()


def run(image: str, script: str) -> subprocess.CompletedProcess[str]:
    """A Python script in the image as a uid that no passwd file has, hardened as a service is."""
    hardened = ["--user", "12345:12345", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none"]
    argv = ["docker", "run", "--rm", *hardened, "--tmpfs", "/tmp", "--tmpfs", "/home/gym:mode=1777", image, "python", "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("service", [*SERVERS_WITHOUT_REQUIREMENTS, "reasoning_gym", "head"])
def test_any_uid_runs_an_image_with_a_read_only_root(deployment: Deployment, service: str) -> None:
    script = (
        "import getpass, os, pathlib, fastapi, gym_compose.serving.launch, gym_compose.wire.names as names\n"
        "pathlib.Path.home().joinpath('x').write_text('x'); pathlib.Path('/tmp/x').write_text('x'); getpass.getuser()\n"
        "assert pathlib.Path.home() == pathlib.Path(names.CONTAINER_HOME), pathlib.Path.home()\n"
        "assert all(os.path.exists(module.__cached__) for module in (fastapi, names)), 'not byte-compiled'\n"
        "print(os.getuid())"
    )
    result = run(deployment.service(service).image, script)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "12345\n"


@pytest.mark.parametrize("service", [*SERVERS_WITHOUT_REQUIREMENTS, "reasoning_gym", "head"])
def test_no_compiler_git_or_installer_is_shipped(deployment: Deployment, service: str) -> None:
    script = "import shutil; print([name for name in ('cc', 'gcc', 'g++', 'git', 'uv', 'pip', 'curl', 'wget') if shutil.which(name)])"
    assert run(deployment.service(service).image, script).stdout == "[]\n"


def test_a_server_image_holds_its_files_and_what_it_requires(deployment: Deployment) -> None:
    script = "import os, reasoning_gym; print(sorted(os.listdir('/srv/gym/resources_servers/reasoning_gym')))"
    result = run(deployment.service("reasoning_gym").image, script)
    assert result.returncode == 0, result.stderr
    assert "'app.py'" in result.stdout
    assert "tests" not in result.stdout


def test_only_the_controller_image_has_the_controller(deployment: Deployment) -> None:
    script = (
        "import importlib.util as u; print([name for name in ('controller', 'driver', 'serving') if u.find_spec('gym_compose.' + name)])"
    )
    assert run(deployment.service("policy_model").image, script).stdout == "['serving']\n"
    assert run(deployment.service("head").image, script).stdout == "['controller', 'driver', 'serving']\n"


def test_a_server_without_requirements_adds_at_most_one_mebibyte_to_the_runtime(deployment: Deployment) -> None:
    (native,) = [image.name for image in deployment.images if image.kind == "native"]
    runtime = int(docker("image", "inspect", "-f", "{{.Size}}", native))
    for service in SERVERS_WITHOUT_REQUIREMENTS:
        size = int(docker("image", "inspect", "-f", "{{.Size}}", deployment.service(service).image))
        assert size - runtime <= MEBIBYTE, service


def test_no_history_names_an_index_or_keeps_the_ca_bundle(deployment: Deployment) -> None:
    for image in deployment.images:
        if image.kind in {"base", "external"}:
            continue
        history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image.name)
        assert "PIP_INDEX_URL=" not in history
        assert "://" not in history
    paths = run(deployment.service("head").image, "import os; print(os.path.exists('/run/secrets/ca'))")
    assert paths.stdout == "False\n"


def test_every_image_carries_its_whole_key(deployment: Deployment) -> None:
    for image in deployment.images:
        if image.kind not in {"base", "external"}:
            assert docker("image", "inspect", "-f", '{{index .Config.Labels "gym-compose.image-key"}}', image.name) == image.key
