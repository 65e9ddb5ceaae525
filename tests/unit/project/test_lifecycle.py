from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gym_compose.engine.errors import PortTakenError
from gym_compose.engine.interface import Observed, ServiceState
from gym_compose.project.errors import HeadFailedError, OtherEngineError, ProjectBusyError, ServerDiedError
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


def test_a_port_that_was_taken_meanwhile_gives_way_once(load: Load, engine: Any, head: Any) -> None:
    head(OK)
    taken = [PortTakenError("port 11000 of this host is in use", port=11000)]

    def once(_: object) -> None:
        if taken:
            raise taken.pop()

    engine.on_apply = once
    lines: list[str] = []
    assert up(load(), lines).status == "ok"
    assert engine.calls.count("apply") == 2
    assert engine.calls[engine.calls.index("apply") + 1] == "stop"
    assert any("once more with free ports" in line for line in lines)


@pytest.mark.parametrize("explicit", [True, False])
def test_a_port_that_stays_taken_is_the_error(load: Load, engine: Any, head: Any, monkeypatch: pytest.MonkeyPatch, explicit: bool) -> None:
    head(OK)
    engine.fail["apply"] = PortTakenError("port 11000 of this host is in use", port=11000)
    monkeypatch.setattr(Project, "head_port_is_explicit", explicit)
    with pytest.raises(PortTakenError):
        up(load())
    assert engine.calls.count("apply") == (1 if explicit else 2)
    assert engine.states == {}


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


class OtherEngine:
    """What the project was started on before."""

    def __init__(self, *services: str) -> None:
        self.services = services

    def observe(self, project: str, _deadline: Deadline) -> Observed:
        return Observed(project, "process", tuple(ServiceState(name, "server", "running") for name in self.services))


def test_a_project_that_runs_on_the_other_engine_is_not_started_on_this_one(
    load: Load, engine: Any, head: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    head()
    up(load())
    project = load()
    state = project.state()
    assert state is not None
    project.directory.write_state(state.model_copy(update={"engine": "process"}))
    engine.states.clear()
    engine.calls.clear()
    monkeypatch.setattr("gym_compose.project.project.select_engine", lambda *_, **__: OtherEngine("policy"))
    with pytest.raises(OtherEngineError, match=f"process engine already.*gym compose -p {project.name} down.*--engine process"):
        up(load())
    assert engine.calls == []
    monkeypatch.setattr("gym_compose.project.project.select_engine", lambda *_, **__: OtherEngine())
    assert up(load()).status == "ok"


def test_an_engine_of_before_that_does_not_answer_is_said_and_no_obstacle(
    load: Load, engine: Any, head: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    head()
    up(load())
    project = load()
    state = project.state()
    assert state is not None
    project.directory.write_state(state.model_copy(update={"engine": "process"}))

    def none(*_: object, **__: object) -> Any:
        raise PrerequisiteError("it does not answer")

    monkeypatch.setattr("gym_compose.project.project.select_engine", none)
    lines: list[str] = []
    assert up(load(), lines).status == "ok"
    assert any("it does not answer" in line for line in lines)


def test_a_server_made_anew_under_a_running_head_is_waited_for(load: Load, engine: Any, head: Any) -> None:
    head()
    up(load())
    engine.states.pop("policy")
    head({**OK, "answered": {"policy": 1.0}}, {**OK, "answered": {"policy": time.time() + 3600}})
    seen: list[tuple[str, list[str]]] = []
    up(load(), on_health=lambda report: seen.append((report.status, [item.name for item in report.waiting])))
    assert seen == [("starting", ["policy"]), ("ok", [])]


def test_an_interrupt_looks_once_more_for_what_the_engine_still_made(load: Load, engine: Any, head: Any) -> None:
    head()
    engine.fail["apply"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        up(load())
    assert engine.calls.count("stop") == 2
