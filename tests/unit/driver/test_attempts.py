from __future__ import annotations

from typing import Any

import pytest

from gym_compose.driver.attempts import attempts_allowed, elapsed_of, is_terminal


@pytest.mark.parametrize(
    ("record", "retried", "terminal"),
    [
        ({}, False, False),
        ({"_ng_failure_terminal": True}, False, True),
        ({"_ng_failure_terminal": 1, "_ng_failure_class": "timeout_exceeded"}, False, True),
        ({"_ng_failure_terminal": True, "_ng_failure_class": "timeout_exceeded"}, True, False),
        ({"_ng_failure_terminal": True, "_ng_failure_class": "reference_missing"}, True, False),
        ({"_ng_failure_terminal": True, "_ng_failure_class": "eval_missing"}, True, False),
        ({"_ng_failure_terminal": True, "_ng_failure_class": "transport_ineligible"}, True, False),
        ({"_ng_failure_class": "skipped"}, True, True),
        ({"_ng_failure_class": "skipped"}, False, False),
        ({"_ng_failure_terminal": True, "_ng_failure_class": "other"}, True, True),
    ],
)
def test_which_failures_are_for_good(record: dict[str, Any], retried: bool, terminal: bool) -> None:
    assert is_terminal(record, retry_timeouts=retried) is terminal


@pytest.mark.parametrize(("text", "allowed"), [("", 3), ("1", 1), ("7", 7), ("0", 3), ("-1", 3), ("x", 3)])
def test_how_often_a_row_may_fail(text: str, allowed: int) -> None:
    found, warning = attempts_allowed({"NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": text})
    assert found == allowed
    assert (warning is None) == (text in ("", "1", "7"))


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        ({}, None),
        ({"elapsed_seconds": 2}, 2.0),
        ({"elapsed_seconds": "2.5"}, 2.5),
        ({"elapsed_seconds": 0, "response": {"metadata": {"elapsed_seconds": 3}}}, 3.0),
        ({"elapsed_seconds": "long", "response": None}, None),
        ({"response": {"metadata": None}}, None),
    ],
)
def test_how_long_an_attempt_took(record: dict[str, Any], seconds: float | None) -> None:
    assert elapsed_of(record) == seconds


def test_a_class_of_another_kind_is_none_that_is_tried_again() -> None:
    assert is_terminal({"_ng_failure_class": ["x"], "_ng_failure_terminal": True}, retry_timeouts=True)
    assert not is_terminal({"_ng_failure_class": {"x": 1}}, retry_timeouts=True)
