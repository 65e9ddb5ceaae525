from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gym_compose.project.errors import HeadFailedError, ProjectBusyError, ServerDiedError
from gym_compose.project.project import Project
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import BuildError, GymComposeError, PrerequisiteError

Load = Callable[..., Project]
OK = {"status": "ok", "phase": "ready", "elapsed_seconds": 1}
STARTING = {"status": "starting", "phase": "servers", "elapsed_seconds": 0}


def up(project: Project, lines: list[str] | None = None, **listeners: Any) -> Any:
    return project.up(Deadline.after(20), (lines if lines is not None else []).append, **listeners)


def test_up_plans_builds_applies_publishes_and_waits(load: Load, engine: Any, head: Any) -> None:
    address = head(STARTING, OK).address
    project = load()
    plans: list[Any] = []
    seen: list[str] = []
    report = up(project, on_plan=plans.append, on_health=lambda health: seen.append(health.status))
    assert report.status == "ok"
    assert [call for call in engine.calls if call != "observe"] == ["build", "apply", "published"]
    assert engine.calls[0] == "observe"
    assert [action.action for action in plans[0]] == ["create"] * 5
    assert seen == ["starting", "ok"]
    state = project.state()
    assert state is not None
    assert state.head_port == int(address.rpartition(":")[2])
    assert orjson.loads(project.directory.published_file.read_bytes()) == {}


def test_published_servers_are_handed_to_the_head_by_instance(load: Load, engine: Any, head: Any) -> None:
    head()
    engine.further["environment"] = "127.0.0.1:4242"
    project = load()
    up(project)
    assert orjson.loads(project.directory.published_file.read_bytes()) == {"environment": "127.0.0.1:4242"}


def test_a_second_up_keeps_everything_that_runs(load: Load, engine: Any, head: Any) -> None:
    head()
    up(load())
    plans: list[Any] = []
    up(load(), on_plan=plans.append)
    assert {action.action for action in plans[0]} == {"keep"}
    assert "stop" not in engine.calls


def test_a_failure_before_anything_is_touched_leaves_alone_what_runs(load: Load, engine: Any, head: Any) -> None:
    head()
    up(load())
    engine.fail["build"] = BuildError("no")
    with pytest.raises(BuildError):
        up(load())
    assert "stop" not in engine.calls
    assert len(engine.states) == 5


@pytest.mark.parametrize("error", [PrerequisiteError("no network left"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_failure_or_interrupt_while_applying_stops_everything_and_is_raised(
    load: Load, engine: Any, head: Any, error: BaseException
) -> None:
    head()
    engine.fail["apply"] = error
    lines: list[str] = []
    with pytest.raises(type(error)) as caught:
        up(load(), lines)
    assert caught.value is error
    assert engine.calls[-1] == "stop"
    assert engine.states == {}
    assert "stopping what was started" in lines


def test_a_death_while_waiting_stops_everything_and_forgets_the_port(load: Load, engine: Any, head: Any) -> None:
    head(STARTING, lambda: engine.die("policy", 9), STARTING)
    engine.log["policy"] = ["boom with marker-secret-4711"]
    project = load()
    with pytest.raises(ServerDiedError, match="exit code 9") as caught:
        up(project)
    assert caught.value.details == ("boom with ****",)
    assert engine.states == {}
    state = project.state()
    assert state is not None
    assert state.head_port is None


def test_an_interrupt_while_waiting_stops_everything(load: Load, engine: Any, head: Any) -> None:
    head(STARTING)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        up(load(), on_health=interrupt)
    assert engine.states == {}


def test_a_head_that_ended_at_once_is_told_as_a_death_with_its_log(load: Load, engine: Any) -> None:
    engine.address = None
    engine.log["head"] = ["address in use"]
    engine.on_apply = lambda played: played.die("head", 1)
    with pytest.raises(ServerDiedError, match="services/head") as caught:
        up(load())
    assert caught.value.details == ("address in use",)
    assert engine.states == {}


def test_a_head_without_an_address_is_an_error_even_when_it_runs(load: Load, engine: Any) -> None:
    engine.address = None
    with pytest.raises(HeadFailedError, match="no address"):
        up(load())
    assert engine.states == {}


def test_stopping_that_fails_too_does_not_replace_the_first_error(load: Load, engine: Any, head: Any) -> None:
    head()
    engine.fail = {"apply": PrerequisiteError("first"), "stop": GymComposeError("second")}
    lines: list[str] = []
    project = load()
    with pytest.raises(PrerequisiteError, match="first"):
        up(project, lines)
    assert any("second" in line and f"gym compose -p {project.name} down" in line for line in lines)


def test_the_lock_is_held_while_applying_and_free_while_waiting(load: Load, engine: Any, head: Any) -> None:
    head(STARTING, OK)
    project = load()
    busy: list[bool] = []

    def taken() -> bool:
        try:
            with project.directory.lock(Deadline.after(0)):
                return False
        except ProjectBusyError:
            return True

    engine.on_apply = lambda _: busy.append(taken())
    up(project, on_health=lambda _: busy.append(taken()))
    assert busy == [True, False, False]


def test_a_project_that_another_command_works_on_is_not_touched(load: Load, engine: Any, head: Any) -> None:
    head()
    project = load()
    with project.directory.lock(Deadline.after(0)), pytest.raises(ProjectBusyError):
        up(project)
    assert "apply" not in engine.calls
    assert "stop" not in engine.calls


def test_down_stops_forgets_the_port_and_may_be_repeated(load: Load, engine: Any, head: Any) -> None:
    head()
    project = load()
    up(project)
    report = project.down(Deadline.after(5), lambda _: None)
    assert len(report.stopped) == 5
    state = project.state()
    assert state is not None
    assert state.head_port is None
    assert project.down(Deadline.after(5), lambda _: None).stopped == ()
