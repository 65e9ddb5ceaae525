"""``run_from_config``: what a call returns (contract-data 1.7, cases 37, 40)."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

import gym_compose
from gym_compose.driver.errors import CollectionError
from gym_compose.driver.from_config import request_of, run_from_config
from gym_compose.wire.errors import InvalidInputError


def config_of(stubs: Any, rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    host, port = stubs.url.removeprefix("http://").split(":")
    path = stubs.write(stubs.directory / "rows.jsonl", rows)
    files = {"input_jsonl_fpath": str(path), "output_jsonl_fpath": str(stubs.output)}
    return {**files, "head_server": {"host": host, "port": int(port)}, "num_samples_in_parallel": 4, "unknown_key": 1, **changes}


def keys(results: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(record["_ng_task_index"], record["_ng_rollout_index"]) for record in results]


def test_it_is_offered_by_the_package() -> None:
    assert gym_compose.run_from_config is run_from_config


async def test_all_results_of_the_call_come_back_in_order_failures_and_unstored_ones_too(stubs: Any) -> None:
    good = stubs.reward()

    def answer(body: dict[str, Any]) -> Any:
        if body.get("mark") == "bad":
            return web.json_response("boom", status=500)
        if body.get("mark") == "unstored":
            return web.json_response({"reward": 0.0, "_ng_no_persist": True})
        return good(body)

    stubs.servers["a_env"].answer = answer
    rows = [stubs.flat("a", mark="bad"), stubs.flat("a", mark="unstored"), stubs.flat("a")]
    results = await run_from_config(config_of(stubs, rows, num_repeats=2))
    assert keys(results) == [(task, rollout) for task in range(3) for rollout in range(2)]
    assert [record.get("_ng_failure_class") for record in results] == ["agent_run_error"] * 2 + [None] * 4
    assert results[4:] == sorted(stubs.read(stubs.output), key=lambda record: record["_ng_rollout_index"])


async def test_what_is_not_retained_is_not_returned(stubs: Any) -> None:
    assert await run_from_config(config_of(stubs, [stubs.flat("a")], retain_results_in_memory=False)) == []
    assert len(stubs.read(stubs.output)) == 1
    assert stubs.beside("_aggregate_metrics.json").exists()


async def test_a_run_that_is_gone_on_with_returns_what_was_done_before(stubs: Any) -> None:
    rows = [stubs.flat("a", n=n) for n in range(3)]
    stubs.servers["a_env"].answer = lambda body: web.json_response(
        {"reward": 1.0} if body["n"] == 0 else "boom", status=200 if body["n"] == 0 else 500
    )
    await run_from_config(config_of(stubs, rows))
    sent = len(stubs.servers["a_env"].seen)
    stubs.servers["a_env"].answer = stubs.reward()
    results = await run_from_config(config_of(stubs, rows, resume_from_cache=True))
    assert len(stubs.servers["a_env"].seen) == sent + 2
    assert keys(results) == [(0, 0), (1, 0), (2, 0)]
    assert [record["reward"] for record in results] == [1.0, 1.0, 1.0]


async def test_rows_that_the_budget_left_out_are_told_of(stubs: Any) -> None:
    with pytest.raises(CollectionError, match="not started within dispatch_budget_s") as raised:
        await run_from_config(config_of(stubs, [stubs.flat("a")], dispatch_budget_s=0))
    assert raised.value.summary.unresolved == {"dispatch_budget": 1}


async def test_a_run_that_ends_with_an_error_raises_it_with_its_account(stubs: Any) -> None:
    stubs.servers["a_env"].answer = lambda _body: web.json_response("boom", status=500)
    with pytest.raises(CollectionError, match="max_failures") as raised:
        await run_from_config(config_of(stubs, [stubs.flat("a", n=n) for n in range(5)], max_failures=0, num_samples_in_parallel=1))
    assert raised.value.exit_code == 7
    assert raised.value.summary.counts.failed == 1


def test_a_config_with_a_wrong_value_names_it() -> None:
    with pytest.raises(InvalidInputError, match="num_samples_in_parallel"):
        request_of({"input_jsonl_fpath": "i", "output_jsonl_fpath": "o", "num_samples_in_parallel": 0})


def test_the_head_is_where_it_is_by_default() -> None:
    request = request_of({"input_jsonl_fpath": "i", "output_jsonl_fpath": "o", "limit": 0})
    assert request.head_url == "http://127.0.0.1:11000"
    assert request.limit is None
