"""A flat row as a task: its identity and its input (contract-data 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gym_compose.wire.ids import EpisodeId, TaskId
from gym_compose.wire.run_body import AGENT_REF, ATTEMPT_INDEX, TASK_INDEX, rollout_key

TASK_SOURCE: Final = "task_source"
_ID_FIELDS = ("task_id", "problem_id", "instance_id")
_NOT_INPUT = frozenset((AGENT_REF, TASK_SOURCE, "skills_ref"))


def given_id(row: Mapping[str, Any]) -> str | None:
    """The id that a flat row brings: the text of the first of ``task_id``, ``problem_id``, ``instance_id`` that is not null, else of
    ``_ng_task_index``; None when it brings none. Raises ValueError for an id that is an empty text (no server takes it), and for a
    ``_ng_task_index`` that is no index."""
    field = next((field for field in _ID_FIELDS if row.get(field) is not None), None)
    if field is not None:
        given = str(row[field])
        if not given:
            raise ValueError(f"{field} is an empty text, which identifies no task")
        return given
    if TASK_INDEX not in row:
        return None
    index = row[TASK_INDEX]
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"{TASK_INDEX} is a whole number of 0 or more, not {index!r}")
    return str(index)


def task_id_of(row: Mapping[str, Any], taskset: str) -> TaskId:
    """``given_id`` in its taskset. Raises ValueError for a row that is materialized already, and for one that brings no id."""
    if "task_input" in row or isinstance(row.get("task_id"), Mapping):
        raise ValueError("the row is materialized already: it holds task_input, or an object as task_id")
    given = given_id(row)
    if given is None:
        raise ValueError(f"the row has none of {', '.join((*_ID_FIELDS, TASK_INDEX))}: nothing identifies its task")
    return TaskId(taskset=taskset, task_id=given)


def task_input_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What an environment server gets of a flat row: no ``agent_ref``, ``task_source``, ``skills_ref``, which route it, no ``_ng_`` keys,
    which the collector keeps."""
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
