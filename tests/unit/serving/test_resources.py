"""Resources servers: seeds in both forms, close, verdicts, aggregation (contract-servers 2.1, 8.18 to 8.25, 8.39 to 8.41)."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from gym_compose.serving import Call, JudgeError, ResourcesServer, ResourcesServerConfig, Verdict, VerifyRequest, tool
from gym_compose.wire.aggregation import AggregateHooks
from gym_compose.wire.episodes import SandboxAccess
from gym_compose.wire.settings import Settings

COOKIE = "Counter___counter"


class Seed(BaseModel):
    initial_count: int


class CounterVerify(VerifyRequest):
    expected_count: int
    instance_config: dict[str, Any] | None = None


class Counter(ResourcesServer):
    """State by session id."""

    config: ResourcesServerConfig
    seed_model = Seed
    verify_model = CounterVerify
    reverify_mode = "stateless"
    gate: ClassVar[asyncio.Event | None] = None

    def setup(self) -> None:
        self.counts: dict[str, int] = {}
        self.released: list[str] = []
        self.stuck = False

    async def seed(self, task: Seed, call: Call) -> SandboxAccess | None:
        if self.gate is not None:
            await self.gate.wait()
        self.counts[call.session_id] = task.initial_count
        return None

    async def release(self, session_id: str) -> None:
        if self.stuck:
            raise RuntimeError("sandbox does not answer")
        self.released.append(session_id)
        self.counts.pop(session_id, None)

    @tool
    async def increment(self, call: Call) -> dict[str, int]:
        self.counts[call.session_id] = self.counts.get(call.session_id, 0) + 1
        return {"count": self.counts[call.session_id]}

    async def verify(self, body: CounterVerify, call: Call) -> Verdict:
        if body.expected_count < 0:
            raise JudgeError("judge unreachable " + "x" * 3000)
        if body.expected_count == 99:
            raise RuntimeError("bug")
        reward = float(self.counts.get(call.session_id) == body.expected_count)
        return Verdict(reward, failure_kind=None, details={"seen": self.counts.get(call.session_id), "reward_components": {"a": 1.0}})

    def metric_hooks(self) -> AggregateHooks:
        return AggregateHooks(metrics=lambda tasks: {"pass": len(tasks)})


def typed(session: str = "s1", rollout: str = "0-0", task: str = "1", **data: Any) -> dict[str, Any]:
    return {
        "resources_session_id": session,
        "episode_id": {"rollout_id": rollout, "attempt": 0},
        "task_id": {"taskset": "t", "task_id": task},
        "task_data": data or {"initial_count": 3},
    }


def close(session: str = "s1", rollout: str = "0-0") -> dict[str, Any]:
    return {"resources_session_id": session, "episode_id": {"rollout_id": rollout, "attempt": 0}}


RESPONSE = {
    "id": "r",
    "created_at": 1,
    "model": "m",
    "object": "response",
    "output": [{"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "A", "annotations": []}]}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def row(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hi"}, "response": RESPONSE, **fields}


async def counter(deploy: Any, **kwargs: Any) -> Any:
    return await deploy(counter=("rs", Counter, {"domain": "math"}), **kwargs)


async def test_a_legacy_seed_answers_an_empty_object_and_keys_state_by_the_cookie(deploy: Any) -> None:
    servers = await counter(deploy)
    seeded = await servers.post("counter", "/seed_session", {"initial_count": 5, "responses_create_params": {"input": "x"}, "other": 1})
    assert (seeded.status_code, seeded.json()) == (200, {})
    cookies = {COOKIE: seeded.cookies[COOKIE]}
    assert (await servers.post("counter", "/increment", {}, cookies=cookies)).json() == {"count": 6}
    assert (await servers.post("counter", "/increment", {})).json() == {"count": 1}


async def test_a_seed_without_a_field_that_the_server_needs_is_422_in_both_forms(deploy: Any) -> None:
    servers = await counter(deploy)
    for body in ({"count": 1}, typed(other=1)):
        answer = await servers.post("counter", "/seed_session", body)
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == ["body", "initial_count"]


async def test_a_typed_seed_gives_its_id_back_and_a_cookie_for_it(deploy: Any) -> None:
    servers = await counter(deploy)
    seeded = await servers.post("counter", "/seed_session", typed())
    assert seeded.json() == {"resources_session_id": "s1", "resources_tools": None, "sandbox_access": None}
    cookies = {COOKIE: seeded.cookies[COOKIE]}
    assert (await servers.post("counter", "/increment", {}, cookies=cookies)).json() == {"count": 4}
    again = await servers.post("counter", "/seed_session", typed())
    assert again.json() == seeded.json()
    assert servers["counter"].counts == {"s1": 4}  # not seeded anew


@pytest.mark.parametrize(
    "change",
    [
        {"episode_id": {"rollout_id": "0-0-a2", "attempt": 0}},
        {"episode_id": {"rollout_id": "a b"}},
        {"episode_id": "0-0"},
        {"task_data": None},
        {"extra": 1},
        {"resources_session_id": ""},
    ],
)
async def test_a_malformed_typed_seed_is_422_and_no_legacy_row(deploy: Any, change: dict[str, Any]) -> None:
    servers = await counter(deploy)
    answer = await servers.post("counter", "/seed_session", {**typed(), **change})
    assert answer.status_code == 422
    assert servers["counter"].counts == {}


async def test_close_of_an_unknown_session_succeeds_twice_and_stops_a_late_seed(deploy: Any) -> None:
    servers = await counter(deploy)
    for _ in range(2):
        answer = await servers.post("counter", "/close_session", close())
        assert (answer.status_code, answer.json()) == (200, {"resources_session_id": "s1"})
    late = await servers.post("counter", "/seed_session", typed())
    assert late.status_code == 500
    assert late.json() == "ValueError(\"resources session 's1' is closed already\")"
    assert servers["counter"].counts == {}
    assert servers["counter"].released == []


async def test_close_releases_once(deploy: Any) -> None:
    servers = await counter(deploy)
    await servers.post("counter", "/seed_session", typed())
    for _ in range(2):
        assert (await servers.post("counter", "/close_session", close())).status_code == 200
    assert servers["counter"].released == ["s1"]


async def test_a_release_that_fails_can_be_asked_for_again(deploy: Any) -> None:
    servers = await counter(deploy)
    await servers.post("counter", "/seed_session", typed())
    servers["counter"].stuck = True
    assert (await servers.post("counter", "/close_session", close())).json() == "RuntimeError('sandbox does not answer')"
    servers["counter"].stuck = False
    assert (await servers.post("counter", "/close_session", close())).status_code == 200
    assert servers["counter"].released == ["s1"]


@pytest.mark.parametrize("body", [typed(rollout="9-9"), typed(task="2")])
async def test_a_session_belongs_to_one_episode(deploy: Any, body: dict[str, Any]) -> None:
    servers = await counter(deploy)
    await servers.post("counter", "/seed_session", typed())
    answer = await servers.post("counter", "/seed_session", body)
    assert answer.status_code == 500
    assert "belongs to another episode" in answer.json()
    assert (await servers.post("counter", "/close_session", close(rollout="9-9"))).status_code == 500


async def test_a_close_that_overtakes_its_seed_wins(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = await counter(deploy)
    gate = asyncio.Event()
    monkeypatch.setattr(Counter, "gate", gate)
    seed = asyncio.create_task(servers.post("counter", "/seed_session", typed()))
    while "s1" not in servers["counter"]._bound:
        await asyncio.sleep(0.01)
    assert (await servers.http.post(servers.urls["counter"] + "/close_session", json=close())).status_code == 200
    gate.set()
    assert (await seed).status_code == 500
    assert servers["counter"].counts == {}
    assert servers["counter"].released == ["s1", "s1"]


async def test_a_repeated_seed_waits_for_the_first(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = await counter(deploy)
    gate = asyncio.Event()
    monkeypatch.setattr(Counter, "gate", gate)
    seeds = [asyncio.create_task(servers.http.post(servers.urls["counter"] + "/seed_session", json=typed())) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert not any(seed.done() for seed in seeds)
    gate.set()
    assert [(await seed).status_code for seed in seeds] == [200, 200, 200]
    assert servers["counter"].counts == {"s1": 3}


async def test_the_memory_of_closed_sessions_is_bounded(deploy: Any) -> None:
    servers = await counter(deploy, settings=Settings(closed_sessions_kept=3))
    for index in range(6):
        await servers.post("counter", "/close_session", close(session=f"s{index}"))
    assert list(servers["counter"]._closed) == ["s3", "s4", "s5"]


async def test_a_verdict_echoes_declared_fields_in_the_fields_order(deploy: Any) -> None:
    servers = await counter(deploy)
    answer = await servers.post("counter", "/verify", row(expected_count=0, undeclared=1, _ng_task_index=4))
    assert answer.status_code == 200
    body = answer.json()
    assert list(body) == [
        "responses_create_params",
        "response",
        "reward",
        "mask_sample",
        "failure_kind",
        "failure_reason",
        "expected_count",
        "instance_config",
        "seen",
        "reward_components",
    ]
    assert len(body["responses_create_params"]) == 30
    assert body["response"]["output"][0]["phase"] is None
    assert (body["reward"], body["mask_sample"], body["failure_kind"]) == (0.0, False, None)


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"expected_count": None}, ["expected_count"]),
        ({"response": None}, ["response"]),
        ({"response": {**RESPONSE, "output": [{"id": "x"}]}}, ["response", "output", 0]),
        ({"response": {key: value for key, value in RESPONSE.items() if key != "tools"}}, ["response", "tools"]),
        ({"responses_create_params": {"input": "x", "unknown": 1}}, ["responses_create_params", "unknown"]),
        ({"responses_create_params": {}}, ["responses_create_params", "input"]),
    ],
)
async def test_a_verify_body_that_does_not_fit_is_422(deploy: Any, change: dict[str, Any], loc: list[Any]) -> None:
    servers = await counter(deploy)
    answer = await servers.post("counter", "/verify", {**row(expected_count=0), **change})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", *loc]


async def test_a_failing_judge_is_a_masked_answer(deploy: Any) -> None:
    servers = await counter(deploy)
    body = (await servers.post("counter", "/verify", row(expected_count=-1, instance_config={"a": 1}))).json()
    assert {key: body[key] for key in ("reward", "mask_sample", "failure_kind", "_ng_failure_class", "expected_count")} == {
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": "judge_failed",
        "_ng_failure_class": "judge_failed",
        "expected_count": -1,
    }
    assert body["instance_config"] == {"a": 1, "mask_sample": True}
    assert body["failure_reason"] == body["_ng_failure_judge_error"]
    assert len(body["failure_reason"]) == 2000
    assert body["response"]["id"] == "r"


async def test_any_other_error_of_a_verifier_is_a_500(deploy: Any) -> None:
    servers = await counter(deploy)
    assert (await servers.post("counter", "/verify", row(expected_count=99))).json() == "RuntimeError('bug')"


async def test_reverify_mode_is_a_json_string(deploy: Any) -> None:
    servers = await counter(deploy)
    assert (await servers.get("counter", "/reverify_mode")).json() == "stateless"


async def test_aggregation_over_the_wire(deploy: Any) -> None:
    servers = await counter(deploy)
    empty = await servers.post("counter", "/aggregate_metrics", {"verify_responses": []})
    assert empty.json() == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }
    one = (await servers.post("counter", "/aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})).json()
    assert (one["agent_metrics"]["std/reward"], one["agent_metrics"]["pass"]) == (0.0, 1)
    twice = await servers.post("counter", "/aggregate_metrics", {"verify_responses": [{"reward": 1.0}, {"reward": 0.0}]})
    assert twice.status_code == 500
    assert "two records" in twice.json()
    masked = await servers.post("counter", "/aggregate_metrics", {"verify_responses": [{"reward": 1.0, "mask_sample": True}]})
    assert masked.json()["key_metrics"] == {
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 1,
    }
