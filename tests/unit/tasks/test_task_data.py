"""Rows against a schema: what is wrong, where, and how often (contract-data 3.6; cases 57 and 58)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from gym_compose.tasks.task_data import TaskDataReport, TaskDataValidator


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    answer: str
    hint: str | None = Field(default=None, json_schema_extra={"legacy_location": "verifier_metadata"})

    @field_validator("answer")
    @classmethod
    def _not_bad(cls, value: str) -> str:
        if value == "bad":
            raise RuntimeError("a validator of the server's own")
        return value


class Other(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["other"]
    place: int = Field(json_schema_extra={"legacy_location": "verifier_metadata"})


class Named(Open):
    kind: Literal["named"]


def report(*rows: dict[str, Any], schema: Any = Open) -> TaskDataReport:
    validator = TaskDataValidator(schema)
    for line, row in enumerate(rows, 1):
        validator.check(line, row)
    return validator.report


@pytest.mark.parametrize(
    "row",
    [
        {"answer": "x"},
        {"answer": "x", "responses_create_params": 1, "agent_ref": 2, "task_source": 3, "_ng_task_index": 4, "_ng_rollout_index": 5},
        {"verifier_metadata": {"answer": "x", "hint": "h"}},
        {"task_data": {"answer": "x", "hint": "h"}},
        {"answer": "x", "verifier_metadata": {"answer": "x"}},
        {"task_id": {"taskset": "t"}, "task_input": {"answer": "x", "responses_create_params": {}}},
        {"task_id": {"taskset": "t"}, "task_input": {"task_data": {"answer": "x", "hint": "h"}}},
        {"answer": "x", "hint": "h", "verifier_metadata": {"hint": "h"}},
    ],
)
def test_rows_that_fit(row: dict[str, Any]) -> None:
    found = report(row)
    assert (found.clean, found.rows) == (True, 1), list(found.lines())


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, "answer: Field required"),
        ({"answer": 5}, "answer: Input should be a valid string"),
        ({"answer": "bad"}, "RuntimeError: a validator of the server's own"),
        ({"answer": "x", "verifier_metadata": 5}, "verifier_metadata: not declared by the schema"),
        ({"task_id": {}, "task_input": None}, "task_input: an object stands here"),
        ({"task_id": {}, "task_input": {"task_data": None}}, "task_input.task_data: an object stands here"),
    ],
)
def test_rows_that_do_not(row: dict[str, Any], told: str) -> None:
    assert list(report({"answer": "x"}, row).lines()) == [(2, told)]


def test_case_57_a_key_that_is_not_declared() -> None:
    found = report({"answer": "x"}, {"answer": "x", "anwser": 1}, {"answer": "x", "anwser": 2})
    assert not found.clean
    assert list(found.lines()) == [(2, "anwser: not declared by the schema (2 rows)")]


def test_case_58_a_marked_key_that_stands_at_top_level_only_and_one_with_two_values() -> None:
    misplaced = report({"answer": "x", "hint": "h"})
    assert (misplaced.clean, list(misplaced.misplaced)) == (False, ["hint"])
    two = report({"answer": "x", "verifier_metadata": {"answer": "y"}})
    assert (two.clean, list(two.conflicting)) == (False, ["answer"])
    assert list(two.lines()) == [(1, "answer: two different values, at top level and inside verifier_metadata or task_data")]


def test_a_union_is_looked_through() -> None:
    schema = Annotated[Named | Other, Field(discriminator="kind")]
    assert report({"kind": "other", "verifier_metadata": {"place": 1}}, schema=schema).clean
    assert list(report({"kind": "other", "place": 1}, schema=schema).misplaced) == ["place"]
    assert list(report({"kind": "named", "answer": "x", "more": 1}, schema=schema).unknown) == ["more"]
    assert report({"kind": "third"}, schema=schema).error_rows == 1


def test_five_rows_are_told_and_all_are_counted_and_texts_are_cut() -> None:
    found = report(*[{"answer": number} for number in range(7)], {"answer": 1, "hint": 2})
    assert (found.rows, found.error_rows, [fault.line for fault in found.errors]) == (8, 8, [1, 2, 3, 4, 5])
    several = report({"hint": 2})
    assert several.errors[0].message == "Field required (and 1 more fields)"
