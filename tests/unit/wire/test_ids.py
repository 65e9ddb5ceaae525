"""Identities of episodes and tasks (contract-data 1.9; cases 23, 24)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gym_compose.wire.ids import EpisodeId, TaskId


@pytest.mark.parametrize("text", ["x-a0", "0-1", "run-1.2_b", "a", "x-ab", "x-a01", "a2"])
def test_a_rollout_id(text: str) -> None:
    assert EpisodeId(rollout_id=text).capture_key == text


@pytest.mark.parametrize("text", ["0-1-a2", "run-a1", "x-a10", "x\n", "a b", "", "-x", ".x", "ä", "a/b"])
def test_no_rollout_id(text: str) -> None:
    with pytest.raises(ValidationError):
        EpisodeId(rollout_id=text)


@pytest.mark.parametrize("attempt", [-1, True, "1", 1.0, None])
def test_no_attempt(attempt: Any) -> None:
    with pytest.raises(ValidationError):
        EpisodeId.model_validate({"rollout_id": "2-0", "attempt": attempt})


def test_the_first_attempt_is_known_by_its_rollout_and_later_ones_by_their_number_too() -> None:
    assert EpisodeId.model_validate({"rollout_id": "2-0"}).capture_key == "2-0"
    assert EpisodeId(rollout_id="2-0", attempt=1).capture_key == "2-0-a1"


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True), st.integers(0, 20), st.integers(0, 20))
def test_no_two_episodes_have_one_capture_key(rollout: str, attempt: int, other: int) -> None:
    """That is what the reserved ending is for."""
    try:
        first = EpisodeId(rollout_id=rollout, attempt=attempt)
    except ValidationError:
        return
    second = EpisodeId(rollout_id=rollout, attempt=other)
    assert (first.capture_key == second.capture_key) == (attempt == other)
    if attempt:
        with pytest.raises(ValidationError):
            EpisodeId(rollout_id=first.capture_key)


@pytest.mark.parametrize(
    "fields", [{"taskset": "", "task_id": "1"}, {"taskset": "t", "task_id": ""}, {"taskset": "t"}, {"taskset": 1, "task_id": "1"}]
)
def test_no_task_id(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TaskId.model_validate(fields)
    assert TaskId(taskset="env:t", task_id="1").task_id == "1"
