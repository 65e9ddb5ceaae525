"""Flat rows and episode requests in, flat rows out (contract-data 2.6, case 73)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gym_compose.testing import AgentPeer, PeerAnswer, ResourcesPeer, Served, episode

DIRECTORY = "environment_servers/single_agent_turn_legacy"
BLOCK = {
    "resources_server": {"type": "resources_servers", "name": "rs"},
    "agent_server": {"type": "responses_api_agents", "name": "ag"},
    "cleanup_timeout_seconds": 5,
}
PARAMS = {"input": "2+2"}
ROW = {"responses_create_params": PARAMS, "answer": "4", "_ng_task_index": 3, "_ng_rollout_index": 1}
TYPED = {"responses_create_params": PARAMS, "task_data": {"answer": "4"}}


@pytest.fixture
def app(load_app: Callable[[str], ModuleType]) -> Any:
    return load_app(DIRECTORY).SingleAgentTurnLegacyEnvironmentServer


def peers(verdict: Any = None) -> dict[str, Any]:
    return {"rs": ResourcesPeer(verdict or {"reward": 1.0, "score": 7}), "ag": AgentPeer("4")}


def ask(app: Any, body: Any, played: dict[str, Any], **limits: Any) -> Any:
    with Served(app, {**BLOCK, **limits}, instance="env", peers=played) as served:
        return served.post("/run", body)


@pytest.mark.parametrize("body", [ROW, episode(TYPED)], ids=["flat row", "episode request"])
def test_a_success_is_the_verdict_with_its_agent_and_nothing_of_the_protocol(app: Any, body: Any) -> None:
    played = peers()
    answer = ask(app, body, played)
    assert answer.status_code == 200
    assert answer.json() == {"reward": 1.0, "score": 7, "agent_ref": {"name": "ag"}}
    assert played["rs"].paths() == ["/seed_session", "/verify", "/close_session"]
    assert (played["rs"].closed, played["ag"].closed) == (1, 1)


def test_observations_stay_when_the_agent_reported_some(app: Any) -> None:
    played = peers()
    played["ag"].answers["/v1/agent_sessions/close"] = lambda body: {
        "agent_session_id": body["agent_session_id"],
        "agent_observations": {"turns": 1},
    }
    assert ask(app, ROW, played).json()["ng_agent_observations"] == {"turns": 1}


@pytest.mark.parametrize(
    ("change", "task"),
    [
        ({}, {"taskset": "rs", "task_id": "3"}),
        ({"task_source": "ag"}, {"taskset": "ag", "task_id": "3"}),
        ({"task_source": "env", "task_id": 5}, {"taskset": "env", "task_id": "5"}),
        ({"problem_id": "p", "instance_id": "i"}, {"taskset": "rs", "task_id": "p"}),
        ({"task_id": None, "instance_id": "i"}, {"taskset": "rs", "task_id": "i"}),
    ],
)
def test_the_identity_of_the_task(app: Any, change: dict[str, Any], task: dict[str, str]) -> None:
    played = peers()
    assert ask(app, {**ROW, **change}, played).status_code == 200
    assert played["rs"].calls[0].body["task_id"] == task


@pytest.mark.parametrize(
    ("change", "rollout"),
    [
        ({}, {"rollout_id": "3-1", "attempt": 0}),
        ({"_ng_attempt_index": 2}, {"rollout_id": "3-1", "attempt": 2}),
        ({"_ng_rollout_id": "mine"}, {"rollout_id": "mine", "attempt": 0}),
    ],
)
def test_the_identity_of_the_episode(app: Any, change: dict[str, Any], rollout: dict[str, Any]) -> None:
    played = peers()
    assert ask(app, {**ROW, **change}, played).status_code == 200
    assert played["rs"].calls[0].body["episode_id"] == rollout


def test_what_routes_a_row_is_no_task_data(app: Any) -> None:
    played = peers()
    ask(app, {**ROW, "agent_ref": {"name": "ag"}, "task_source": "rs", "skills_ref": {}, "_ng_other": 1}, played)
    assert played["rs"].calls[0].body["task_data"] == {"answer": "4"}
    assert played["rs"].calls[1].body.keys() == {"answer", "responses_create_params", "response"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task_source": "another"}, "task_source 'another' of the row is none of rs, ag, env"),
        ({"task_source": ""}, "task_source ''"),
        ({"task_source": None}, "task_source None"),
        ({"agent_ref": {"name": "another"}}, "agent_ref 'another' of the row is not ag"),
        ({"agent_ref": "ag2"}, "agent_ref 'ag2'"),
        ({"_ng_attempt_index": True}, "_ng_attempt_index is a whole number"),
        ({"_ng_rollout_index": None}, "KeyError"),
        ({"_ng_task_index": None, "_ng_rollout_id": "r"}, "_ng_task_index is a whole number of 0 or more, not None"),
        ({"task_input": {}}, "materialized already"),
    ],
)
def test_a_row_of_another_instance_or_without_identity_is_a_500(app: Any, change: dict[str, Any], says: str) -> None:
    """Case 73."""
    played = peers()
    answer = ask(app, {**ROW, **change}, played)
    assert answer.status_code == 500
    assert says in answer.json()
    assert played["rs"].calls == played["ag"].calls == []


@pytest.mark.parametrize(
    "body",
    [
        {**ROW, "_ng_rollout_id": "run-a1"},
        {key: value for key, value in ROW.items() if key != "responses_create_params"},
        {**ROW, "responses_create_params": {"inptu": 1}},
        {**ROW, "task_data": {"answer": "5"}},
        episode({"answer": 4}),
        [ROW],
    ],
)
def test_fields_that_do_not_fit_are_a_422(app: Any, body: Any) -> None:
    played = peers()
    assert ask(app, body, played).status_code == 422
    assert played["rs"].calls == []


def test_a_failure_is_a_flat_row_with_its_stage(app: Any) -> None:
    played = peers()
    played["rs"].answers["/seed_session"] = PeerAnswer({"detail": "full"}, 503)
    answer = ask(app, ROW, played)
    assert answer.status_code == 200
    row = answer.json()
    assert "answered 503" in row.pop("_ng_failure_message")
    assert row == {
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": False,
        "_ng_failure_stage": "seed",
        "agent_ref": {"name": "ag"},
    }


def test_a_failure_after_the_agents_answer_keeps_it(app: Any) -> None:
    row = ask(app, ROW, peers({"no": "reward"})).json()
    assert (row["_ng_failure_stage"], row["_ng_failure_terminal"]) == ("verification", True)
    assert row["_ng_failure_partial_response"]["id"] == "resp_test"


def test_a_failure_without_a_stage_says_null(app: Any) -> None:
    async def hang(_: Any) -> Any:
        await asyncio.sleep(30)

    played = peers()
    played["ag"].answers["/v1/responses"] = hang
    row = ask(app, ROW, played, default_episode_timeout_seconds=0.1).json()
    assert row == {
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": False,
        "_ng_failure_message": "Episode timed out",
        "_ng_failure_stage": None,
        "agent_ref": {"name": "ag"},
    }
    assert (played["rs"].closed, played["ag"].closed) == (1, 1)


def test_metrics_go_to_the_resources_server(app: Any) -> None:
    played = peers()
    played["rs"].answers["/aggregate_metrics"] = {"agent_metrics": {"mean/reward": 1.0}}
    with Served(app, BLOCK, instance="env", peers=played) as served:
        assert served.post("/aggregate_metrics", {"verify_responses": []}).json() == {"agent_metrics": {"mean/reward": 1.0}}
