"""What can be wrong when a deployment starts: one clear message, its exit code, no traceback of ours, nothing left running."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ENGINES = [pytest.param("docker", marks=pytest.mark.docker), "process"]
CONFIG, PREREQUISITE, BUILD, NOT_READY = 3, 4, 5, 6


def app_of(cli: Any) -> Path:
    path: Path = cli.cwd / "resources_servers" / "own_tool" / "app.py"
    return path


def prepend(file: Path, code: str) -> None:
    file.write_text(code + file.read_text().replace("from __future__ import annotations\n", ""))


def up(cli: Any, config: str, engine: str, *more: str, **environ: str) -> Any:
    return cli("compose", "up", "-d", "--config", config, "--engine", engine, *more, **environ)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_server_that_dies_at_start_is_named_with_exit_code_and_last_lines(cli: Any, engine: str) -> None:
    config = cli.small_config()
    prepend(app_of(cli), "print('about to go', flush=True)\nraise SystemExit(9)\n")
    ended = up(cli, config, engine)
    assert ended.code == NOT_READY, ended.text
    assert "services/tool" in ended.stderr
    assert "exit code 9" in ended.stderr
    assert "about to go" in ended.stderr
    assert cli.leftovers() == "nothing is left"


@pytest.mark.docker
def test_a_server_out_of_memory_at_start_says_so(cli: Any) -> None:
    config = cli.small_config(compose={"servers": {"tool": {"memory": "96m"}}})
    prepend(app_of(cli), "held = bytearray(512 * 1024 * 1024)\n")
    ended = up(cli, config, "docker")
    assert ended.code == NOT_READY, ended.text
    assert "services/tool" in ended.stderr
    assert "lack of memory" in ended.stderr
    assert cli.leftovers() == "nothing is left"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_server_that_never_answers_is_named(cli: Any, engine: str) -> None:
    config = cli.small_config(server_spinup_timeout_seconds=4)
    prepend(app_of(cli), "import time\nprint('loading for ever', flush=True)\ntime.sleep(600)\n")
    ended = up(cli, config, engine)
    assert ended.code == NOT_READY, ended.text
    assert "tool" in ended.stderr
    assert "loading for ever" in ended.stderr
    assert "server_spinup_timeout_seconds" in ended.stderr
    assert cli.leftovers() == "nothing is left"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_head_port_that_somebody_has_is_named_before_anything_starts(cli: Any, engine: str, taken: int) -> None:
    ended = up(cli, cli.small_config(), engine, f"++head_server.port={taken}")
    assert ended.code == PREREQUISITE, ended.text
    assert f"port {taken}" in ended.stderr
    assert cli.leftovers() == "nothing is left"


def test_a_server_port_that_somebody_has_is_named(cli: Any, taken: int) -> None:
    ended = up(cli, cli.small_config(block={"port": taken}), "process")
    assert ended.code in (PREREQUISITE, NOT_READY), ended.text
    assert str(taken) in ended.stderr
    assert "tool" in ended.stderr
    assert cli.leftovers() == "nothing is left"


@pytest.mark.parametrize("engine", ENGINES)
def test_names_that_clash_as_aliases_are_both_named(cli: Any, engine: str) -> None:
    block = {"resources_servers": {"own_tool": {"entrypoint": "app.py", "domain": "agent"}}}
    ended = up(cli, cli.small_config(**{"a_b": block, "a-b": block}), engine)
    assert ended.code == CONFIG, ended.text
    assert "a_b" in ended.stderr
    assert "a-b" in ended.stderr
    assert not (cli.cwd / ".gym").exists()


@pytest.mark.docker
def test_an_image_that_cannot_be_built_shows_the_end_of_its_output(cli: Any) -> None:
    config = cli.small_config()
    requirements = cli.cwd / "resources_servers" / "own_tool" / "requirements.txt"
    requirements.write_text(requirements.read_text() + "\nnone @ http://127.0.0.1:9/none-1.0-py3-none-any.whl\n")  # nobody listens there
    ended = up(cli, config, "docker")
    assert ended.code == BUILD, ended.text
    assert "127.0.0.1:9" in ended.stderr or "Connection refused" in ended.stderr
    assert cli.leftovers() == "nothing is left"


def test_without_an_engine_docker_is_an_error_and_auto_takes_processes(cli: Any) -> None:
    config = cli.small_config()
    nowhere = f"unix://{cli.cwd}/no.sock"
    ended = up(cli, config, "docker", DOCKER_HOST=nowhere)
    assert ended.code == PREREQUISITE, ended.text
    assert "no.sock" in ended.stderr
    ended = up(cli, config, "auto", DOCKER_HOST=nowhere)
    assert ended.code == 0, ended.text
    assert cli("compose", "down", DOCKER_HOST=nowhere).code == 0


@pytest.mark.docker
def test_docker_without_its_compose_plugin_says_what_to_install(cli: Any) -> None:
    home = cli.cwd / "home"
    home.mkdir()
    if shutil.which("docker-compose") and any(
        Path(place, "docker-compose").exists() for place in ("/usr/libexec/docker/cli-plugins", "/usr/lib/docker/cli-plugins")
    ):
        pytest.skip("the plugin is installed for everybody")
    ended = up(cli, cli.small_config(), "docker", HOME=str(home), DOCKER_CONFIG=str(home / ".docker"))
    assert ended.code == PREREQUISITE, ended.text
    assert "compose" in ended.stderr


@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_docker_without_permission_says_so(cli: Any, tree_open_to_others: None) -> None:
    config = cli.small_config()
    cli.cwd.chmod(0o755)
    for parent in cli.cwd.parents:
        if parent == Path("/tmp"):
            break
        parent.chmod(parent.stat().st_mode | 0o055)
    cli.prefix = ("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups")
    ended = up(cli, config, "docker")
    cli.prefix = ()
    assert ended.code == PREREQUISITE, ended.text
    assert "this user may not talk to the Docker engine" in ended.stderr


def test_docker_on_another_machine_is_refused(cli: Any) -> None:
    ended = up(cli, cli.small_config(), "docker", DOCKER_HOST="tcp://192.0.2.7:2375")
    assert ended.code == PREREQUISITE, ended.text
    assert "another machine" in ended.stderr


@pytest.mark.docker
def test_a_data_file_that_is_missing_is_named(cli: Any) -> None:
    answers = {"entrypoint": "app.py", "rule": "answers", "answers": {"jsonl": "data/none.jsonl", "prompt_key": "p", "answer_key": "a"}}
    ended = up(cli, cli.small_config(policy_model={"responses_api_models": {"scripted_model": answers}}), "docker")
    assert ended.code == CONFIG, ended.text
    assert "data/none.jsonl" in ended.stderr
    assert cli.leftovers() == "nothing is left"
