"""The quickstart's four servers over real processes, with the demo's data: every record, at any concurrency."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gym_compose.serving.client import HttpClient

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

ROOT = Path(__file__).resolve().parents[4]
TYPES = ("resources_servers", "responses_api_agents", "responses_api_models", "environment_servers")
ENVIRONMENT = "reasoning_gym_environment"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    command = [sys.executable, str(ROOT / "servers/resources_servers/reasoning_gym/prepare.py"), "--demo", "--output", str(directory)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=120)
    return directory


def _blocks(name: str, data: Path) -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "configs" / name).read_text())
    blocks = {instance: block for instance, block in config.items() if isinstance(block, dict) and next(iter(block)) in TYPES}
    blocks["policy_model"]["responses_api_models"]["scripted_model"]["answers"]["jsonl"] = str(data / "answers.jsonl")
    return blocks


def _rows(data: Path, suffix: str = "") -> list[dict[str, Any]]:
    paths = [data / f"{family}{suffix}.jsonl" for family in ("chain_sum", "letter_counting")]
    return [orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()]


async def _post_all(url: str, bodies: list[Any], concurrency: int) -> list[Any]:
    slots = asyncio.Semaphore(concurrency)
    async with HttpClient() as http:

        async def one(body: Any) -> Any:
            async with slots:
                return (await http.request("POST", url, json=body)).raise_for_status().json()

        return await asyncio.gather(*(one(body) for body in bodies))


async def test_the_demo_gives_the_same_records_at_any_concurrency(servers: Any, data: Path) -> None:
    servers.start(_blocks("quickstart.yaml", data))
    resident = {instance: servers.resident_megabytes(instance) for instance in servers.processes}
    assert resident.pop("reasoning_gym") <= 150
    assert max(resident.values()) <= 70, resident
    bodies = [
        {"episode_id": {"rollout_id": f"{task}-{repeat}", "attempt": 0}, "task": row}
        for task, row in enumerate(_rows(data))
        for repeat in range(2)
    ]
    url = servers.url(ENVIRONMENT) + "/run"
    alone = await _post_all(url, bodies, 1)
    crowd = await _post_all(url, bodies[::-1], 64)
    assert crowd[::-1] == alone

    rewards = [answer["result"]["reward"] for answer in alone]
    assert {answer["result"]["task_name"] for answer in alone} == {"chain_sum", "letter_counting"}
    assert set(rewards) == {0.0, 1.0}
    assert abs(sum(rewards) - 0.7 * 200) <= 3 * math.sqrt(200 * 0.7 * 0.3)
    outcomes = [answer["result"]["response"]["metadata"]["scripted_outcome"] for answer in alone]
    assert outcomes == ["right" if reward else "wrong" for reward in rewards]
    repeats = list(zip(rewards[::2], rewards[1::2], strict=True))
    assert sum(first != second for first, second in repeats) >= 20


async def test_the_same_tasks_as_flat_rows_through_the_relay(servers: Any, data: Path) -> None:
    servers.start(_blocks("quickstart_legacy.yaml", data))
    bodies = []
    for task, row in enumerate(_rows(data, "_flat")):
        for repeat in range(2):
            params = {**row["responses_create_params"], "metadata": {"extra_body": orjson.dumps({"seed": repeat}).decode()}}
            bodies.append({**row, "responses_create_params": params, "_ng_task_index": task, "_ng_rollout_index": repeat})
    url = servers.url(ENVIRONMENT) + "/run"
    alone = await _post_all(url, bodies, 1)
    assert await _post_all(url, bodies, 64) == alone
    rewards = [record["reward"] for record in alone]
    assert abs(sum(rewards) - 0.7 * 200) <= 3 * math.sqrt(200 * 0.7 * 0.3)
    assert any(first != second for first, second in zip(rewards[::2], rewards[1::2], strict=True))


async def test_an_unknown_prompt_is_a_failure_that_quotes_it(servers: Any, data: Path) -> None:
    servers.start(_blocks("quickstart.yaml", data))
    row = _rows(data)[0]
    row["task_input"]["responses_create_params"]["input"] = "a prompt that nobody wrote"
    body = {"episode_id": {"rollout_id": "0-0", "attempt": 0}, "task": row}
    (answer,) = await _post_all(servers.url(ENVIRONMENT) + "/run", [body], 1)
    assert answer["result"] is None
    assert answer["failure"]["stage"] == "agent"
    assert "a prompt that nobody wrote" in answer["failure"]["failure_reason"]


async def test_a_flat_row_and_a_bad_task_are_a_422(servers: Any, data: Path) -> None:
    servers.start(_blocks("quickstart.yaml", data))
    row = _rows(data)[0]
    async with HttpClient() as http:
        for body in (
            _rows(data, "_flat")[0],
            {"episode_id": {"rollout_id": "0-0-a2"}, "task": row},
            {"episode_id": {"rollout_id": "0-0"}, "task": {**row, "task_input": None}},
            {"episode_id": {"rollout_id": "0-0"}, "task": {**row, "task_input": {**row["task_input"], "answer": "another"}}},
        ):
            reply = await http.request("POST", servers.url(ENVIRONMENT) + "/run", json=body)
            assert reply.status == 422, reply.text
