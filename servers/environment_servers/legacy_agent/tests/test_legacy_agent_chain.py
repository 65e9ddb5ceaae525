"""The walk of the contract over real processes: the driver's rows in, the peer's own records out, byte for byte but for ids and times."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.serving.client import HttpClient

GOLDEN = Path(__file__).resolve().parents[5] / "shared" / "golden" / "peer_run" / "example_single_tool_call"
COLLECTOR_KEYS = ("_ng_task_index", "_ng_rollout_index", "agent_ref", "_ng_environment_server", "_ng_result_type")
KEY = "chain-test-key-0123456789"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden run at {GOLDEN}")]

RESOURCES = {"type": "resources_servers", "name": "example_single_tool_call"}
AGENT_NAME = "example_single_tool_call_simple_agent"
AGENT = {"type": "responses_api_agents", "name": AGENT_NAME}
MODEL = {"type": "responses_api_models", "name": "policy_model"}


def _blocks(base_url: str, environment: dict[str, Any], **model: Any) -> dict[str, Any]:
    endpoint = {"openai_base_url": base_url, "openai_api_key": KEY, "openai_model": "mock", **model}
    return {
        "example_single_tool_call": {"resources_servers": {"example_single_tool_call": {"domain": "agent"}}},
        "example_single_tool_call_simple_agent": {
            "responses_api_agents": {"simple_agent": {"resources_server": RESOURCES, "model_server": MODEL, "datasets": []}}
        },
        "environment": {"environment_servers": environment},
        "policy_model": {"responses_api_models": {"openai_model": endpoint}},
    }


LEGACY: dict[str, Any] = {"legacy_agent": {"agent_server": AGENT}}
TURN: dict[str, Any] = {
    "single_agent_turn": {
        "resources_server": RESOURCES,
        "agent_server": AGENT,
        "resources_tool_transports": ["direct_http"],
        "cleanup_timeout_seconds": 180,
    }
}


def _golden(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (GOLDEN / name).read_bytes().splitlines()]


def _comparable(record: dict[str, Any]) -> bytes:
    """The record's bytes without the collector's keys, the mock's running numbers and the time."""
    kept = {key: value for key, value in record.items() if key not in COLLECTOR_KEYS}
    text = re.sub(rb'"(resp|msg|fc|call)_\d+"', rb'"\1_0"', orjson.dumps(kept))
    return re.sub(rb'"created_at":[0-9.]+', b'"created_at":0', text)


async def _post_all(url: str, bodies: list[Any]) -> list[Any]:
    async with HttpClient() as http:
        replies = await asyncio.gather(*(http.request("POST", url, json=body) for body in bodies))
    return [reply.raise_for_status().json() for reply in replies]


def _key(row: dict[str, Any]) -> tuple[int, int]:
    return row["_ng_task_index"], row["_ng_rollout_index"]


async def test_a_rollout_through_the_relay_is_the_peers_record(servers: Any, mock_endpoint: str) -> None:
    servers.start(_blocks(mock_endpoint, LEGACY))
    rows = sorted(_golden("rollouts_materialized_inputs.jsonl"), key=_key)
    records = await _post_all(servers.url("environment") + "/run", rows)
    expected = sorted(_golden("rollouts.jsonl"), key=_key)
    assert [_comparable(record) for record in records] == [_comparable(record) for record in expected]
    # What a rollout leaves in the log of any server: not the key, and no error.
    for instance in servers.processes:
        assert KEY not in servers.log(instance)
        assert "Traceback" not in servers.log(instance)


async def test_a_native_episode_gives_the_same_verdict_and_its_observations(servers: Any, mock_endpoint: str) -> None:
    servers.start(_blocks(mock_endpoint, TURN))
    rows = sorted(_golden("rollouts_materialized_inputs.jsonl"), key=_key)
    bodies: list[dict[str, Any]] = [
        {
            "episode_id": {"rollout_id": f"{task}-{rollout}", "attempt": 0},
            "task": {
                "task_id": {"taskset": "weather", "task_id": str(task)},
                "task_input": {
                    "responses_create_params": row["responses_create_params"],
                    "task_data": {"verifier_metadata": row["verifier_metadata"]},
                },
            },
        }
        for row in rows
        for task, rollout in (_key(row),)
    ]
    answers = await _post_all(servers.url("environment") + "/run", bodies)
    assert [(answer["episode_id"], answer["task_id"]) for answer in answers] == [
        (body["episode_id"], body["task"]["task_id"]) for body in bodies
    ]
    expected = sorted(_golden("rollouts.jsonl"), key=_key)
    for answer, record in zip(answers, expected, strict=True):
        assert list(answer) == ["episode_id", "task_id", "result", "failure"]
        assert answer["failure"] is None
        assert list(answer["result"])[-1] == "ng_agent_observations"
        assert answer["result"].pop("ng_agent_observations") is None
        assert _comparable(answer["result"]) == _comparable(record)


@pytest.mark.parametrize("environment", [LEGACY, TURN], ids=["legacy_agent", "single_agent_turn"])
async def test_metrics_reach_the_resources_server(environment: dict[str, Any], servers: Any, mock_endpoint: str) -> None:
    servers.start(_blocks(mock_endpoint, environment))
    records = _golden("rollouts.jsonl")
    (metrics,) = await _post_all(servers.url("environment") + "/aggregate_metrics", [{"verify_responses": records}])
    expected = orjson.loads((GOLDEN / "rollouts_aggregate_metrics.json").read_bytes())[0]["key_metrics"]
    assert metrics["key_metrics"] == expected


async def test_a_chat_endpoint_gives_the_same_rollout(servers: Any, mock_endpoint: str) -> None:
    servers.start(_blocks(mock_endpoint, LEGACY, upstream_api="chat_completions"))
    row = _golden("rollouts_materialized_inputs.jsonl")[0]
    (record,) = await _post_all(servers.url("environment") + "/run", [row])
    assert record["reward"] == 1.0
    assert [item["type"] for item in record["response"]["output"]] == ["function_call", "function_call_output", "message"]
    assert record["response"]["usage"]["total_tokens"] == 30


async def test_the_relay_passes_status_body_and_cookies_through(servers: Any, mock_endpoint: str) -> None:
    servers.start(_blocks(mock_endpoint, LEGACY))
    async with HttpClient() as http:
        bad = {"responses_create_params": {"input": "q", "unknown": 1}}
        relayed = await http.request("POST", servers.url("environment") + "/run", json=bad)
        direct = await http.request("POST", servers.url(AGENT_NAME) + "/run", json=bad)
        row = _golden("rollouts_materialized_inputs.jsonl")[0]
        good = await http.request("POST", servers.url("environment") + "/run", json=row)
        health = await http.request("GET", servers.url("environment") + "/health")
    assert relayed.status == direct.status == 422
    assert relayed.body == direct.body
    assert list(good.cookies) == ["SimpleAgent___example_single_tool_call_simple_agent"]
    assert health.cookies == {}


async def test_native_servers_are_small_when_idle(servers: Any, mock_endpoint: str) -> None:
    servers.start(_blocks(mock_endpoint, LEGACY))
    resident = {instance: servers.resident_megabytes(instance) for instance in servers.processes}
    assert max(resident.values()) <= 70, resident
