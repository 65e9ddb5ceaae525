"""The trajectory of a stored record: what an agent observed, under the rollout's identity, with gaps for what is not known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.driver.trajectory import add_trajectory, task_name, wants_trajectory

ROW = {"_ng_task_index": 3, "_ng_rollout_index": 0}
NOTHING = ["model_calls_unavailable", "turns_unavailable", "conversation_unavailable"]


def trajectory(record: dict[str, Any], row: dict[str, Any] = ROW) -> dict[str, Any]:
    add_trajectory(record, row, "3-0")
    found: dict[str, Any] = record["ng_trajectory"]
    return found


def codes(found: dict[str, Any]) -> list[str]:
    return [gap["code"] for gap in found["gaps"]]


def test_a_record_without_observations_gets_none() -> None:
    assert not wants_trajectory({"reward": 1.0})
    assert wants_trajectory({"ng_agent_observations": None})


def test_observations_that_are_null_give_an_empty_one_at_the_records_end() -> None:
    record: dict[str, Any] = {"ng_agent_observations": None, "reward": 1.0}
    found = trajectory(record)
    assert list(record) == ["ng_agent_observations", "reward", "ng_trajectory"]
    assert list(found) == ["schema_version", "task_id", "rollout_id", "invocations", "turns", "model_calls", "tool_calls", "gaps"]
    assert (found["schema_version"], found["task_id"], found["rollout_id"]) == ("1.0", "3", "3-0")
    assert found["gaps"] == [{"code": code, "invocation_id": None, "detail": None} for code in NOTHING]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"problem_id": 7, "instance_id": "x"}, "7"),
        ({"task_id": None, "instance_id": "x"}, "x"),
        ({"task_id": {"taskset": "a", "task_id": "t"}}, "{'taskset': 'a', 'task_id': 't'}"),
        ({}, "3"),
    ],
)
def test_the_task_is_named_as_the_peer_names_it(row: dict[str, Any], name: str) -> None:
    assert task_name({**ROW, **row}) == name


def test_observed_invocations_and_tool_calls_are_completed_and_joined_with_what_the_tools_gave() -> None:
    conversation = [{"type": "function_call_output", "call_id": "c", "output": "cold"}]
    records = [
        {"kind": "tool_call", "invocation_id": "i", "tool_call_id": "c", "status": "completed", "tool_name": "weather"},
        {"kind": "agent_invocation", "invocation_id": "i", "conversation": conversation},
        {"kind": "sandbox", "role": "agent"},
    ]
    found = trajectory({"ng_agent_observations": {"source": "agent", "records": records, "gaps": [{"code": "seen"}]}})
    (invocation,) = found["invocations"]
    assert list(invocation)[:3] == ["kind", "invocation_id", "parent_invocation_id"]
    assert (invocation["status"], invocation["conversation"]) == ("unknown", conversation)
    (tool,) = found["tool_calls"]
    assert (tool["tool_name"], tool["status"], tool["output"], tool["duration_ms"]) == ("weather", "completed", "cold", None)
    assert codes(found) == ["seen", "model_calls_unavailable", "turns_unavailable"]


def test_an_agents_own_trajectory_keeps_its_turns_under_this_identity() -> None:
    turns = [{"invocation_id": "i", "turn_no": 2, "timestamp": 2.0}, {"invocation_id": "i", "turn_no": 1, "timestamp": 1.0}]
    found = trajectory({"ng_trajectory": {"task_id": "other", "rollout_id": "3-0", "turns": turns}})
    assert [(turn["turn_no"], turn["task_id"]) for turn in found["turns"]] == [(1, "3"), (2, "3")]
    assert codes(found) == ["producer_trajectory_identity_mismatch", "model_calls_unavailable", "conversation_unavailable"]
    assert found["gaps"][0]["detail"] == "task_id"


def test_a_producer_without_turns_has_said_so() -> None:
    found = trajectory({"ng_trajectory": {"task_id": "3", "rollout_id": "3-0"}})
    assert codes(found) == ["model_calls_unavailable", "conversation_unavailable"]


FIELDS = ["source", "records", "gaps", "turns", "kind", "invocation_id", "timestamp", "turn_no", "tool_calls", "invocations", "code"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, JSON)
def test_whatever_an_agent_writes_becomes_a_trajectory(observations: Any, own: Any) -> None:
    found = trajectory({"ng_agent_observations": observations, "ng_trajectory": own})
    assert found["rollout_id"] == "3-0"
    assert all(isinstance(found[name], list) for name in ("invocations", "turns", "model_calls", "tool_calls", "gaps"))
