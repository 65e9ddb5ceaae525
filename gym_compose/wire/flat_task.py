"""A flat row as a task: its identity and its input (contract-data 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gym_compose.wire.ids import EpisodeId, TaskId
from gym_compose.wire.run_body import AGENT_REF, ATTEMPT_INDEX, TASK_INDEX, rollout_key

TASK_SOURCE: Final = "task_source"
_ID_FIELDS = ("task_id", "problem_id", "instance_id")
_NOT_INPUT = frozenset((AGENT_REF, TASK_SOURCE, "skills_ref"))


def task_id_of(row: Mapping[str, Any], taskset: str) -> TaskId:
    """The text of the first of ``task_id``, ``problem_id``, ``instance_id`` that is not null, else ``_ng_task_index``.

    Raises ValueError for a row that is materialized already, and for one without any of them.
    """
    if "task_input" in row or isinstance(row.get("task_id"), Mapping):
        raise ValueError("the row is materialized already: it holds task_input, or an object as task_id")
    given = next((str(row[field]) for field in _ID_FIELDS if row.get(field) is not None), None)
    if given is None:
        index = row.get(TASK_INDEX)
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ValueError(
                f"the row has none of {', '.join(_ID_FIELDS)}, and its {TASK_INDEX} is {index!r}: no whole number of 0 or more"
            )
        given = str(index)
    return TaskId(taskset=taskset, task_id=given)


def task_input_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without what routes it: no ``agent_ref``, ``task_source``, ``skills_ref``, no ``_ng_`` keys."""
    return {key: value for key, value in row.items() if key not in _NOT_INPUT and not key.startswith("_ng_")}


def episode_of(row: Mapping[str, Any]) -> EpisodeId:
    """Rollout and attempt of a flat row (contract-data 1.9): its own rollout id, else its two indices.

    Raises KeyError when it has neither, ValueError (pydantic's ValidationError among them) when id or attempt are not well formed.
    """
    attempt = row.get(ATTEMPT_INDEX, 0)
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 0:
        raise ValueError(f"{ATTEMPT_INDEX} is a whole number of 0 or more, not {attempt!r}")
    rollout = rollout_key({**row, ATTEMPT_INDEX: 0})
    if rollout is None:
        raise KeyError("the row has neither _ng_rollout_id nor _ng_task_index and _ng_rollout_index")
    return EpisodeId(rollout_id=rollout, attempt=attempt)
