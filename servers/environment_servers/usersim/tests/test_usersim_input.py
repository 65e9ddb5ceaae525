from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from usersim_input import UserSimInput

SYSTEM = {"role": "system", "content": "help"}
USER = {"instructions": "be Ann"}


def read(**fields: Any) -> UserSimInput:
    row: dict[str, Any] = {"responses_create_params": {"input": [SYSTEM]}, "user": USER, "expected": {}, **fields}
    return UserSimInput.model_validate(row)


def test_the_flat_fields_are_the_tasks_data_and_the_plan_is_read_from_them() -> None:
    found = read(max_turns=3, end_tools=["bye"], task_id="t", role_request_params={"user": {"temperature": 1}})
    assert found.task_data == {
        "user": USER,
        "expected": {},
        "max_turns": 3,
        "end_tools": ["bye"],
        "task_id": "t",
        "role_request_params": {"user": {"temperature": 1}},
    }
    assert (found.plan.user.instructions, found.plan.user.opening) == ("be Ann", None)
    assert (found.plan.max_turns, found.plan.end_tools) == (3, ("bye",))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"user": {"instructions": ""}}, r"task_data\.user\.instructions"),
        ({"user": {"instructions": "x", "mood": "bad"}}, r"task_data\.user\.mood"),
        ({"user": {"instructions": "x", "opening": ""}}, r"task_data\.user\.opening"),
        ({"max_turns": 0}, r"task_data\.max_turns"),
        ({"assistant_stop_words": [" "]}, "not blank"),
        ({"role_request_params": {"judge": {}}}, r"role_request_params\.judge"),
        ({"role_request_params": {"user": {"temprature": 1}}}, r"user\.temprature"),
        ({"role_request_params": {"user": {"input": []}}}, r"user\.input cannot be set"),
        ({"role_request_params": {"assistant": {"tools": []}}}, r"assistant\.tools cannot be set"),
        ({"responses_create_params": {"input": "hello"}}, r"user\.opening"),
        ({"responses_create_params": {"input": [SYSTEM, {"role": "user", "content": "hello"}]}}, r"input\.1 is no system"),
        ({"responses_create_params": {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}}, r"input\.0 is no"),
        ({"responses_create_params": {"input": [SYSTEM], "unknown": 1}}, "unknown"),
    ],
)
def test_a_task_that_cannot_be_run_says_which_field(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        read(**fields)


def test_a_task_without_a_user_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"task_data\.user: Field required"):
        UserSimInput.model_validate({"responses_create_params": {"input": [SYSTEM]}})
