"""A flat row of a taskset as a materialized one (contract-data 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def materialize(row: Mapping[str, Any], taskset: str, position: int) -> dict[str, Any]:
    """``{task_id: {taskset, task_id}, task_input, …}`` of a flat row.

    The task id is the text of the first of ``task_id``, ``problem_id``, ``instance_id`` that is not null, else ``_ng_task_index``, else
    ``position`` (the row's place among the source rows of all datasets of its type). Raises ValueError for a row that is materialized
    already, and for a ``_ng_task_index`` that is no index.
    """
    if TASK_INPUT in row or isinstance(row.get(TASK_ID), Mapping):
        raise ValueError("a dataset with a taskset holds flat rows; this one is materialized already")
    given = next((str(row[field]) for field in _ID_FIELDS if row.get(field) is not None), None)
    if given is None:
        index = row.get(TASK_INDEX, position)
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ValueError(f"{TASK_INDEX} is a whole number of 0 or more, not {index!r}")
        given = str(index)
    task_input = {key: value for key, value in row.items() if key not in _NOT_INPUT and not key.startswith("_ng_")}
    kept = {key: row[key] for key in _COLLECTOR_KEYS if key in row}
    return {TASK_ID: {"taskset": taskset, "task_id": given}, TASK_INPUT: task_input, **kept}
