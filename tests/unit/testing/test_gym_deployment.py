from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.engine.errors import PortTakenError
from gym_compose.engine.process.engine import ProcessEngine
from gym_compose.testing import GymDeployment
from gym_compose.testing.compose import ComposeFailedError, ProjectCompose
from gym_compose.testing.deployment import _quoted
from gym_compose.wire.errors import GymComposeError, InvalidInputError

PARSER = OverridesParser.create()


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_path_survives_the_override_grammar(path: str) -> None:
    override = PARSER.parse_override(f"+config_paths=[{_quoted(path)}]")
    assert override.value() == [path]


def test_before_the_first_start_there_is_nothing_to_ask(tmp_path: Path) -> None:
    gym = GymDeployment("none.yaml", cwd=tmp_path, engine="process")
    for ask in (lambda: gym.project, lambda: gym.name, lambda: gym.head_url):
        with pytest.raises(InvalidInputError, match="with"):
            ask()
    assert gym.stop().stopped == ()


def test_a_config_that_is_not_there_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(GymComposeError, match=r"none\.yaml"), GymDeployment("none.yaml", cwd=tmp_path, engine="process"):
        pytest.fail("it started")
    assert list(tmp_path.iterdir()) == []


CONFIG = """
policy:
  responses_api_models:
    scripted_model: {entrypoint: app.py, rule: constant, text: hello}
"""


def test_each_deployment_of_one_config_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(CONFIG)
    names = {GymDeployment("one.yaml", cwd=tmp_path, engine="process").load().name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("one-") for name in names)


def test_a_deployment_of_processes_has_no_containers_to_look_into(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(CONFIG)
    gym = GymDeployment("one.yaml", cwd=tmp_path, engine="process")
    gym.load()
    assert isinstance(gym.engine, ProcessEngine)
    with pytest.raises(InvalidInputError, match="Docker"):
        gym.exec("policy", "true")


def test_a_start_that_fails_removes_the_projects_directory(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(CONFIG.replace("text: hello", "rule: none, text: hello").replace("rule: constant, ", ""))
    with pytest.raises(GymComposeError), GymDeployment("one.yaml", cwd=tmp_path, engine="process"):
        pytest.fail("it started")
    assert [entry.name for entry in tmp_path.iterdir()] == ["one.yaml"]


def test_starting_and_stopping_processes(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(CONFIG)
    with GymDeployment("one.yaml", cwd=tmp_path, engine="process") as gym:
        with gym.head() as head:
            instances = head.instances()
        assert instances is not None
        assert [instance.process_name for instance in instances] == ["policy"]
        assert "policy" in gym.logs("policy")
        assert {state.status for state in gym.observe().services} == {"running"}
    assert not gym.leftovers()
    assert [entry.name for entry in tmp_path.iterdir()] == ["one.yaml"]


# testcontainers' calls


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Command lines that ProjectCompose would run."""
    seen: list[list[str]] = []

    def run(self: ProjectCompose, cmd: list[str], context: str | None = None) -> subprocess.CompletedProcess[bytes]:
        seen.append(cmd)
        return subprocess.CompletedProcess(cmd, 0, b"out", b"err")

    monkeypatch.setattr(ProjectCompose, "_run_command", run)
    return seen


def test_up_leaves_the_driver_out_and_down_takes_everything(called: list[list[str]], tmp_path: Path) -> None:
    compose = ProjectCompose(tmp_path, tail_lines=5)
    compose.start()
    compose.stop()
    up, down = called
    assert up[-3:] == ["up", "--detach", "--remove-orphans"]
    assert "--profile" not in up
    assert down[-5:] == ["--profile", "*", "down", "--volumes", "--remove-orphans"]
    assert up[up.index("-f") + 1] == "compose.yaml"


def test_a_command_in_a_container_gives_its_exit_code(called: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compose = ProjectCompose(tmp_path, tail_lines=5)
    assert compose.run_in("agent", ["true"]).stdout == "out"
    assert called[0][-3:] == ["-T", "agent", "true"]

    def fail(self: ProjectCompose, cmd: list[str], context: str | None = None) -> subprocess.CompletedProcess[bytes]:
        raise subprocess.CalledProcessError(3, cmd, b"some", b"wrong")

    monkeypatch.setattr(ProjectCompose, "_run_command", fail)
    result = compose.run_in("agent", ["false"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, "some", "wrong")
    with pytest.raises(ComposeFailedError, match="exit code 3") as caught:
        compose.start()
    assert caught.value.details == ("wrong",)


def test_a_port_that_was_taken_meanwhile_is_known_by_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = b"Error response from daemon: driver failed: Bind for 127.0.0.1:11000 failed: port is already allocated"

    def fail(self: ProjectCompose, cmd: list[str], context: str | None = None) -> subprocess.CompletedProcess[bytes]:
        raise subprocess.CalledProcessError(1, cmd, b"", said)

    monkeypatch.setattr(ProjectCompose, "_run_command", fail)
    with pytest.raises(PortTakenError) as caught:
        ProjectCompose(tmp_path, tail_lines=5).start()
    assert caught.value.port == 11000


def test_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, gym_compose.testing.plugin; print([m for m in ('docker', 'testcontainers', 'omegaconf', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() == "[]"
