"""A flat row of a taskset as a materialized one (contract-data 3.5), and where its id comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from gym_compose.tasks.rows import (
    AGENT_REF,
    ATTEMPT_INDEX,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    SKILLS_REF,
    TASK_ID,
    TASK_INDEX,
    TASK_INPUT,
    TASK_SOURCE,
)

_ID_FIELDS = (TASK_ID, "problem_id", "instance_id")
_NOT_INPUT = frozenset((AGENT_REF, TASK_SOURCE, SKILLS_REF))
_COLLECTOR_KEYS = (TASK_INDEX, ROLLOUT_INDEX, ROLLOUT_ID, ATTEMPT_INDEX)
_CONTENT_DIGITS = 16


def materialize(row: Mapping[str, Any], taskset: str, task_id: str) -> dict[str, Any]:
    """``{task_id: {taskset, task_id}, task_input, …}`` of a flat row. Raises ValueError for one that is materialized already."""
    if TASK_INPUT in row or isinstance(row.get(TASK_ID), Mapping):
        raise ValueError("a dataset with a taskset holds flat rows; this one is materialized already")
    kept = {key: row[key] for key in _COLLECTOR_KEYS if key in row}
    return {TASK_ID: {"taskset": taskset, "task_id": task_id}, TASK_INPUT: task_input_of(row), **kept}


def task_input_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What an environment server gets of a flat row: all but where it is routed and what the collector keeps about it."""
    return {key: value for key, value in row.items() if key not in _NOT_INPUT and not key.startswith("_ng_")}


def given_id(row: Mapping[str, Any]) -> str | None:
    """The id that a flat row brings: the text of the first of ``task_id``, ``problem_id``, ``instance_id`` that is not null, else of
    ``_ng_task_index``; None when it brings none. Raises ValueError for a ``_ng_task_index`` that is no index."""
    given = next((str(row[field]) for field in _ID_FIELDS if row.get(field) is not None), None)
    if given is not None or TASK_INDEX not in row:
        return given
    index = row[TASK_INDEX]
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"{TASK_INDEX} is a whole number of 0 or more, not {index!r}")
    return str(index)


def content_id(row: Mapping[str, Any]) -> str:
    """``row-`` and 16 hex digits of the SHA-256 of the row's own fields.

    The same for the same fields, in whatever order they are written, wherever the row stands and whatever the prompt template is.
    """
    content = orjson.dumps(task_input_of(row), option=orjson.OPT_SORT_KEYS)
    return f"row-{hashlib.sha256(content).hexdigest()[:_CONTENT_DIGITS]}"
