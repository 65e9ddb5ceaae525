"""Rows as they stand in an input file, read as a stream (contract-data 1.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym_compose.tasks.errors import RowError

AGENT_REF = "agent_ref"
TASK_SOURCE = "task_source"
TASK_ID = "task_id"
TASK_INPUT = "task_input"
SKILLS_REF = "skills_ref"
PARAMS = "responses_create_params"
TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ATTEMPT_INDEX = "_ng_attempt_index"
ROLLOUT_ID = "_ng_rollout_id"
ENVIRONMENT_SERVER = "_ng_environment_server"

TOO_DEEP = "the row is nested deeper than the 254 levels that can be written"
"""JSON is read to 1,024 levels."""


@dataclass(frozen=True)
class InputRow:
    """One line of an input file. ``index`` counts from 0, ``line`` from 1; ``text`` is the raw line with its newline, if it has one."""

    index: int
    text: bytes
    row: dict[str, Any]

    @property
    def line(self) -> int:
        return self.index + 1


def read_rows(path: Path, limit: int | None = None, *, seen: Callable[[bytes], None] | None = None) -> Iterator[InputRow]:
    """The rows of a JSONL file, one at a time.

    ``limit``: the first N lines; None and 0 mean all, a negative one none. ``seen`` is given each line as it stands in the file.

    Raises RowError (file, line) for a blank line, bad JSON and what is not an object, and for a file that cannot be read.
    """
    if limit is not None and limit < 0:
        return
    try:
        with path.open("rb") as lines:
            for index, raw in enumerate(lines):
                if limit and index >= limit:
                    return
                if seen is not None:
                    seen(raw)
                # Read as text by the peer, so that \r\n and \n are one newline.
                text = raw[:-2] + b"\n" if raw.endswith(b"\r\n") else raw
                yield InputRow(index, text, parse_row(text, path, index + 1))
    except OSError as error:
        raise RowError(f"cannot be read: {error.strerror}", path=path, line=1) from None


def parse_row(text: bytes, path: Path, line: int) -> dict[str, Any]:
    """One line as an object. Raises RowError."""
    if not text.strip():
        raise RowError("blank line", path=path, line=line, hint="A JSONL file holds one JSON object on each line.")
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RowError(f"not valid JSON: {error.msg} at column {error.colno}", path=path, line=line) from None
    if not isinstance(row, dict):
        raise RowError(f"a row is a JSON object, this is {_kind(row)}", path=path, line=line)
    return row


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}[type(value)]


def is_materialized(row: Mapping[str, Any]) -> bool:
    """Whether the row has the shape of a materialized one: an object ``task_id`` and a ``task_input`` key of any value."""
    return TASK_INPUT in row and isinstance(row.get(TASK_ID), Mapping)


def taskset_of(row: Mapping[str, Any]) -> str | None:
    """The taskset by which a materialized row is routed; None for every row that is treated as flat, an empty taskset included."""
    if not is_materialized(row):
        return None
    taskset = row[TASK_ID].get("taskset")
    return taskset if isinstance(taskset, str) and taskset else None


def agent_of(row: Mapping[str, Any]) -> str | None:
    """The name in ``agent_ref``."""
    reference = row.get(AGENT_REF)
    name = reference.get("name") if type(reference) is dict or isinstance(reference, Mapping) else None
    return name if isinstance(name, str) else None


def source_of(row: Mapping[str, Any]) -> str | None:
    """The row's ``task_source``: the instance that declared its dataset."""
    source = row.get(TASK_SOURCE)
    return source if isinstance(source, str) else None
