from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gym_compose.compiler.deployment import Deployment
from gym_compose.engine.errors import CommandError
from gym_compose.engine.interface import EngineEvent, ServiceState
from gym_compose.project.errors import HeadFailedError, ServerDiedError
from gym_compose.project.wait import DeathWatch, ReadyWait, ready_deadline
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError, NotReadyError
from gym_compose.wire.head import HealthReport, InstanceHealth, ModelEndpoint
from gym_compose.wire.settings import Settings
from gym_compose.wire.slice import withheld_notice

OK = HealthReport(status="ok", phase="ready", elapsed_seconds=1)
MISSING = InstanceHealth(name="math server", kind="server", state="waiting", url="http://math.gym:8000", detail="refused hunter22")
STARTING = HealthReport(status="starting", phase="servers", elapsed_seconds=0, waiting=(MISSING,))
FAILED = HealthReport(status="failed", phase="failed", elapsed_seconds=9, waiting=(MISSING,), error="math server never answered (hunter22)")


class Answers:
    """A head that gives these answers one after the other, the last one for ever. A callable is called first."""

    def __init__(self, *answers: HealthReport | Callable[[], None] | None) -> None:
        self._answers = list(answers)

    def __call__(self) -> HealthReport | None:
        while callable(self._answers[0]) and not isinstance(self._answers[0], HealthReport):
            self._answers.pop(0)()  # type: ignore[operator,misc]
        answer = self._answers[0]
        if len(self._answers) > 1:
            self._answers.pop(0)
        return answer


def run(
    engine: Any, deployment: Deployment, settings: Settings, health: Answers, seconds: float = 5, seen: list[str] | None = None
) -> HealthReport:
    for service in deployment.services:
        if service.role != "driver":
            engine.states.setdefault(service.name, ServiceState(service.name, "server", "running"))
    wait = ReadyWait(
        engine=engine,
        deployment=deployment,
        redact=lambda text: text.replace("hunter22", "****"),
        settings=settings,
        on_health=None if seen is None else lambda report: seen.append(report.status),
    )
    watch = DeathWatch(engine, deployment.project)
    try:
        with watch:
            return wait.run(health, watch, Deadline.after(seconds))
    finally:
        assert watch.join(2), "the event thread is still there"


def test_it_ends_with_the_heads_ok_and_tells_every_answer(engine: Any, deployment: Deployment, settings: Settings) -> None:
    seen: list[str] = []
    assert run(engine, deployment, settings, Answers(None, STARTING, STARTING, OK), seen=seen) == OK
    assert seen == ["starting", "starting", "ok"]


def test_a_death_ends_the_wait_at_once_with_exit_code_and_last_lines_masked(
    engine: Any, deployment: Deployment, settings: Settings
) -> None:
    engine.log["policy_model"] = ["one", "two", "three", "key is hunter22"]
    begun = time.monotonic()
    with pytest.raises(ServerDiedError) as caught:
        run(engine, deployment, settings, Answers(STARTING, lambda: engine.die("policy_model", 3), STARTING), seconds=60)
    assert time.monotonic() - begun < 20
    assert caught.value.service == "policy_model"
    assert caught.value.server_exit_code == 3
    assert not caught.value.oom_killed
    assert "exit code 3" in str(caught.value)
    assert caught.value.details == ("two", "three", "key is ****")
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("how", [{"oom": True}, {"event_oom": True}])
def test_a_death_by_memory_says_so_and_names_the_limit(
    engine: Any, deployment: Deployment, settings: Settings, how: dict[str, bool]
) -> None:
    with pytest.raises(ServerDiedError, match="lack of memory") as caught:
        run(engine, deployment, settings, Answers(STARTING, lambda: engine.die("policy_model", 137, **how), STARTING))
    assert caught.value.oom_killed
    assert caught.value.hint is not None
    assert "policy_model: {memory" in caught.value.hint


def test_the_oom_flag_that_follows_the_death_is_waited_for(engine: Any, deployment: Deployment, settings: Settings) -> None:
    def die() -> None:
        engine.die("policy_model", 137)

        def later() -> None:
            engine.states["policy_model"] = replace(engine.states["policy_model"], oom_killed=True)

        threading.Timer(settings.event_settle_seconds / 3, later).start()

    with pytest.raises(ServerDiedError) as caught:
        run(engine, deployment, settings, Answers(STARTING, die, STARTING))
    assert caught.value.oom_killed


def test_a_server_that_ended_before_anybody_listened_is_found(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.states["policy_model"] = ServiceState("policy_model", "server", "exited", exit_code=0)
    with pytest.raises(ServerDiedError, match="exit code 0"):
        run(engine, deployment, settings, Answers(STARTING))


def test_a_server_that_is_gone_altogether_is_dead(engine: Any, deployment: Deployment, settings: Settings) -> None:
    def vanish() -> None:
        del engine.states["policy_model"]
        engine.emit(EngineEvent("policy_model", "die"))

    with pytest.raises(ServerDiedError, match="unknown"):
        run(engine, deployment, settings, Answers(STARTING, vanish, STARTING))


def test_a_key_that_the_dead_server_was_not_given_is_the_hint(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.log["policy_model"] = [withheld_notice("policy model", "hf_token"), "KeyError: 'hf_token'"]
    with pytest.raises(ServerDiedError) as caught:
        run(engine, deployment, settings, Answers(STARTING, lambda: engine.die("policy_model", 1), STARTING))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("It read hf_token, which it was not given. To give it: compose: {servers: ")


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        ("exited (3)", ServerDiedError, "exit code 3"),
        ("is unhealthy", NotReadyError, "did not become healthy, and others wait for it"),
    ],
)
def test_a_service_that_others_wait_for_is_the_error_with_its_last_lines(
    engine: Any, deployment: Deployment, settings: Settings, said: str, error: type[GymComposeError], text: str
) -> None:
    engine.log["policy_model"] = ["Exception: no room"]
    wait = ReadyWait(engine=engine, deployment=deployment, redact=str, settings=settings)
    line = f"dependency failed to start: container {deployment.project}-policy_model-1 {said}"
    with pytest.raises(error, match=text) as caught:
        wait.raise_unhealthy(CommandError("compose failed", code=1, details=("one", line)))
    assert caught.value.where == "services/policy_model"
    assert caught.value.details == ("Exception: no room",)
    wait.raise_unhealthy(CommandError("compose failed", code=1, details=("something else",)))


def test_the_death_of_a_replaced_container_is_no_death(engine: Any, deployment: Deployment, settings: Settings) -> None:
    def recreate() -> None:
        engine.emit(EngineEvent("policy_model", "die", 0))
        engine.emit(EngineEvent("policy_model", "start"))

    assert run(engine, deployment, settings, Answers(recreate, STARTING, STARTING, OK)) == OK


def test_a_driver_that_ended_is_not_waited_for(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.states["driver"] = ServiceState("driver", "driver", "exited", exit_code=0)
    assert run(engine, deployment, settings, Answers(OK)) == OK


def test_the_heads_own_verdict_is_told_with_the_log_of_who_is_missing(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.log["math.slug"] = ["loading"]
    with pytest.raises(HeadFailedError, match=r"never answered \(\*\*\*\*\)") as caught:
        run(engine, deployment, settings, Answers(STARTING, FAILED))
    assert caught.value.details == ("math server (server) waiting at http://math.gym:8000: refused ****", "  loading")


def test_a_head_that_says_nothing_is_given_up_with_its_log(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.log["head"] = ["stuck"]
    with pytest.raises(HeadFailedError, match=r"did not answer within 0\.3 s") as caught:
        run(engine, deployment, settings, Answers(None))
    assert caught.value.details == ("stuck",)


def test_a_head_that_hangs_after_an_answer_ends_with_the_deadline_and_names_who_was_missing(
    engine: Any, deployment: Deployment, settings: Settings
) -> None:
    with pytest.raises(HeadFailedError, match="still waiting for math server"):
        run(engine, deployment, settings, Answers(STARTING, None), seconds=0.5)


def test_lost_events_are_an_error_and_not_silence(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.fail["events"] = RuntimeError("the stream broke")
    with pytest.raises(RuntimeError, match="the stream broke"):
        run(engine, deployment, settings, Answers(STARTING))


def test_a_log_that_cannot_be_read_does_not_hide_the_death(engine: Any, deployment: Deployment, settings: Settings) -> None:
    engine.fail["logs"] = RuntimeError("no log for hunter22")
    with pytest.raises(ServerDiedError) as caught:
        run(engine, deployment, settings, Answers(STARTING, lambda: engine.die("policy_model"), STARTING))
    assert caught.value.details == ("(its log cannot be read: no log for ****)",)


@pytest.mark.parametrize(
    ("spinup", "model", "endpoints", "seconds"),
    [(600, 600, 1, 60 + 600 + 600 + 10), (600, 600, 0, 60 + 600 + 10), (5, 0, 1, 60 + 5 + 10), (0, 600, 1, None), (-1, 5, 1, None)],
)
def test_the_waits_own_bound_is_the_sum_of_what_the_head_may_take(
    deployment: Deployment, spinup: float, model: float, endpoints: int, seconds: float | None
) -> None:
    head = deployment.head.model_copy(
        update={
            "server_spinup_timeout_seconds": spinup,
            "model_endpoint_readiness_timeout_seconds": model,
            "endpoints": (ModelEndpoint(url="http://x/v1/models", key="base_url"),) * endpoints,
        }
    )
    remaining = ready_deadline(replace(deployment, head=head), Settings()).remaining()
    assert (remaining is None) == (seconds is None)
    assert remaining is None or seconds is None or seconds - 1 < remaining <= seconds


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (137, "exit code 137 (SIGKILL)"),
        (139, "exit code 139 (SIGSEGV)"),
        (250, "exit code 250"),
        (None, "an unknown"),
    ],
)
def test_an_exit_code_that_stands_for_a_signal_says_which(code: int | None, words: str) -> None:
    error = ServerDiedError("tool", exit_code=code, oom_killed=False, log=())
    assert words in str(error)
    assert ("run_webserver" in str(error)) == (code == 0)
