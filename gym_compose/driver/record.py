"""What is sent for a row, and what is stored of the answer (contract-data 1.9 to 1.11). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from gym_compose.driver.trajectory import TASK_NAMES, add_trajectory, wants_trajectory
from gym_compose.serving.client import PeerError, Reply
from gym_compose.tasks.rows import (
    AGENT_REF,
    ATTEMPT_INDEX,
    ENVIRONMENT_SERVER,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    SKILLS_REF,
    TASK_ID,
    TASK_INDEX,
    TASK_INPUT,
    TASK_SOURCE,
    taskset_of,
)
from gym_compose.wire.failures import AGENT_REQUEST_FAILED, AGENT_RUN_ERROR, ENVIRONMENT_SERVER_FAILED
from gym_compose.wire.ids import ROLLOUT_ID as ROLLOUT_ID_PATTERN
from gym_compose.wire.run_body import rollout_key

FAILURE_CLASS = "_ng_failure_class"
FAILURE_KIND = "_ng_failure_kind"
NO_PERSIST = "_ng_no_persist"

_IDENTITY = (AGENT_REF, TASK_SOURCE, SKILLS_REF, ATTEMPT_INDEX, ROLLOUT_ID)
_DID_NOT_RUN = frozenset((429, 502, 503, 504))
_RESERVED = frozenset(("ng_trajectory", "ng_model_call_capture", "ng_perf"))
_EXCERPT = 2000

Kind = Literal["completed", "failed", "dropped"]
Fault = Literal["request", "reply"]


@dataclass(slots=True)
class Outcome:
    """Where a completion goes: the output, the failures sidecar, or nowhere (the server asked for that).

    ``fault``: no rollout came back, because of the request (no answer, an error status, no JSON) or of a reply that breaks the protocol.
    """

    kind: Kind
    record: dict[str, Any]
    failure_class: str | None = None
    fault: Fault | None = None

    @property
    def reward(self) -> float | None:
        """The reward that counts in averages: none of a failure, a masked or an unscored rollout."""
        reward = self.record.get("reward")
        if self.kind != "completed" or self.record.get("mask_sample") or not isinstance(reward, int | float):
            return None
        return float(reward) if math.isfinite(reward) else None


def request_body(row: Mapping[str, Any], line: bytes) -> bytes:
    """The body of ``POST /run``: a flat row as it stands in the materialized file (``line``), a materialized one as an episode.

    Raises ValueError for an attempt or a rollout id that cannot be sent.
    """
    if taskset_of(row) is None:
        return line.rstrip(b"\n")
    episode = {"rollout_id": rollout_id(row), "attempt": attempt_of(row)}
    return orjson.dumps({"episode_id": episode, "task": {TASK_ID: row[TASK_ID], TASK_INPUT: row[TASK_INPUT]}})


def identity_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a row that its record is made of, and whether it was sent as an episode: all that has to stay in memory."""
    kept = {key: row[key] for key in (TASK_INDEX, ROLLOUT_INDEX, *_IDENTITY) if key in row}
    if taskset_of(row) is not None:
        kept |= {TASK_ID: row[TASK_ID], TASK_INPUT: None}
    else:
        kept |= {name: str(row[name]) for name in TASK_NAMES if row.get(name) is not None}
    return kept


def attempt_of(row: Mapping[str, Any]) -> int:
    """``_ng_attempt_index`` or 0. Raises ValueError."""
    attempt = row.get(ATTEMPT_INDEX, 0)
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 0:
        raise ValueError(f"{ATTEMPT_INDEX} is a whole number of 0 or more, not {attempt!r}")
    return attempt


def rollout_id(row: Mapping[str, Any]) -> str:
    """``_ng_rollout_id``, else ``<task>-<rollout>``. Raises ValueError when it does not have the form of an id."""
    given = row.get(ROLLOUT_ID)
    if given is None:
        return f"{row[TASK_INDEX]}-{row[ROLLOUT_INDEX]}"
    if not isinstance(given, str) or not ROLLOUT_ID_PATTERN.fullmatch(given):
        raise ValueError(f"{ROLLOUT_ID} starts with a letter or digit and holds letters, digits, '.', '_' and '-' only, not {given!r}")
    return given


def outcome_of_reply(row: Mapping[str, Any], reply: Reply, server: str, implementation: str, *, strict: bool = False) -> Outcome:
    """What becomes of an answer. Never raises for its content: one bad reply fails one row.

    ``strict``: failures are told as NeMo Gym tells them, without kind, and without the text of what is no JSON.
    """
    if not 200 <= reply.status < 300:  # a redirect is no rollout either: nobody follows a POST elsewhere
        name = AGENT_REQUEST_FAILED if reply.status in _DID_NOT_RUN else AGENT_RUN_ERROR
        kind = "ClientResponseError" if strict else "PeerStatusError"
        message = f"{reply.method} {reply.url} answered {reply.status}"
        failure = _failure(name, kind, message, reply.status, _excerpt(reply.body), None if strict else name)
        return _stored(row, failure, server, implementation, fault="request")
    try:
        answer = reply.json()
    except ValueError:
        body, message = None if strict else _excerpt(reply.body), f"{reply.url} answered {reply.status} with no JSON"
        failure = _failure(AGENT_RUN_ERROR, "JSONDecodeError", message, reply.status, body, None if strict else AGENT_RUN_ERROR)
        return _stored(row, failure, server, implementation, fault="request")
    try:
        if type(answer) is not dict:
            raise ValueError("the answer is not a JSON object")
        record = _of_episode(answer, strict) if _is_episode(answer) and taskset_of(row) is not None else answer
    except ValueError as error:
        failure = _failure(AGENT_RUN_ERROR, "InvalidReply", f"{reply.url}: {error}", reply.status, _excerpt(reply.body), AGENT_RUN_ERROR)
        return _stored(row, failure, server, implementation, fault="reply")
    return _stored(row, record, server, implementation)


def outcome_of_error(row: Mapping[str, Any], error: PeerError, server: str, implementation: str, *, strict: bool = False) -> Outcome:
    """What becomes of a call without an answer."""
    kind = None if strict else error.failure_kind
    failure = _failure(AGENT_REQUEST_FAILED, type(error).__name__, str(error), None, None, kind)
    return _stored(row, failure, server, implementation, fault="request")


def outcome_unwritable(row: Mapping[str, Any], server: str, implementation: str) -> Outcome:
    """What becomes of an answer that is JSON and cannot be written as such: JSON is read here to 1,024 levels and written to 254."""
    message = "the answer is nested deeper than 254 levels: it cannot be stored"
    failure = _failure(AGENT_RUN_ERROR, "InvalidReply", message, None, None, AGENT_RUN_ERROR)
    return _stored(row, failure, server, implementation, fault="reply")


def drained(row: Mapping[str, Any], server: str, implementation: str) -> dict[str, Any]:
    """The record of a row that the dispatch budget left out: written nowhere, only given to who takes all results (contract-data 1.8)."""
    record: dict[str, Any] = {
        FAILURE_CLASS: "cancelled",
        NO_PERSIST: True,
        "_ng_dispatch_drained": True,
        "error_message": "not started: the dispatch budget was spent",
    }
    return _stored(row, record, server, implementation).record


def _failure(failure_class: str, kind: str, message: str, status: int | None, body: str | None, failure_kind: str | None) -> dict[str, Any]:
    failure: dict[str, Any] = {
        FAILURE_CLASS: failure_class,
        "_ng_failure_type": kind,
        "_ng_failure_message": message,
        "_ng_failure_http_status": status,
        "_ng_failure_response_body": body,
    }
    if failure_kind is not None:
        failure[FAILURE_KIND] = failure_kind
    return failure


def _excerpt(body: bytes) -> str | None:
    if not body:
        return None
    text = body[: 4 * _EXCERPT].decode("utf-8", "replace")
    return text[:_EXCERPT] + "…" if len(text) > _EXCERPT or len(body) > 4 * _EXCERPT else text


def _is_episode(answer: dict[str, Any]) -> bool:
    identified = type(answer.get("episode_id")) is dict and type(answer.get(TASK_ID)) is dict
    return identified and ("result" in answer or "failure" in answer)


def _of_episode(answer: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """The record of an episode response (contract-data 1.10 step 1), and the kind of its failure, which the peer drops."""
    failure = answer.get("failure")
    if failure is not None:
        if not isinstance(failure, Mapping):
            raise ValueError("its failure is not an object")
        record: dict[str, Any] = {
            "_ng_task_id": answer[TASK_ID],
            FAILURE_CLASS: ENVIRONMENT_SERVER_FAILED,
            "_ng_failure_terminal": bool(failure.get("terminal", False)),
            "_ng_failure_message": failure.get("failure_reason"),
        }
        for key, name in (
            ("stage", "_ng_failure_stage"),
            ("partial_response", "_ng_failure_partial_response"),
            ("failure_kind", FAILURE_KIND),
        ):
            if failure.get(key) is not None and not (strict and name == FAILURE_KIND):
                record[name] = failure[key]
        return record
    result = answer.get("result")
    if not isinstance(result, dict):
        raise ValueError("its result is not an object")
    reserved = sorted(key for key in result if key.startswith("_ng_") or key in _RESERVED)
    if reserved:
        raise ValueError(f"its result uses keys that are reserved for the collector: {', '.join(reserved)}")
    result["_ng_task_id"] = answer[TASK_ID]
    return result


def _stored(row: Mapping[str, Any], record: dict[str, Any], server: str, implementation: str, *, fault: Fault | None = None) -> Outcome:
    """Append the collector's keys in the contract's order and say where the record goes (contract-data 1.10 steps 2 and 7)."""
    record[TASK_INDEX] = row[TASK_INDEX]
    record[ROLLOUT_INDEX] = row[ROLLOUT_INDEX]
    for key in _IDENTITY:
        if key in row:
            record[key] = row[key]
    record[ENVIRONMENT_SERVER] = server
    record["_ng_result_type"] = implementation
    if wants_trajectory(record):
        add_trajectory(record, row, rollout_key(row) or rollout_id(row))
    failure_class = record.get(FAILURE_CLASS)
    if record.get(NO_PERSIST):
        return Outcome("dropped", record, None if failure_class is None else str(failure_class))
    if failure_class is not None:
        return Outcome("failed", record, str(failure_class), fault)
    return Outcome("completed", record)
