"""The life of an episode: identity, admission, deadline, failures, cleanup on every path (contract-data 2.4, cases 69 to 71)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, ClassVar

import httpx
import pytest
from pydantic import BaseModel, ConfigDict

from gym_compose.serving import AgentServerReference, EnvironmentServer, EnvironmentServerConfig, Episode, HandledEpisodeError
from gym_compose.serving.episode import CleanupHandle, EpisodeCounts
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.episodes import EpisodeFailure
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.ids import EpisodeId, TaskId


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    act: str = "good"


class Acting(EnvironmentServer):
    config: EnvironmentServerConfig
    task_input: ClassVar[Any] = Input

    def setup(self) -> None:
        self.log: list[str] = []
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

    async def run(self, episode: Episode[Input]) -> dict[str, Any]:
        episode.on_exit("first", self._note("first"))
        episode.on_exit("second", self._note("second"))
        self.began.set()
        match episode.task_input.act:
            case "handled":
                raise HandledEpisodeError(EpisodeFailure(failure_reason="why", terminal=False, stage="seed", failure_kind="session_lost"))
            case "bug":
                raise KeyError("x" * 3000)
            case "own timeout":
                raise TimeoutError("inner")
            case "hang":
                await asyncio.sleep(60)
            case "wait":
                await self.go_on.wait()
            case "broken cleanup":
                episode.on_exit("third", self._broken)
            case "slow cleanup":
                episode.on_exit("third", self._slow)
            case "late":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
            case "late failure":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                raise HandledEpisodeError(EpisodeFailure(failure_reason="late", terminal=True))
            case "not an object":
                return [1]  # type: ignore[return-value]
        return {"reward": 1.0, "key": episode.id.capture_key, "left": episode.deadline.remaining()}

    def _note(self, name: str) -> Any:
        async def note() -> None:
            await asyncio.sleep(0)
            self.log.append(name)

        return note

    async def _broken(self) -> None:
        self.log.append("third")
        raise RuntimeError("cannot close")

    async def _slow(self) -> None:
        await asyncio.sleep(60)

    def metrics_server(self) -> AgentServerReference:
        return AgentServerReference(type="responses_api_agents", name="nobody")


def request(act: str = "good", rollout: str = "0-0", attempt: int = 0) -> dict[str, Any]:
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "task": {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"act": act}},
    }


LIMITS = {"cleanup_timeout_seconds": 5}


async def acting(deploy: Any, **limits: Any) -> Any:
    return await deploy(env=("es", Acting, {**LIMITS, **limits}))


async def test_a_result_with_the_identity_of_its_request(deploy: Any) -> None:
    servers = await acting(deploy)
    answer = await servers.post("env", "/run", request(attempt=2))
    assert answer.status_code == 200
    assert answer.json() == {
        "episode_id": {"rollout_id": "0-0", "attempt": 2},
        "task_id": {"taskset": "t", "task_id": "1"},
        "result": {"reward": 1.0, "key": "0-0-a2", "left": None},
        "failure": None,
    }
    assert "set-cookie" not in answer.headers  # environment servers have no sessions
    assert servers["env"].log == ["second", "first"]
    assert (await servers.post("env", "/ng-rollout/0-0/run", request())).status_code == 404


@pytest.mark.parametrize(
    ("act", "failure"),
    [
        ("handled", {"failure_reason": "why", "terminal": False, "failure_kind": "session_lost", "stage": "seed"}),
        ("own timeout", {"failure_reason": "TimeoutError: inner", "terminal": True}),
        ("not an object", {"failure_reason": "TypeError: the result of an episode must be an object, not list", "terminal": True}),
    ],
)
async def test_failures_are_answers_and_clean_up(deploy: Any, act: str, failure: dict[str, Any]) -> None:
    servers = await acting(deploy, default_episode_timeout_seconds=30)
    answer = await servers.post("env", "/run", request(act))
    assert answer.status_code == 200
    assert answer.json()["result"] is None
    assert answer.json()["failure"] == failure
    assert servers["env"].log == ["second", "first"]


async def test_an_unexpected_error_is_a_terminal_failure_of_bounded_length(deploy: Any) -> None:
    servers = await acting(deploy)
    failure = (await servers.post("env", "/run", request("bug"))).json()["failure"]
    assert failure["terminal"] is True
    assert failure["failure_reason"].startswith("KeyError: 'xxx")
    assert len(failure["failure_reason"]) == 2000


async def test_a_deadline_that_passes_is_a_failure_that_may_be_tried_again(deploy: Any) -> None:
    servers = await acting(deploy, default_episode_timeout_seconds=0.2)
    answer = await servers.post("env", "/run", request("hang"))
    assert answer.json()["failure"] == {"failure_reason": "Episode timed out", "terminal": False}
    assert servers["env"].log == ["second", "first"]


@pytest.mark.parametrize(("act", "late"), [("late", 1), ("late failure", 0)])
async def test_what_comes_after_the_deadline_is_dropped(deploy: Any, act: str, late: int, caplog: pytest.LogCaptureFixture) -> None:
    """A run that swallows its cancellation and answers all the same: the caller was told that the time was over."""
    servers = await acting(deploy, default_episode_timeout_seconds=0.1)
    answer = (await servers.post("env", "/run", request(act))).json()
    assert answer["result"] is None
    assert answer["failure"] == {"failure_reason": "Episode timed out", "terminal": False}
    counts = (await servers.get("env", "/episodes")).json()
    assert (counts["timed_out"], counts["late_answers"]) == (1, late)
    assert f"episode 0-0 timed out after 0.1 s; late answers dropped so far: {late}" in caplog.text


async def test_a_caller_that_hangs_up_ends_the_episode_after_its_cleanup(deploy: Any) -> None:
    """Case 70."""
    servers = await acting(deploy, max_concurrent_episodes=1, queue_timeout_seconds=5)
    with contextlib.suppress(httpx.TimeoutException):
        await servers.post("env", "/run", request("hang"), timeout=0.2)
    for _ in range(100):
        if servers["env"].counts.cancelled:
            break
        await asyncio.sleep(0.02)
    assert servers["env"].log == ["second", "first"]
    counts = (await servers.get("env", "/episodes")).json()
    assert (counts["cancelled"], counts["running"], counts["cleanups_registered"], counts["cleanups_done"]) == (1, 0, 2, 2)
    assert (await servers.post("env", "/run", request())).json()["failure"] is None  # its slot is free again


async def test_a_caller_that_hangs_up_while_it_waits_leaves_no_trace(deploy: Any) -> None:
    servers = await acting(deploy, max_concurrent_episodes=1, queue_timeout_seconds=30)
    first = asyncio.create_task(servers.http.post(servers.urls["env"] + "/run", json=request("wait")))
    await servers["env"].began.wait()
    with contextlib.suppress(httpx.TimeoutException):
        await servers.post("env", "/run", request(), timeout=0.2)
    for _ in range(100):
        if not servers["env"].counts.waiting:
            break
        await asyncio.sleep(0.02)
    servers["env"].go_on.set()
    assert (await first).json()["result"]["reward"] == 1.0
    counts = (await servers.get("env", "/episodes")).json()
    assert (counts["waiting"], counts["running"], counts["results"], counts["cleanups_registered"]) == (0, 0, 1, 2)


async def test_a_cleanup_that_fails_does_not_stop_the_others(deploy: Any, caplog: pytest.LogCaptureFixture) -> None:
    servers = await acting(deploy)
    answer = await servers.post("env", "/run", request("broken cleanup"))
    assert answer.json()["result"]["reward"] == 1.0
    assert servers["env"].log == ["third", "second", "first"]
    assert "cleanup of third failed" in caplog.text


async def test_cleanups_share_one_budget(deploy: Any, caplog: pytest.LogCaptureFixture) -> None:
    servers = await acting(deploy, cleanup_timeout_seconds=0.2)
    answer = await servers.post("env", "/run", request("slow cleanup"))
    assert answer.json()["result"]["reward"] == 1.0
    assert servers["env"].log == ["second", "first"]  # the one that hangs leaves some of it to those after it
    assert "cleanup took longer than 0.2 s; left open: third" in caplog.text
    counts = (await servers.get("env", "/episodes")).json()
    assert (counts["cleanups_registered"], counts["cleanups_done"], counts["cleanups_left_open"]) == (3, 2, 1)


async def test_admission_waits_for_a_slot_and_then_fails_without_a_call(deploy: Any) -> None:
    """Case 69."""
    servers = await acting(deploy, max_concurrent_episodes=1, queue_timeout_seconds=0.15)
    first = asyncio.create_task(servers.http.post(servers.urls["env"] + "/run", json=request("wait")))
    await servers["env"].began.wait()
    second = await servers.http.post(servers.urls["env"] + "/run", json=request())
    assert second.json()["failure"] == {"failure_reason": "Episode admission timed out", "terminal": False, "stage": "admission"}
    assert servers["env"].log == []
    assert (await servers.get("env", "/episodes")).json() | {"not_admitted": 1, "running": 1, "waiting": 0} == (
        await servers.get("env", "/episodes")
    ).json()
    servers["env"].go_on.set()
    assert (await first).json()["result"]["reward"] == 1.0
    assert (await servers.http.post(servers.urls["env"] + "/run", json=request())).json()["failure"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"episode_id": {"rollout_id": "0-0-a1"}},
        {"episode_id": {"rollout_id": "run-a1"}},
        {"episode_id": {"rollout_id": "0-1-a2"}},
        {"episode_id": {"rollout_id": "x\n"}},
        {"episode_id": {"rollout_id": "a b"}},
        {"episode_id": {"rollout_id": "0-0", "attempt": -1}},
        {"episode_id": {"rollout_id": "0-0", "attempt": True}},
        {"task": {"task_id": {"taskset": "", "task_id": "1"}, "task_input": {}}},
        {"task": {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"unknown": 1}}},
        {"task": {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": None}},
        {"extra": 1},
    ],
)
async def test_bodies_that_do_not_fit_are_422(deploy: Any, change: dict[str, Any]) -> None:
    """Cases 15 (no task_input), 23 and 86 (an id that ends like an attempt)."""
    servers = await acting(deploy)
    assert (await servers.post("env", "/run", {**request(), **change})).status_code == 422
    assert servers["env"].log == []


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, "cleanup_timeout_seconds: Field required"),
        ({**LIMITS, "datasets": []}, "datasets: Extra inputs are not permitted"),
        ({**LIMITS, "max_concurrent_episodes": 4}, "needs queue_timeout_seconds"),
        ({**LIMITS, "max_concurrent_episodes": 0, "queue_timeout_seconds": 1}, "max_concurrent_episodes"),
        ({**LIMITS, "default_episode_timeout_seconds": 0}, "default_episode_timeout_seconds"),
    ],
)
def test_blocks_that_do_not_fit_are_refused_at_start(block: dict[str, Any], message: str) -> None:
    """Case 71 among them."""
    merged = {"env": {"environment_servers": {"acting": {"entrypoint": "app.py", "host": "h", "port": 1, **block}}}}
    with pytest.raises(InvalidInputError, match=message):
        Acting.from_config(merged, "env", environ={})


def test_domain_is_tolerated() -> None:
    block = {"entrypoint": "app.py", "host": "h", "port": 1, "domain": "agent", **LIMITS}
    assert Acting.from_config({"env": {"environment_servers": {"acting": block}}}, "env", environ={}).config.domain == "agent"


async def test_a_handle_runs_once_after_success_and_again_after_failure() -> None:
    runs: list[int] = []

    async def once() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("first time")

    handle = CleanupHandle("x", once, 1.0, EpisodeCounts())
    with pytest.raises(RuntimeError):
        await handle.close()
    await handle.close()
    await handle.close()
    assert len(runs) == 2


async def test_cleanup_goes_to_its_end_when_it_is_cancelled_in_the_middle() -> None:
    episode = Episode(EpisodeId(rollout_id="0-0"), TaskId(taskset="t", task_id="1"), None, Deadline(None), 5.0)
    entered, proceed, done = asyncio.Event(), asyncio.Event(), []

    async def closing() -> None:
        entered.set()
        await proceed.wait()
        done.append("closed")

    from gym_compose.serving.environment import _shielded

    episode.on_exit("x", closing)
    task = asyncio.create_task(_shielded(episode))
    await entered.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    assert not task.done()
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["closed"]
