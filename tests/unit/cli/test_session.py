"""Which engine and which project a command works on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.engine.interface import Observed
from gym_compose.project.directory import ProjectDirectory, ProjectState
from gym_compose.project.errors import ProjectNotFoundError
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError

Invoke = Callable[..., Invocation]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for ``select_engine``; ``asked`` are the kinds that were wanted, ``labelled`` what Docker has by labels."""
    found = SimpleNamespace(asked=[], labelled={}, error=None)

    def select(kind: str, environ: Any, settings: Any, deadline: Any, *, home: Path, say: Any) -> Any:
        found.asked.append(kind)
        if found.error is not None and kind == "docker":
            raise found.error
        observe = lambda project, deadline: Observed(project, "docker", (), found.labelled.get(project))  # noqa: E731
        return SimpleNamespace(name=kind, home=home, observe=observe)

    monkeypatch.setattr("gym_compose.engine.select.select_engine", select)
    return found


def written(cwd: Path, name: str, engine: Any = "process") -> ProjectDirectory:
    directory = ProjectDirectory.under(cwd, name)
    directory.write_state(ProjectState(project=name, engine=engine, gym_compose="0.1.0"))
    return directory


def session(invoke: Invoke, captured: Any, text: str) -> Session:
    return Session(invoke(text), captured.console)


def test_a_project_is_opened_with_the_engine_that_started_it(invoke: Invoke, captured: Any, engines: Any, tmp_path: Path) -> None:
    directory = written(tmp_path, "demo")
    project = session(invoke, captured, "compose ps").find()
    assert (project.name, project.directory) == ("demo", directory)
    assert engines.asked == ["process"]


def test_the_flag_wins(invoke: Invoke, captured: Any, engines: Any, tmp_path: Path) -> None:
    written(tmp_path, "demo")
    session(invoke, captured, "compose ps --engine docker").find()
    assert engines.asked == ["docker"]


def test_several_projects_need_a_name(invoke: Invoke, captured: Any, engines: Any, tmp_path: Path) -> None:
    written(tmp_path, "one")
    written(tmp_path, "two")
    with pytest.raises(ProjectNotFoundError, match="one, two"):
        session(invoke, captured, "compose ps").find()
    assert session(invoke, captured, "compose -p two ps").find().name == "two"


@pytest.mark.parametrize("verb", ["compose up", "compose plan", "compose config", "compose build", "compose doctor", "env start"])
def test_what_is_to_be_published_is_said_on_the_command_line(invoke: Invoke, captured: Any, verb: str) -> None:
    assert session(invoke, captured, f"{verb} --publish environment --publish math ++a=1").publish == ("environment", "math")
    assert session(invoke, captured, f"{verb} ++a=1").publish == ()


def test_published_instances_get_a_port_on_this_host(invoke: Invoke, captured: Any, engines: Any, tmp_path: Path) -> None:
    relay = {"legacy_agent": {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": "agent"}}}
    agent = {"entrypoint": "app.py", "resources_server": {"type": "resources_servers", "name": "tool"}}
    agent["model_server"] = {"type": "responses_api_models", "name": "model"}
    config = {
        "tool": {"resources_servers": {"example_single_tool_call": {"entrypoint": "app.py", "domain": "agent"}}},
        "agent": {"responses_api_agents": {"simple_agent": agent}},
        "model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "rule": "first_tool_call", "text": "x"}}},
        "environment": {"environment_servers": relay},
    }
    (tmp_path / "small.yaml").write_text(json.dumps(config))
    project = session(invoke, captured, "compose up --engine docker --publish environment --config small.yaml").load()
    assert [service.name for service in project.deployment.services if service.ports and service.role == "server"] == ["environment"]


def test_a_project_that_was_started_elsewhere_is_found_by_its_labels(invoke: Invoke, captured: Any, engines: Any, tmp_path: Path) -> None:
    engines.labelled["far"] = "/elsewhere/.gym/far"
    assert session(invoke, captured, "compose ps -p far").find().directory.path == Path("/elsewhere/.gym/far")
    with pytest.raises(ProjectNotFoundError, match="there is no project 'near' here"):
        session(invoke, captured, "compose ps -p near").find()


def test_without_docker_only_what_is_here_is_found(invoke: Invoke, captured: Any, engines: Any) -> None:
    engines.error = PrerequisiteError("no Docker")
    with pytest.raises(ProjectNotFoundError):
        session(invoke, captured, "compose ps -p far").find()
    with pytest.raises(ProjectNotFoundError):
        session(invoke, captured, "compose ps -p far --engine process").find()
    assert engines.asked == ["docker"]


def test_auto_is_asked_for_by_default_with_the_directory_of_all_projects(
    invoke: Invoke, captured: Any, engines: Any, tmp_path: Path
) -> None:
    engine: Any = session(invoke, captured, "compose up ++a=1").engine()
    assert (engines.asked, engine.home) == (["auto"], tmp_path / ".gym")


def test_a_wrong_setting_names_its_variable(invoke: Invoke, captured: Any) -> None:
    made = Session(invoke("compose ps", {"GYM_COMPOSE_DOWN_SECONDS": "soon"}), captured.console)
    with pytest.raises(InvalidInputError, match="GYM_COMPOSE_DOWN_SECONDS"):
        made.stopping()


def test_warnings_of_a_config_are_told_once(
    invoke: Invoke, captured: Any, engines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = SimpleNamespace(
        config=SimpleNamespace(warnings=("old name", "old name"), instances=(1,)),
        deployment=SimpleNamespace(warnings=("old name", "other sk-secret")),
        redact=lambda text: text.replace("sk-secret", "****"),
    )
    monkeypatch.setattr("gym_compose.project.project.Project.load", lambda *given, **options: project)
    assert session(invoke, captured, "compose up ++a=1").load() is project  # type: ignore[comparison-overlap]
    assert captured.stderr == "Warning: old name\nWarning: other ****\n"
