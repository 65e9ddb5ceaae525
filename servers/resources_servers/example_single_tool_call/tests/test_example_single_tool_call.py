from __future__ import annotations

from typing import Any

import httpx
import pytest

DIRECTORY = "resources_servers/example_single_tool_call"
EPISODE = {"rollout_id": "0-0", "attempt": 0}
TASK = {"taskset": "weather", "task_id": "0"}
SEED = {"resources_session_id": "s1", "episode_id": EPISODE, "task_id": TASK, "task_data": {}}
CLOSE = {"resources_session_id": "s1", "episode_id": EPISODE}


@pytest.fixture
def weather(serve: Any) -> httpx.AsyncClient:
    client: httpx.AsyncClient = serve(DIRECTORY, "SimpleWeatherResourcesServer", {"domain": "agent"}, instance="weather")
    return client


def _verify(*output: dict[str, Any]) -> dict[str, Any]:
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {"responses_create_params": {"input": "q"}, "response": {**response, "output": list(output)}, "verifier_metadata": {"id": 1}}


def _call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"}


async def test_the_tool_tells_the_weather(weather: httpx.AsyncClient) -> None:
    answer = await weather.post("/get_weather", json={"city": "Turin"})
    assert answer.content == b'{"city":"Turin","weather_description":"The weather in Turin is cold."}'
    assert list(answer.cookies) == ["SimpleWeatherResourcesServer___weather"]


@pytest.mark.parametrize(("body", "field"), [({}, "city"), ({"city": 5}, "city")])
async def test_wrong_arguments_are_a_422_that_names_them(weather: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    answer = await weather.post("/get_weather", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", field]


@pytest.mark.parametrize(
    ("output", "reward"),
    [([], 0.0), ([_call("get_weather")], 1.0), ([_call("other")], 0.0), ([_call("other"), _call("get_weather")], 1.0)],
)
async def test_the_reward_asks_whether_the_tool_was_called(weather: httpx.AsyncClient, output: list[Any], reward: float) -> None:
    verdict = (await weather.post("/verify", json=_verify(*output))).json()
    assert list(verdict) == ["responses_create_params", "response", "reward", "mask_sample", "failure_kind", "failure_reason"]
    assert verdict["reward"] == reward


async def test_a_legacy_seed_is_any_row(weather: httpx.AsyncClient) -> None:
    answer = await weather.post("/seed_session", json={"responses_create_params": {"input": "q"}})
    assert (answer.status_code, answer.json()) == (200, {})


async def test_a_typed_session_belongs_to_one_episode_and_ends_for_good(weather: httpx.AsyncClient) -> None:
    seeded = await weather.post("/seed_session", json=SEED)
    assert seeded.json()["resources_session_id"] == "s1"
    assert (await weather.post("/seed_session", json=SEED)).status_code == 200
    other = {**SEED, "episode_id": {"rollout_id": "0-1", "attempt": 0}}
    assert (await weather.post("/seed_session", json=other)).status_code == 500
    for _ in range(2):
        assert (await weather.post("/close_session", json=CLOSE)).json() == {"resources_session_id": "s1"}
    late = await weather.post("/seed_session", json=SEED)
    assert late.status_code == 500
    assert late.json().startswith("ValueError(")
    assert "set-cookie" not in late.headers


async def test_closing_an_unknown_session_succeeds_and_stops_a_late_seed(weather: httpx.AsyncClient) -> None:
    assert (await weather.post("/close_session", json=CLOSE)).status_code == 200
    assert (await weather.post("/seed_session", json=SEED)).status_code == 500


async def test_the_rollout_prefix_changes_nothing(weather: httpx.AsyncClient) -> None:
    answer = await weather.post("/ng-rollout/0-0/get_weather", json={"city": "x"})
    assert answer.json()["city"] == "x"


async def test_unknown_tools_are_a_404(weather: httpx.AsyncClient) -> None:
    assert (await weather.post("/get_time", json={})).json() == {"detail": "Not Found"}
