"""``collect_rollouts``: rows of a program in, results out as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

import gym_compose
from gym_compose.driver.errors import HeadError, RoutingError, ServerDeadError
from gym_compose.driver.stream import collect_rollouts
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.settings import Settings

QUICK = Settings(run_head_seconds=2.0, probe_interval_seconds=0.05, connect_retry_seconds=0.05, run_death_seconds=0.2)


def test_it_is_offered_by_the_package() -> None:
    assert gym_compose.collect_rollouts is collect_rollouts


async def test_results_come_as_they_are_done_with_the_place_of_their_row(stubs: Any) -> None:
    first_may_end = asyncio.Event()

    async def answer(body: dict[str, Any]) -> web.Response:
        if body["n"] == 0:
            await first_may_end.wait()
        return web.json_response({"reward": float(body["n"])})

    stubs.servers["a_env"].answer = answer
    rows = [stubs.flat("a", n=n) for n in range(5)]
    came = []
    async for rollout in collect_rollouts(rows, head_url=stubs.url, num_samples_in_parallel=2, settings=QUICK):
        came.append(rollout.index)
        assert rollout.row is rows[rollout.index]
        assert rollout.record["reward"] == rollout.index
        assert rollout.record["_ng_task_index"] == rollout.index
        assert rollout.record["_ng_rollout_index"] == 0
        assert rollout.record["_ng_environment_server"] == "a_env"
        if len(came) == 4:
            first_may_end.set()
    assert came == [1, 2, 3, 4, 0]
    assert "_ng_task_index" not in rows[0], "rows are not written to"


async def test_flat_and_materialized_rows_and_indices_of_their_own(stubs: Any) -> None:
    rows = [stubs.mat("ts", "t", _ng_task_index=7, _ng_rollout_index=3, _ng_attempt_index=1), stubs.flat("b")]
    found = {rollout.index: rollout async for rollout in collect_rollouts(rows, head_url=stubs.url, settings=QUICK)}
    assert stubs.servers["native"].seen[0]["episode_id"] == {"rollout_id": "7-3", "attempt": 1}
    assert (found[0].record["_ng_task_index"], found[0].record["_ng_rollout_index"]) == (7, 3)
    assert found[1].record["_ng_environment_server"] == "b_env"


async def test_failures_are_results_like_any_other(stubs: Any) -> None:
    stubs.servers["a_env"].answer = lambda _body: web.json_response("boom", status=500)
    (rollout,) = [rollout async for rollout in collect_rollouts([stubs.flat("a")], head_url=stubs.url, settings=QUICK)]
    assert (rollout.kind, rollout.failure_class) == ("failed", "agent_run_error")
    assert rollout.record["_ng_failure_http_status"] == 500


async def test_a_slow_consumer_holds_the_rows_back(stubs: Any) -> None:
    """Endless rows; of them no more are taken than may be under way or wait to be taken."""
    taken = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal taken
        while True:
            taken += 1
            yield stubs.flat("a", n=taken)

    stream = collect_rollouts(rows(), head_url=stubs.url, num_samples_in_parallel=2, settings=QUICK)
    async with contextlib.aclosing(stream):
        for consumed in range(1, 4):
            await anext(stream)
            server = stubs.servers["a_env"]
            while len(server.seen) < 8 + consumed or server.active:  # everything that may run has run
                await asyncio.sleep(0.01)
            assert taken == len(server.seen) == 8 + consumed
    assert stubs.servers["a_env"].peak <= 2


async def test_max_resident_rollout_tasks_bounds_what_waits_to_be_taken(stubs: Any) -> None:
    server = stubs.servers["a_env"]
    stream = collect_rollouts(
        (stubs.flat("a", n=n) for n in range(20)),
        head_url=stubs.url,
        num_samples_in_parallel=4,
        max_resident_rollout_tasks=3,
        settings=QUICK,
    )
    async with contextlib.aclosing(stream):
        await anext(stream)
        while len(server.seen) < 4 or server.active:
            await asyncio.sleep(0.01)
        assert len(server.seen) == 4
    assert server.peak <= 3


async def test_rows_may_come_from_an_async_source(stubs: Any) -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        for n in range(4):
            await asyncio.sleep(0)
            yield stubs.flat("a", n=n)

    found = [rollout.index async for rollout in collect_rollouts(rows(), head_url=stubs.url, num_samples_in_parallel=2, settings=QUICK)]
    assert sorted(found) == [0, 1, 2, 3]


async def test_closing_cancels_what_is_under_way_at_the_servers_too(stubs: Any) -> None:
    cancelled: list[int] = []
    all_cancelled = asyncio.Event()

    async def answer(body: dict[str, Any]) -> web.Response:
        if body["n"] == 0:
            return web.json_response({"reward": 1.0})
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(body["n"])
            if len(cancelled) == 3:
                all_cancelled.set()
            raise
        raise AssertionError("not cancelled")

    stubs.servers["a_env"].answer = answer
    before = asyncio.all_tasks()
    stream = collect_rollouts([stubs.flat("a", n=n) for n in range(4)], head_url=stubs.url, settings=QUICK)
    async with contextlib.aclosing(stream):
        await anext(stream)
        while stubs.servers["a_env"].active < 3:
            await asyncio.sleep(0.01)
    await asyncio.wait_for(all_cancelled.wait(), 30)
    assert not [task for task in asyncio.all_tasks() - before if "gym_compose" in repr(task.get_coro())]


async def test_cancelling_the_consumer_is_cancelling(stubs: Any) -> None:
    arrived = asyncio.Event()

    async def never(_body: dict[str, Any]) -> web.Response:
        arrived.set()
        await asyncio.sleep(3600)
        raise AssertionError

    stubs.servers["a_env"].answer = never

    async def consume() -> None:
        async for _ in collect_rollouts([stubs.flat("a")], head_url=stubs.url, settings=QUICK):
            raise AssertionError("nothing comes")

    consumer = asyncio.create_task(consume())
    await asyncio.wait_for(arrived.wait(), 30)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        ({"agent_ref": {"name": "a"}}, InvalidInputError, "row 1: responses_create_params is missing"),
        ({"responses_create_params": {}, "agent_ref": {"name": "zz"}}, RoutingError, "'zz' is not in the running config"),
        ({"task_id": {"taskset": "tz", "task_id": "1"}, "task_input": {}}, InvalidInputError, "row 1: taskset 'tz' has no route"),
        (
            {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {}, "_ng_attempt_index": -1},
            InvalidInputError,
            "row 1: _ng_attempt_index",
        ),
    ],
)
async def test_a_row_that_cannot_be_sent_is_an_error_that_names_it(
    stubs: Any, row: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        async for _ in collect_rollouts([stubs.flat("a"), row], head_url=stubs.url, settings=QUICK):
            pass
    assert text in str(raised.value)


async def test_an_error_of_the_rows_themselves_passes(stubs: Any) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield stubs.flat("a")
        raise KeyError("my dataset")

    with pytest.raises(KeyError, match="my dataset"):
        async for _ in collect_rollouts(rows(), head_url=stubs.url, settings=QUICK):
            pass


async def test_a_dead_server_ends_it(stubs: Any) -> None:
    await stubs.servers["a_env"].stop()
    with pytest.raises(ServerDeadError, match="a_env"):
        async for _ in collect_rollouts([stubs.flat("a")], head_url=stubs.url, settings=QUICK):
            pass


async def test_a_server_that_the_head_gives_no_address_of_is_to_be_published(stubs: Any) -> None:
    del stubs.config["a_env"]["environment_servers"]["legacy_agent"]["port"]
    with pytest.raises(RoutingError, match="--publish environment"):
        async for _ in collect_rollouts([stubs.flat("a")], head_url=stubs.url, settings=QUICK):
            pass


async def test_no_head(stubs: Any) -> None:
    await stubs.runner.cleanup()
    with pytest.raises(HeadError, match="no head server answers"):
        async for _ in collect_rollouts([stubs.flat("a")], head_url=stubs.url, settings=replace(QUICK, run_head_seconds=0.2)):
            pass


async def test_a_spent_budget_ends_it(stubs: Any) -> None:
    now = [0.0]

    def answer(_body: dict[str, Any]) -> web.Response:
        now[0] += 10.0
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    stream = collect_rollouts(
        [stubs.flat("a", n=n) for n in range(9)],
        head_url=stubs.url,
        num_samples_in_parallel=1,
        dispatch_budget_s=25.0,
        drain_margin_s=1.0,
        settings=QUICK,
        clock=lambda: now[0],
    )
    assert [rollout.index async for rollout in stream] == [0, 1, 2]
