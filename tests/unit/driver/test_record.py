"""What is sent and what is stored (contract-data 1.9, 1.10; cases 22, 24, 26, 86), and the peer's own records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.driver.aggregate import labels_of
from gym_compose.driver.metrics_request import stripped
from gym_compose.driver.record import identity_of, outcome_of_error, outcome_of_reply, request_body
from gym_compose.serving.client import PeerTimeout, Reply

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "peer_run"
MAT: dict[str, Any] = {"task_id": {"taskset": "t", "task_id": "x"}, "task_input": {"q": 1}, "_ng_task_index": 2, "_ng_rollout_index": 0}


def reply(document: Any, status: int = 200) -> Reply:
    return Reply(status=status, headers=(), body=orjson.dumps(document), method="POST", url="http://h/run")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"rollout_id": "2-0", "attempt": 0}),
        ({"_ng_attempt_index": 1}, {"rollout_id": "2-0", "attempt": 1}),
        ({"_ng_rollout_id": "rid"}, {"rollout_id": "rid", "attempt": 0}),
        ({"_ng_rollout_id": "run-a1"}, {"rollout_id": "run-a1", "attempt": 0}),
    ],
)
def test_a_materialized_row_is_sent_as_an_episode(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    body = orjson.loads(request_body({**MAT, "task_source": "rs", "extra": 1, **changes}, b""))
    assert body == {"episode_id": expected, "task": {"task_id": MAT["task_id"], "task_input": {"q": 1}}}


@pytest.mark.parametrize(
    "changes",
    [{"_ng_attempt_index": True}, {"_ng_attempt_index": -1}, {"_ng_attempt_index": "1"}]
    + [{"_ng_rollout_id": value} for value in ("", "x\n", "a b", "-x", 3)],
)
def test_an_attempt_or_id_that_cannot_be_sent(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="_ng_"):
        request_body({**MAT, **changes}, b"")


def test_a_flat_row_is_sent_as_its_line() -> None:
    line = b'{"responses_create_params":{},"x":[1.50]}\n'
    assert request_body(orjson.loads(line), line) == line[:-1]


def test_all_collector_keys_are_appended_in_order_and_an_agent_ref_of_the_server_keeps_its_place() -> None:
    row = {
        "agent_ref": {"name": "a", "type": "t"},
        "task_source": "rs",
        "skills_ref": {"hash": "h"},
        "_ng_task_index": 1,
        "_ng_rollout_index": 2,
        "_ng_attempt_index": 3,
        "_ng_rollout_id": "r",
        "responses_create_params": {},
    }
    outcome = outcome_of_reply(identity_of(row), reply({"reward": True, "agent_ref": {"name": "z"}, "y": None}), "e", "impl")
    assert list(outcome.record.items()) == [
        ("reward", True),
        ("agent_ref", {"name": "a", "type": "t"}),
        ("y", None),
        ("_ng_task_index", 1),
        ("_ng_rollout_index", 2),
        ("task_source", "rs"),
        ("skills_ref", {"hash": "h"}),
        ("_ng_attempt_index", 3),
        ("_ng_rollout_id", "r"),
        ("_ng_environment_server", "e"),
        ("_ng_result_type", "impl"),
    ]
    assert outcome.reward == 1.0


def test_an_agents_answer_that_echoes_identities_is_left_alone() -> None:
    answer = {"episode_id": {}, "task_id": {}, "result": {"reward": 1}, "reward": 0.5}
    flat = {"responses_create_params": {}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    assert outcome_of_reply(flat, reply(answer), "e", "i").record["result"] == {"reward": 1}


def test_an_episode_answer_without_result_and_failure_is_stored_as_it_is() -> None:
    outcome = outcome_of_reply(MAT, reply({"episode_id": {}, "task_id": {}, "reward": 1}), "e", "i")
    assert outcome.kind == "completed"
    assert "_ng_task_id" not in outcome.record


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_is_no_rollout_whatever_its_body_says(status: int) -> None:
    outcome = outcome_of_reply(MAT, reply({"reward": 1.0}, status), "e", "i")
    assert (outcome.kind, outcome.record["_ng_failure_http_status"]) == ("failed", status)


def test_a_call_without_an_answer_names_the_kind() -> None:
    outcome = outcome_of_error(MAT, PeerTimeout("late", method="POST", url="u"), "e", "i")
    assert outcome.kind == "failed"
    assert outcome.record["_ng_failure_class"] == "agent_request_failed"
    assert outcome.record["_ng_failure_type"] == "PeerTimeout"
    assert outcome.record["_ng_failure_http_status"] is None


@pytest.mark.parametrize(
    ("agents", "labels"),
    [
        ({"e1": "a", "e2": "a", "e3": "b", "e4": None, "b": "e4"}, {name: name for name in ("e1", "e2", "e3", "e4", "b")}),
        ({"e1": "a", "e2": None}, {"e1": "a", "e2": "e2"}),
        ({"e1": "a", "e2": "b"}, {"e1": "a", "e2": "b"}),
        ({"a": "a"}, {"a": "a"}),
        ({}, {}),
    ],
)
def test_labels_are_unique(agents: dict[str, str | None], labels: dict[str, str]) -> None:
    assert labels_of(agents) == labels


@pytest.mark.parametrize(
    ("response", "kept"),
    [
        ({"usage": {"x": 1}, "incomplete_details": None, "output": []}, {"usage": {"x": 1}}),
        ({"usage": {"x": 1}, "incomplete_details": {"reason": "r"}}, {"usage": {"x": 1}, "incomplete_details": {"reason": "r"}}),
        ({"output": []}, None),
        (None, None),
        ("text", None),
    ],
)
def test_heavy_fields_are_not_sent_for_aggregation(response: Any, kept: Any) -> None:
    record = {"reward": 1, "responses_create_params": {}, "response": response, "ng_trajectory": {}, "ng_agent_observations": None, "k": 1}
    assert stripped(record) == {"reward": 1, "k": 1, **({} if kept is None else {"response": kept})}


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden data is not here")
@pytest.mark.parametrize("case", ["example_single_tool_call", "example_single_tool_call_single_agent_turn"])
def test_a_peers_answer_becomes_the_peers_record_key_for_key(case: str) -> None:
    materialized = {
        (row["_ng_task_index"], row["_ng_rollout_index"]): row
        for row in map(orjson.loads, (GOLDEN / case / "rollouts_materialized_inputs.jsonl").read_bytes().splitlines())
    }
    ours = {"_ng_task_index", "_ng_rollout_index", "_ng_environment_server", "_ng_result_type"}
    for record in map(orjson.loads, (GOLDEN / case / "rollouts.jsonl").read_bytes().splitlines()):
        row = materialized[record["_ng_task_index"], record["_ng_rollout_index"]]
        # The relay's agent_ref comes from the row, the adapter's stands in the answer itself, before the indices.
        own = case.endswith("turn")
        answer = {key: value for key, value in record.items() if key not in ours and (own or key != "agent_ref")}
        outcome = outcome_of_reply(identity_of(row), reply(answer), record["_ng_environment_server"], record["_ng_result_type"])
        assert list(outcome.record.items()) == list(record.items())
