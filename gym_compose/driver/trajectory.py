"""``ng_trajectory`` of a stored record: what the agent said of its own work, under one identity (contract-data 1.10 step 4).

Built of ``ng_agent_observations`` and of an agent's own ``ng_trajectory``. Model calls are captured by nobody here, so the record
says by its gaps what it does not know, as NeMo Gym's does without observability.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gym_compose.tasks.rows import TASK_INDEX
from gym_compose.wire.run_body import AGENT_OBSERVATIONS

TRAJECTORY: Final = "ng_trajectory"
CAPTURE: Final = "ng_model_call_capture"
TASK_NAMES: Final = ("task_id", "problem_id", "instance_id")
"""Fields of a row that name its task, in this order."""

_LISTS = ("invocations", "turns", "model_calls", "tool_calls", "gaps")
_GAP: Mapping[str, Any] = {"code": None, "invocation_id": None, "detail": None}
_INVOCATION: Mapping[str, Any] = {
    "kind": "agent_invocation",
    "invocation_id": None,
    "parent_invocation_id": None,
    "spawned_by_tool_call_id": None,
    "status": "unknown",
    "duration_ms": None,
    "error_type": None,
    "model_calls": [],
    "conversation": [],
}
_TOOL_CALL: Mapping[str, Any] = {
    "kind": "tool_call",
    "invocation_id": None,
    "tool_call_id": None,
    "sandbox_id": None,
    "tool_name": None,
    "started_at": None,
    "completed_at": None,
    "duration_ms": None,
    "timing_source": None,
    "status": "unknown",
    "error_type": None,
    "output": None,
}
"""Fields with their defaults, in the order in which NeMo Gym writes them."""


def wants_trajectory(record: Mapping[str, Any]) -> bool:
    """Whether the contract gives a record one: when it has that key, observations or a capture, be they null."""
    return AGENT_OBSERVATIONS in record or TRAJECTORY in record or CAPTURE in record


def add_trajectory(record: dict[str, Any], row: Mapping[str, Any], rollout_id: str) -> None:
    """Give ``record`` its ``ng_trajectory``, in place of one that the agent wrote.

    ``row`` holds the indices and whatever of ``TASK_NAMES`` the row has; ``rollout_id`` is the attempt's capture key. Never raises for what
    an agent wrote: what cannot be read is a gap.
    """
    record[TRAJECTORY] = _trajectory(record, task_name(row), rollout_id)


def task_name(row: Mapping[str, Any]) -> str:
    """The text of the first of ``TASK_NAMES`` that is not null, else of the task index. A materialized row's ``task_id`` is an object; its
    text is Python's, as in NeMo Gym's files (contract-data 1.10)."""
    return next((str(row[name]) for name in TASK_NAMES if row.get(name) is not None), str(row[TASK_INDEX]))


def _trajectory(record: Mapping[str, Any], task_id: str, rollout_id: str) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS}
    own = record.get(TRAJECTORY)
    produced = isinstance(own, Mapping) and all(_is_objects(own.get(name, [])) for name in _LISTS)
    if isinstance(own, Mapping) and produced:
        found |= _of_producer(own, task_id, rollout_id)
    elif isinstance(own, Mapping):
        found["gaps"].append(_gap("producer_trajectory_invalid", "ValidationError"))
    observed = record.get(AGENT_OBSERVATIONS)
    if observed is not None:
        _add_observations(found, observed)
    gaps = found["gaps"]
    if not found["model_calls"]:
        gaps.append(_gap("model_calls_unavailable"))
    if not found["turns"] and not produced:
        gaps.append(_gap("turns_unavailable"))
    if not any(invocation.get("conversation") for invocation in found["invocations"]):
        gaps.append(_gap("conversation_unavailable"))
    found["gaps"] = list({str([gap.get(name) for name in _GAP]): gap for gap in gaps}.values())
    return {"schema_version": "1.0", "task_id": task_id, "rollout_id": rollout_id, **found}


def _of_producer(own: Mapping[str, Any], task_id: str, rollout_id: str) -> dict[str, list[dict[str, Any]]]:
    """An agent's own trajectory under this identity; that it had another one is a gap."""
    lists = {name: [dict(item) for item in own.get(name, [])] for name in _LISTS}
    differs = [name for name, is_so in (("task_id", task_id), ("rollout_id", rollout_id)) if own.get(name) != is_so]
    if differs:
        lists["gaps"].insert(0, _gap("producer_trajectory_identity_mismatch", ",".join(differs)))
        lists["turns"] = [{**turn, "task_id": task_id, "rollout_id": rollout_id} for turn in lists["turns"]]
    lists["turns"].sort(key=_order_of_turn)
    return lists


def _order_of_turn(turn: Mapping[str, Any]) -> tuple[float, str, int]:
    stamp, number = turn.get("timestamp"), turn.get("turn_no")
    return (
        float(stamp) if isinstance(stamp, int | float) else 0.0,
        str(turn.get("invocation_id")),
        number if isinstance(number, int) else 0,
    )


def _add_observations(found: dict[str, list[dict[str, Any]]], observed: Any) -> None:
    bundle = observed if isinstance(observed, Mapping) else {}
    records, gaps = bundle.get("records", []), bundle.get("gaps", [])
    if not (isinstance(bundle.get("source"), str) and _is_objects(records) and _is_objects(gaps)):
        found["gaps"].append(_gap("agent_observations_invalid", "ValidationError"))
        return
    found["gaps"].extend({**_GAP, **gap} for gap in gaps)
    known = {str(invocation.get("invocation_id")) for invocation in found["invocations"]}
    found["invocations"].extend(
        {**_INVOCATION, **item}
        for item in records
        if item.get("kind") == "agent_invocation" and str(item.get("invocation_id")) not in known
    )
    outputs = dict(_outputs(found["invocations"]))
    places = {_tool_key(tool): number for number, tool in enumerate(found["tool_calls"])}
    for item in records:
        if item.get("kind") != "tool_call":
            continue
        key = _tool_key(item)
        before = found["tool_calls"][places[key]] if key in places else {}
        said = {name: value for name, value in item.items() if value is not None}
        if before.get("status", "unknown") != "unknown" and said.get("status") == "unknown":
            del said["status"]
        tool = {**_TOOL_CALL, **before, **said, **({"output": outputs[key]} if key in outputs else {})}
        if key in places:
            found["tool_calls"][places[key]] = tool
        else:
            places[key] = len(found["tool_calls"])
            found["tool_calls"].append(tool)


def _outputs(invocations: Iterable[Mapping[str, Any]]) -> Iterable[tuple[tuple[str, str], Any]]:
    """What tools gave, by invocation and call."""
    for invocation in invocations:
        conversation = invocation.get("conversation")
        for item in conversation if isinstance(conversation, list) else ():
            if isinstance(item, Mapping) and item.get("type") == "function_call_output":
                yield (str(invocation.get("invocation_id")), str(item.get("call_id"))), item.get("output")


def _tool_key(tool: Mapping[str, Any]) -> tuple[str, str]:
    return str(tool.get("invocation_id")), str(tool.get("tool_call_id"))


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _gap(code: str, detail: str | None = None) -> dict[str, Any]:
    return {**_GAP, "code": code, "detail": detail}
