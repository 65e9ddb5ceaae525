"""What is in flight, how long rows are started, how long one may take (contract-data 1.8; cases 39, 40)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from gym_compose.driver.record import Outcome
from gym_compose.driver.run import collect
from gym_compose.wire.errors import InvalidInputError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("parallel", "resident", "peak"), [(2, None, 2), (None, 3, 3), (5, 2, 2), (2, 5, 2)])
async def test_of_both_bounds_the_lower_one_is_what_is_in_flight(stubs: Any, parallel: int | None, resident: int | None, peak: int) -> None:
    server = stubs.servers["a_env"]
    full = asyncio.Event()

    async def answer(_body: dict[str, Any]) -> web.Response:
        if server.active >= peak:
            full.set()
        await full.wait()
        await asyncio.sleep(0.01)
        return web.json_response({"reward": 1.0})

    server.answer = answer
    rows = [stubs.flat("a", n=n) for n in range(12)]
    summary = await stubs.run(rows, num_samples_in_parallel=parallel, max_resident_rollout_tasks=resident)
    assert summary.counts.completed == 12
    assert server.peak == peak


async def test_a_resident_bound_alone_is_a_bound_and_gives_no_warning(stubs: Any) -> None:
    await stubs.run([stubs.flat("a", n=n) for n in range(70)], num_samples_in_parallel=None, max_resident_rollout_tasks=8)
    assert not any("in flight at once" in text for text in stubs.warnings)


async def test_a_budget_of_nothing_sends_nothing_and_says_so(stubs: Any) -> None:
    summary = await stubs.run([stubs.flat("a", n=n) for n in range(3)], num_samples_in_parallel=1, dispatch_budget_s=0)
    assert stubs.servers["a_env"].seen == []
    assert summary.exit_code == 1
    assert "3 rows were not started within dispatch_budget_s" in (summary.error or "")
    assert summary.unresolved == {"dispatch_budget": 3}


async def test_rows_that_the_budget_leaves_out_are_unresolved_and_the_rest_is_aggregated(stubs: Any) -> None:
    clock = Clock()

    def answer(_body: dict[str, Any]) -> web.Response:
        clock.now += 10.0
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    rows = [stubs.flat("a", n=n) for n in range(6)]
    summary = await stubs.run(rows, num_samples_in_parallel=1, dispatch_budget_s=35.0, drain_margin_s=10.0, clock=clock)
    assert summary.counts.model_dump() == {"requested": 6, "completed": 3, "failed": 0, "unresolved": 3}
    assert summary.unresolved == {"dispatch_budget": 3}
    assert not summary.interrupted
    assert "aggregate_metrics" in summary.files
    assert summary.latency is not None
    assert summary.latency.longest == 10.0


async def test_who_takes_all_outcomes_is_told_of_rows_that_the_budget_left_out(stubs: Any) -> None:
    clock = Clock()
    outcomes: list[Outcome] = []

    def answer(_body: dict[str, Any]) -> web.Response:
        clock.now += 10.0
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    request = stubs.request([stubs.flat("a", n=n) for n in range(3)], num_samples_in_parallel=1, dispatch_budget_s=5.0)
    await collect(request, lambda _: None, environ={}, clock=clock, on_outcome=outcomes.append)
    assert [(outcome.kind, outcome.record["_ng_task_index"]) for outcome in outcomes] == [("completed", 0), ("dropped", 1), ("dropped", 2)]
    assert outcomes[1].record == {
        "_ng_failure_class": "cancelled",
        "_ng_no_persist": True,
        "_ng_dispatch_drained": True,
        "error_message": "not started: the dispatch budget was spent",
        "_ng_task_index": 1,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "a"},
        "_ng_environment_server": "a_env",
        "_ng_result_type": "legacy_agent",
    }
    assert len(stubs.read(stubs.output)) == 1


async def test_a_budget_without_a_bound_on_what_is_in_flight_is_refused_before_a_file_is_touched(stubs: Any) -> None:
    with pytest.raises(InvalidInputError, match="dispatch_budget_s"):
        await stubs.run([stubs.flat("a")], num_samples_in_parallel=None, dispatch_budget_s=5)
    assert not stubs.output.parent.exists()


async def test_a_rollout_that_takes_too_long_fails_as_a_timeout_and_its_server_hears_of_it(stubs: Any) -> None:
    good = stubs.reward()
    given_up = asyncio.Event()

    async def never(body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("mark"):
            reply: web.StreamResponse = await good(body)
            return reply
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            given_up.set()
            raise
        raise AssertionError("not cancelled")

    stubs.servers["a_env"].answer = never
    rows = [stubs.flat("a", mark=1), *(stubs.flat("a", n=n) for n in range(3))]
    summary = await stubs.run(rows, rollout_timeout_s=3.0)
    assert summary.counts.model_dump() == {"requested": 4, "completed": 3, "failed": 1, "unresolved": 0}
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert failure["_ng_failure_class"] == "agent_request_failed"
    assert failure["_ng_failure_type"] == "PeerTimeout"
    assert failure["_ng_failure_kind"] == "transport_timeout"
    assert "no answer in time (3 s)" in failure["_ng_failure_message"]
    await asyncio.wait_for(given_up.wait(), 10)


async def test_an_answer_that_comes_after_its_rollout_was_given_up_is_dropped_and_the_rollout_counts_once(stubs: Any) -> None:
    answered = asyncio.Event()
    good = stubs.reward()

    async def late(body: dict[str, Any]) -> web.StreamResponse:
        if body.get("mark"):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:  # it goes on as a server would that does not look at its client
                answered.set()
        reply: web.StreamResponse = await good(body)
        return reply

    stubs.servers["a_env"].answer = late
    rows = [stubs.flat("a", mark=1), stubs.flat("a")]
    summary = await stubs.run(rows, rollout_timeout_s=1.0)
    await asyncio.wait_for(answered.wait(), 10)
    assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 1, "unresolved": 0}
    assert [row["_ng_task_index"] for row in stubs.read(stubs.output)] == [1]
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert (failure["_ng_task_index"], failure["_ng_failure_kind"], "reward" in failure) == (0, "transport_timeout", False)


async def test_waiting_for_a_connection_of_a_bounded_pool_is_not_the_rollouts_time(stubs: Any) -> None:
    """Ten rollouts of 0.2 s over one connection, each of which may take 1.5 s: the last waits longer than that."""
    stubs.config["global_aiohttp_connector_limit_per_host"] = 1

    async def slow(_body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.2)
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = slow
    summary = await stubs.run([stubs.flat("a", n=n) for n in range(10)], num_samples_in_parallel=10, rollout_timeout_s=1.5)
    assert stubs.servers["a_env"].peak == 1
    assert summary.counts.completed == 10
