"""A flat row as a task: the same identity and input as collation gives it (contract-data 3.5, 1.9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gym_compose.tasks.materialize import materialize
from gym_compose.wire.flat_task import episode_of, given_id, task_id_of, task_input_of

VALUES = st.none() | st.integers(0, 9) | st.text(min_size=1, max_size=3)
ROWS = st.fixed_dictionaries(
    {"_ng_task_index": st.integers(0, 99)},
    optional={
        **dict.fromkeys(("task_id", "problem_id", "instance_id", "task_source", "answer"), VALUES),
        **{key: st.just({"name": "a"}) for key in ("agent_ref", "skills_ref", "_ng_other")},
    },
)


@given(row=ROWS)
def test_a_row_has_the_identity_that_collation_gives_it(row: dict[str, Any]) -> None:
    made = materialize(row, "ts", given_id(row) or "")
    assert task_id_of(row, "ts").model_dump() == made["task_id"]
    assert task_input_of(row) == made["task_input"]


@pytest.mark.parametrize("row", [{}, {"task_id": None, "answer": 1}])
def test_a_row_that_brings_no_id(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="none of task_id, problem_id, instance_id, _ng_task_index"):
        task_id_of(row, "ts")


def test_an_empty_text_is_no_id() -> None:
    with pytest.raises(ValueError, match="problem_id is an empty text"):
        task_id_of({"problem_id": "", "_ng_task_index": 0}, "ts")


@pytest.mark.parametrize("row", [{"task_input": {}, "task_id": "1"}, {"task_id": {"taskset": "t", "task_id": "1"}}])
def test_a_materialized_row_is_none(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="materialized already"):
        task_id_of(row, "ts")


@pytest.mark.parametrize("index", [None, -1, True, "1"])
def test_without_an_id_the_index_must_be_one(index: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        task_id_of({"_ng_task_index": index}, "ts")


@pytest.mark.parametrize(
    ("row", "rollout", "attempt"),
    [
        ({"_ng_task_index": 2, "_ng_rollout_index": 0}, "2-0", 0),
        ({"_ng_task_index": 2, "_ng_rollout_index": 0, "_ng_attempt_index": 3}, "2-0", 3),
        ({"_ng_rollout_id": "x-a0", "_ng_attempt_index": 1}, "x-a0", 1),
    ],
)
def test_the_episode_of_a_row(row: dict[str, Any], rollout: str, attempt: int) -> None:
    """Case 24: the attempt stands beside the rollout id, never in it."""
    assert episode_of(row).model_dump() == {"rollout_id": rollout, "attempt": attempt}


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({}, KeyError),
        ({"_ng_task_index": 1}, KeyError),
        ({"_ng_rollout_id": "r", "_ng_attempt_index": True}, ValueError),
        ({"_ng_rollout_id": "r", "_ng_attempt_index": -1}, ValueError),
        ({"_ng_rollout_id": "a b"}, ValueError),
        ({"_ng_rollout_id": "run-a1"}, ValidationError),
    ],
)
def test_a_row_without_an_episode(row: dict[str, Any], error: type[Exception]) -> None:
    """Cases 22 and 86."""
    with pytest.raises(error):
        episode_of(row)
