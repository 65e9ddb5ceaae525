"""``gym compose``: what is called on the project, what is printed where, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gym_compose.cli import compose
from gym_compose.cli.compose import ServerEndedError
from gym_compose.cli.translate import Invocation
from gym_compose.engine.interface import EngineEvent, ServiceState
from gym_compose.wire.errors import NotReadyError, UsageError

Invoke = Callable[..., Invocation]


def test_up_detached_returns_when_ready(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.up(invoke("compose up -d ++a=1"), captured.console) == 0
    assert project.calls == ["up"]
    assert captured.stdout == ""
    assert captured.stderr.splitlines() == [
        "plan: create 1, keep 1",
        "creating math",
        "head: ready",
        "math: ready",
        "demo: 1 servers ready on docker, head server at http://127.0.0.1:11000.",
    ]


def test_up_detached_as_json(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.up(invoke("compose up -d --json ++a=1"), captured.console) == 0
    document = json.loads(captured.stdout)
    assert (document["project"], document["engine"], document["head"]) == ("demo", "docker", "http://127.0.0.1:11000")
    assert [service["service"] for service in document["services"]] == ["head", "math"]


def test_a_dry_run_shows_the_plan_and_does_nothing(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.up(invoke("compose up --dry-run ++a=1"), captured.console) == 0
    assert project.calls == ["plan"]
    assert [line.split()[:2] for line in captured.stdout.splitlines()[2:]] == [["head", "keep"], ["math", "create"]]
    assert compose.up(invoke("compose up --dry-run --json ++a=1"), captured.console) == 0
    shown = json.loads(captured.stdout[captured.stdout.index("[") :])
    assert shown[1] == {"service": "math", "action": "create", "reason": "does not exist"}


def test_a_failed_start_is_raised_and_stopping_is_left_to_the_project(invoke: Invoke, captured: Any, project: Any) -> None:
    project.failure = NotReadyError("too late")
    with pytest.raises(NotReadyError):
        compose.up(invoke("compose up ++a=1"), captured.console)
    assert project.calls == ["up"]


def test_ctrl_c_before_it_is_ready(invoke: Invoke, captured: Any, project: Any) -> None:
    project.failure = KeyboardInterrupt()
    assert compose.up(invoke("compose up ++a=1"), captured.console) == 0
    assert project.calls == ["up", "down"]
    with pytest.raises(KeyboardInterrupt):
        compose.up(invoke("compose up -d ++a=1"), captured.console)


def test_a_second_ctrl_c_gives_the_stopping_up(invoke: Invoke, captured: Any, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(project, "observe", interrupted)
    monkeypatch.setattr(project, "down", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compose.up(invoke("compose up ++a=1"), captured.console)


@pytest.mark.parametrize("moment", ["head_address", "observe"])
def test_ctrl_c_between_two_steps_stops_the_project_too(
    invoke: Invoke, captured: Any, project: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from gym_compose.cli import env

    def interrupted(deadline: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(project, moment, interrupted)
    assert env.start(invoke("env start ++a=1"), captured.console) == 0
    assert [call for call in project.calls if not call.startswith("logs")] == ["up", "down"]


def test_ctrl_c_stops_a_foreground_project_and_is_a_clean_end(
    invoke: Invoke, captured: Any, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gym_compose.project.wait import DeathWatch

    def interrupted(self: Any, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DeathWatch, "next_death", interrupted)
    assert compose.up(invoke("compose up ++a=1"), captured.console) == 0
    assert project.calls == ["up", "down"]
    assert captured.stderr.splitlines()[-2:] == ["demo: stopped 3, removed 3.", "demo: had to be killed: slow."]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            ServiceState("math", "server", "exited", exit_code=3),
            "services/math: the server ended with exit code 3",
        ),
        (
            ServiceState("math", "server", "exited", exit_code=137, oom_killed=True),
            "services/math: the server was killed for lack of memory",
        ),
        (None, "services/math: the server is gone"),
    ],
)
def test_a_server_that_ends_ends_a_foreground_project(
    invoke: Invoke, captured: Any, project: Any, monkeypatch: pytest.MonkeyPatch, state: ServiceState | None, message: str
) -> None:
    running = project.services

    def up(*given: Any, **options: Any) -> None:
        project.services = (running[0],) if state is None else (running[0], state)

    monkeypatch.setattr(project, "up", up)
    with pytest.raises(ServerEndedError) as caught:
        compose.up(invoke("compose up ++a=1"), captured.console)
    assert str(caught.value) == f"{message}; the others were stopped."
    assert caught.value.details == ("ready", "(math) hello")
    assert caught.value.exit_code == 1
    assert project.calls[-1] == "down"


def test_a_death_is_noticed_through_events(invoke: Invoke, captured: Any, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([project.services, (project.services[0], ServiceState("math", "server", "exited", exit_code=1))])
    project.engine.deaths = [EngineEvent("math", "die")]
    monkeypatch.setattr(project, "observe", lambda deadline: type("O", (), {"state": _lookup(next(looks))})())
    with pytest.raises(ServerEndedError, match="exit code 1"):
        compose.up(invoke("compose up ++a=1"), captured.console)


def _lookup(services: tuple[ServiceState, ...]) -> Callable[[Any, str], ServiceState | None]:
    return lambda self, name: next((state for state in services if state.service == name), None)


def test_down(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.down(invoke("compose down"), captured.console) == 0
    assert project.calls == ["down"]
    assert captured.stderr.splitlines() == ["demo: stopped 3, removed 3.", "demo: had to be killed: slow."]
    assert captured.stdout == ""


def test_down_as_json_and_dry(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.down(invoke("compose down --dry-run"), captured.console) == 0
    assert project.calls == []
    assert captured.stderr == "demo: would stop head, math\n"
    assert compose.down(invoke("compose down --json"), captured.console) == 0
    assert json.loads(captured.stdout) == {"demo": {"stopped": ["math", "head"], "killed": ["slow"], "removed": 3}}


def test_ps(invoke: Invoke, captured: Any, project: Any) -> None:
    project.services = (*project.services, ServiceState("dead", "server", "exited", exit_code=137, oom_killed=True, restarts=2))
    assert compose.ps(invoke("compose ps"), captured.console) == 0
    lines = [line.split() for line in captured.stdout.splitlines()]
    assert lines[0] == ["service", "role", "state", "id", "memory", "restarts", "image"]
    assert lines[2] == ["head", "head", "running", "0123456789ab", "50", "MiB", "0", "i:1"]
    assert lines[4] == ["dead", "server", "exited", "(137,", "out", "of", "memory)", "2"]


def test_ps_as_json(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.ps(invoke("compose ps --json"), captured.console) == 0
    assert [state["status"] for state in json.loads(captured.stdout)] == ["running", "running"]


def test_logs(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.logs(invoke("compose logs math head --tail 7"), captured.console) == 0
    assert project.calls == ["logs ['math', 'head'] False 7"]
    assert captured.stdout == "head | ready\nmath | hello\n"


def test_logs_as_json_lines(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.logs(invoke("compose logs --json"), captured.console) == 0
    assert [json.loads(line)["service"] for line in captured.stdout.splitlines()] == ["head", "math"]


def test_ctrl_c_ends_following_logs_cleanly(invoke: Invoke, captured: Any, project: Any) -> None:
    project.failure = KeyboardInterrupt()
    assert compose.logs(invoke("compose logs -f"), captured.console) == 0


def test_build_lists_images(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.build(invoke("compose build ++a=1"), captured.console) == 0
    assert [line.split() for line in captured.stdout.splitlines()[2:]] == [
        ["gym-compose/native:1", "built", "2.5", "s", "1.0", "MiB", "math"],
        ["gym-compose/base:1", "there"],
    ]
    assert captured.stderr.splitlines() == [
        "building gym-compose/native:1",
        "1 server on 1 image: 0.0 MiB of layers shared, 1.0 MiB of one server each.",
    ]


def test_build_anew(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.build(invoke("compose build --upgrade ++a=1"), captured.console) == 0
    assert project.calls == ["build --upgrade"]


def test_a_shared_image_names_three_servers_and_counts_the_rest(invoke: Invoke, captured: Any, project: Any) -> None:
    names = ["a", "b", "c", "d", "e"]
    one = project.deployment.services[0]
    project.deployment.services = tuple(
        type(one)(name=name, role="server", instance=name, image="gym-compose/native:1" if name != "e" else "x:1") for name in names
    )
    assert compose.build(invoke("compose build ++a=1"), captured.console) == 0
    assert "a, b, c and 1 more" in captured.stdout
    assert captured.stderr.endswith("5 servers on 2 images: 1.0 MiB of layers shared, 0.0 MiB of one server each.\n")


def test_build_dry_and_json(invoke: Invoke, captured: Any, project: Any) -> None:
    assert compose.build(invoke("compose build --dry-run ++a=1"), captured.console) == 0
    assert captured.stdout == "gym-compose/native:1 (native)\n"
    assert project.calls == []
    assert compose.build(invoke("compose build --json ++a=1"), captured.console) == 0
    first = json.loads(captured.stdout.partition("\n")[2])[0]
    assert (first["own_bytes"], first["kind"], first["used_by"]) == (1_048_576, "native", ["math"])


def test_there_is_no_compose_file_of_the_process_engine(invoke: Invoke, captured: Any, project: Any) -> None:
    with pytest.raises(UsageError, match="no compose file"):
        compose.config(invoke("compose config --engine process ++a=1"), captured.console)
