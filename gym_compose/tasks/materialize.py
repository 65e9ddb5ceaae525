"""A flat row of a taskset as a materialized one (contract-data 3.5); an id for one that brings none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from gym_compose.tasks.rows import ATTEMPT_INDEX, ROLLOUT_ID, ROLLOUT_INDEX, TASK_ID, TASK_INDEX, TASK_INPUT, TOO_DEEP
from gym_compose.wire.flat_task import task_input_of

_COLLECTOR_KEYS = (TASK_INDEX, ROLLOUT_INDEX, ROLLOUT_ID, ATTEMPT_INDEX)
_CONTENT_DIGITS = 16


def materialize(row: Mapping[str, Any], taskset: str, task_id: str) -> dict[str, Any]:
    """``{task_id: {taskset, task_id}, task_input, …}`` of a flat row. Raises ValueError for one that is materialized already."""
    if TASK_INPUT in row or isinstance(row.get(TASK_ID), Mapping):
        raise ValueError("a dataset with a taskset holds flat rows; this one is materialized already")
    kept = {key: row[key] for key in _COLLECTOR_KEYS if key in row}
    return {TASK_ID: {"taskset": taskset, "task_id": task_id}, TASK_INPUT: task_input_of(row), **kept}


def content_id(row: Mapping[str, Any]) -> str:
    """``row-`` and 16 hex digits of the SHA-256 of the row's own fields.

    The same for the same fields, in whatever order they are written, wherever the row stands and whatever the prompt template is.
    Raises ValueError for a row that is nested too deep to be written.
    """
    try:
        content = orjson.dumps(task_input_of(row), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise ValueError(TOO_DEEP) from None
    return f"row-{hashlib.sha256(content).hexdigest()[:_CONTENT_DIGITS]}"
