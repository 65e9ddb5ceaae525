"""New servers: each type's directory passes its own test and compiles, and is made whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gym_compose.project.new_server import TYPES, NewServer, ServerExistsError
from gym_compose.wire.errors import InvalidInputError

ROOT = Path(__file__).resolve().parents[3]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
TESTS = {
    "resources_servers": "test_mine_resources.py",
    "responses_api_agents": "test_mine_agent.py",
    "responses_api_models": "test_mine_model.py",
    "environment_servers": "test_mine_environment.py",
}
"""Of different names: pytest's default import mode takes two files of one name for one module."""
BESIDE = {
    "resources_servers": ["--resources-server", "mine", "--model-type", "scripted_model"],
    "responses_api_agents": ["--resources-server", "example_single_tool_call", "--agent-type", "mine", "--model-type", "scripted_model"],
    "responses_api_models": ["--resources-server", "example_single_tool_call", "--model-type", "mine"],
}


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=ENVIRON, capture_output=True, text=True, timeout=120)


def plan(cwd: Path, *arguments: str) -> str:
    done = run([sys.executable, "-m", "gym_compose.cli.main", "compose", "plan", *arguments], cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_four_types() -> None:
    assert set(TYPES) == {"resources_servers", "responses_api_agents", "responses_api_models", "environment_servers"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one new server of each type."""
    directory = tmp_path_factory.mktemp("new")
    for server_type in TYPES:
        NewServer(server_type, "mine").write(directory)
    return directory


@pytest.mark.parametrize("server_type", TYPES)
def test_the_files_of_a_new_server(server_type: str, tmp_path: Path) -> None:
    server = NewServer(server_type, "mine")
    files = {str(path.relative_to(tmp_path / server.directory)) for path in server.write(tmp_path)}
    assert files == {
        "app.py",
        "README.md",
        "requirements.txt",
        "configs/mine.yaml",
        "configs/mine_demo.yaml",
        "data/example.jsonl",
        f"tests/{TESTS[server_type]}",
    }
    for path in (tmp_path / server.directory).rglob("*"):
        assert path.is_dir() or "{{" not in path.read_text()


def test_new_servers_pass_their_tests(made: Path) -> None:
    done = run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "."], made)
    assert done.returncode == 0, done.stdout
    for server_type in TYPES:
        assert f"{server_type}/mine/tests/{TESTS[server_type]}::" in done.stdout


def test_a_test_of_a_new_server_can_fail(tmp_path: Path) -> None:
    """The generated test is about the server: one that gives no second chance does not pass."""
    server = NewServer("environment_servers", "mine")
    server.write(tmp_path)
    app = tmp_path / server.directory / "app.py"
    app.write_text(app.read_text().replace("self.config.chances + 1", "2"))
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{server.directory}/tests"], tmp_path)
    assert done.returncode == 1, done.stdout


@pytest.mark.parametrize("server_type", TYPES)
def test_configs_of_a_new_server_compile(made: Path, server_type: str) -> None:
    assert f"{server_type}/mine" in plan(made, "--config", str(NewServer(server_type, "mine").demo_config))
    if server_type in BESIDE:
        assert f"{server_type}/mine" in plan(made, *BESIDE[server_type])


def test_the_code_of_new_servers_is_formatted_and_clean(made: Path) -> None:
    for command in (["check", "--select", "E,F,W,I,B,UP,SIM,RET"], ["format", "--check"]):
        done = run([sys.executable, "-m", "ruff", *command, "--no-cache", "--isolated", "--line-length", "140", "."], made)
        assert done.returncode == 0, done.stdout


def test_class_names() -> None:
    assert NewServer("resources_servers", "two_sums2").class_name == "TwoSums2"


@pytest.mark.parametrize(
    "text", ["mine", "servers/mine", "resources_servers/", "resources_servers/Mine", "resources_servers/my-server", "resources_servers/a/b",
             "resources_servers/../x", "resources_servers/2x", "resources_servers/x\n", "resources_servers/" + "x" * 41]
)  # fmt: skip
def test_names_that_cannot_be_a_server(text: str) -> None:
    with pytest.raises(InvalidInputError):
        NewServer.parse(text)


def test_a_name_may_end_in_a_slash_as_a_shell_completes_it() -> None:
    assert NewServer.parse("environment_servers/mine/") == NewServer("environment_servers", "mine")


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_what_is_there_is_left_as_it_is(kind: str, tmp_path: Path) -> None:
    server = NewServer("environment_servers", "mine")
    target = tmp_path / server.directory
    target.parent.mkdir()
    if kind == "directory":
        target.mkdir()
        (target / "app.py").write_text("mine")
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    with pytest.raises(ServerExistsError, match="nothing was made"):
        server.write(tmp_path)
    assert [path.name for path in target.parent.iterdir()] == ["mine"]
    if kind == "directory":
        assert [(path.name, path.read_text()) for path in target.iterdir()] == [("app.py", "mine")]


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = NewServer("environment_servers", "mine")
    monkeypatch.setattr(NewServer, "files", lambda _: {Path("app.py"): "x", Path("app.py/inside"): "y"})
    with pytest.raises(InvalidInputError, match="cannot be made"):
        server.write(tmp_path)
    assert list((tmp_path / "environment_servers").iterdir()) == []


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "environment_servers").write_text("a file")
    with pytest.raises(InvalidInputError, match="cannot be made"):
        NewServer("environment_servers", "mine").write(tmp_path)
