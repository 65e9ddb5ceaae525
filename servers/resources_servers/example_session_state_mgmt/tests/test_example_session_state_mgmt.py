from __future__ import annotations

from typing import Any

import httpx
import pytest

DIRECTORY = "resources_servers/example_session_state_mgmt"
EPISODE = {"rollout_id": "0-0", "attempt": 0}


@pytest.fixture
def counter(serve: Any) -> httpx.AsyncClient:
    client: httpx.AsyncClient = serve(DIRECTORY, "StatefulCounterResourcesServer", {"domain": "agent"}, instance="counter")
    return client


def _verify(expected: int) -> dict[str, Any]:
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {"responses_create_params": {"input": "q"}, "response": {**response, "output": []}, "expected_count": expected}


async def _reward(counter: httpx.AsyncClient, expected: int) -> float:
    verdict = (await counter.post("/verify", json=_verify(expected))).json()
    # The row's own fields do not come back.
    assert list(verdict) == ["responses_create_params", "response", "reward", "mask_sample", "failure_kind", "failure_reason"]
    reward: float = verdict["reward"]
    return reward


async def test_a_legacy_session_counts_and_is_judged(counter: httpx.AsyncClient) -> None:
    assert (await counter.post("/seed_session", json={"initial_count": 3, "other": 1})).json() == {}
    assert (await counter.post("/increment_counter", json={"count": 4})).json() == {"success": True}
    assert (await counter.post("/get_counter_value", json={})).json() == {"count": 7}
    assert (await counter.post("/get_counter_value")).json() == {"count": 7}
    assert await _reward(counter, 7) == 1.0
    assert await _reward(counter, 8) == 0.0


async def test_a_second_seed_of_a_session_changes_nothing(counter: httpx.AsyncClient) -> None:
    for count in (3, 9):
        await counter.post("/seed_session", json={"initial_count": count})
    assert (await counter.post("/get_counter_value")).json() == {"count": 3}


async def test_sessions_do_not_see_each_other(counter: httpx.AsyncClient) -> None:
    await counter.post("/seed_session", json={"initial_count": 3})
    counter.cookies.clear()
    assert await _reward(counter, 3) == 0.0
    assert (await counter.post("/increment_counter", json={"count": 1})).status_code == 200
    assert (await counter.post("/get_counter_value")).json() == {"count": 1}


async def test_a_session_without_a_seed_has_no_verdict_until_a_tool_was_used(counter: httpx.AsyncClient) -> None:
    assert await _reward(counter, 0) == 0.0
    await counter.post("/get_counter_value")
    assert await _reward(counter, 0) == 1.0


async def test_a_typed_session_is_seeded_from_its_task_data_and_released(counter: httpx.AsyncClient) -> None:
    seed = {
        "resources_session_id": "s",
        "episode_id": EPISODE,
        "task_id": {"taskset": "t", "task_id": "0"},
        "task_data": {"initial_count": 5, "expected_count": 6},
    }
    assert (await counter.post("/seed_session", json=seed)).json()["resources_session_id"] == "s"
    await counter.post("/increment_counter", json={"count": 1})
    assert await _reward(counter, 6) == 1.0
    await counter.post("/close_session", json={"resources_session_id": "s", "episode_id": EPISODE})
    assert await _reward(counter, 6) == 0.0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [("/seed_session", {}, "initial_count"), ("/increment_counter", {"count": "x"}, "count"), ("/verify", {}, "responses_create_params")],
)
async def test_missing_fields_are_named(counter: httpx.AsyncClient, path: str, body: dict[str, Any], field: str) -> None:
    answer = await counter.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", field]


async def test_verify_needs_the_expected_count(counter: httpx.AsyncClient) -> None:
    body = _verify(1)
    del body["expected_count"]
    answer = await counter.post("/verify", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "expected_count"]
