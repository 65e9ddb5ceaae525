"""Task-data schemas: a row's own fields against ``TaskData`` of a server's ``task_data.py`` (contract-data 3.6).

The schema is a server's code: it is loaded by ``row_checker`` in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from gym_compose.tasks.rows import AGENT_REF, PARAMS, ROLLOUT_INDEX, TASK_INDEX, TASK_INPUT, TASK_SOURCE, is_materialized

MAX_ERRORS = 5
"""Rows whose errors are told; the others are counted."""
_MAX_TEXT = 400
_RESERVED = frozenset((PARAMS, AGENT_REF, TASK_SOURCE, TASK_INDEX, ROLLOUT_INDEX))
_METADATA = "verifier_metadata"
_TASK_DATA = "task_data"


class RowFault(BaseModel):
    """What is wrong with one row: its line (from 1), the dotted field (empty for the row as such), the message."""

    line: int
    field: str
    message: str


class KeyFault(BaseModel):
    """A key that is wrong in ``rows`` rows, first in ``line``."""

    rows: int
    line: int


class TaskDataReport(BaseModel):
    """What a schema says of one file."""

    rows: int = 0
    error_rows: int = 0
    errors: list[RowFault] = []
    unknown: dict[str, KeyFault] = {}
    """Keys that the schema does not declare."""
    conflicting: dict[str, KeyFault] = {}
    """Keys with different values at top level and in ``verifier_metadata`` or ``task_data``."""
    misplaced: dict[str, KeyFault] = {}
    """Keys that the server reads from ``verifier_metadata`` and that stand at top level only."""

    @property
    def clean(self) -> bool:
        return not (self.error_rows or self.unknown or self.conflicting or self.misplaced)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line of the file, what is wrong) of everything that was found; faults of rows first."""
        for fault in self.errors:
            yield fault.line, f"{fault.field}: {fault.message}" if fault.field else fault.message
        told = (
            (self.conflicting, "two different values, at top level and inside verifier_metadata or task_data"),
            (self.misplaced, "stands at top level, the server reads it from verifier_metadata"),
            (self.unknown, "not declared by the schema"),
        )
        for faults, what in told:
            for key, found in sorted(faults.items()):
                yield found.line, f"{key}: {what}" + (f" ({found.rows} rows)" if found.rows > 1 else "")


class TaskDataValidator:
    """Checks rows against one schema and keeps a report. ``task_data``: a model, or what pydantic's TypeAdapter takes."""

    def __init__(self, task_data: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(task_data)
        self._nested = frozenset(_legacy_fields(task_data))
        self.report = TaskDataReport()

    def check(self, line: int, row: Mapping[str, Any]) -> None:
        """Take one source row in, flat or materialized."""
        self.report.rows += 1
        if is_materialized(row):
            task_input = row[TASK_INPUT]
            if not isinstance(task_input, Mapping):
                self._fault(line, TASK_INPUT, "an object stands here")
                return
            if _TASK_DATA in task_input and not isinstance(task_input[_TASK_DATA], Mapping):
                self._fault(line, f"{TASK_INPUT}.{_TASK_DATA}", "an object stands here")
                return
            row = task_input
        fields, conflicts = _subject(row)
        for key in conflicts:
            _count(self.report.conflicting, key, line)
        # Inside task_data a field is where it will be read; the mark is about rows of the older form.
        if _TASK_DATA not in row:
            held = row.get(_METADATA)
            for key in (row.keys() & self._nested) - (held.keys() if isinstance(held, Mapping) else set()):
                _count(self.report.misplaced, key, line)
        try:
            checked = self._adapter.validate_python(fields)
        except ValidationError as error:
            first, *more = error.errors(include_url=False, include_input=False, include_context=False)
            further = f" (and {len(more)} more fields)" if more else ""
            self._fault(line, ".".join(map(str, first["loc"])), f"{first['msg']}{further}")
            return
        except Exception as error:  # noqa: BLE001  a validator of the server's own may raise anything; it is the row's fault
            self._fault(line, "", f"{type(error).__name__}: {error}")
            return
        for key in (checked.model_extra or ()) if isinstance(checked, BaseModel) else ():
            _count(self.report.unknown, key, line)

    def _fault(self, line: int, field: str, message: str) -> None:
        self.report.error_rows += 1
        if len(self.report.errors) < MAX_ERRORS:
            self.report.errors.append(RowFault(line=line, field=field, message=" ".join(message.split())[:_MAX_TEXT]))


def _subject(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields that the schema is about, those of ``verifier_metadata`` and ``task_data`` beside the others; keys with two values."""
    fields = {key: value for key, value in row.items() if key not in _RESERVED}
    conflicts = []
    for holder in (_METADATA, _TASK_DATA):
        held = fields.pop(holder, None)
        if isinstance(held, Mapping):
            conflicts += [key for key, value in held.items() if key in fields and fields[key] != value]
            fields = {**held, **fields}
        elif held is not None:
            fields[holder] = held
    return fields, conflicts


def _legacy_fields(task_data: Any) -> Iterator[str]:
    """Fields marked ``json_schema_extra={"legacy_location": "verifier_metadata"}`` in any model of the type."""
    if isinstance(task_data, type) and issubclass(task_data, BaseModel):
        for name, field in task_data.model_fields.items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and extra.get("legacy_location") == _METADATA:
                yield name
        return
    for argument in get_args(task_data):
        yield from _legacy_fields(argument)


def _count(faults: dict[str, KeyFault], key: str, line: int) -> None:
    found = faults.get(key)
    faults[key] = KeyFault(rows=1, line=line) if found is None else KeyFault(rows=found.rows + 1, line=found.line)
