"""All datasets of one type, row by row: the rows to a part file, figures and ids beside them (contract-data 3.4 step 4)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from gym_compose.tasks.dataset_metrics import BadRowError, DatasetMetrics
from gym_compose.tasks.datasets import DeclaredDataset
from gym_compose.tasks.errors import DatasetError, RowError, TaskCodeError, TaskDataError
from gym_compose.tasks.materialize import content_id, materialize
from gym_compose.tasks.metrics_file import dataset_block
from gym_compose.tasks.prompt import Prompt, has_input
from gym_compose.tasks.rows import (
    AGENT_REF,
    ATTEMPT_INDEX,
    ROLLOUT_INDEX,
    TASK_ID,
    TASK_SOURCE,
    TOO_DEEP,
    InputRow,
    is_materialized,
    read_rows,
)
from gym_compose.tasks.running_statistics import restored
from gym_compose.tasks.task_code import RowCheckRequest, RunRowCheck, find_task_code
from gym_compose.tasks.task_data import TaskDataReport
from gym_compose.tasks.task_ids import Place, TaskIds
from gym_compose.tasks.text_tally import TextTally
from gym_compose.wire.flat_task import given_id

_TOLD = 5
"""Bad rows of a file that are told; the others are counted."""
_LOOK_EVERY = 1000
"""Rows between two looks at the clock."""


@dataclass(frozen=True)
class Source:
    """A dataset, its file on disk, and the prompt template that fills its rows."""

    dataset: DeclaredDataset
    path: Path
    prompt: Prompt | None = None


@dataclass(frozen=True)
class Tools:
    """What collation needs of the outside: ``check`` runs a server's code about rows, ``report`` takes lines of progress.

    ``progress_seconds``: between two lines about one file.
    """

    check: RunRowCheck
    report: Callable[[str], None]
    progress_seconds: float


class TypeCollation:
    """One type's datasets on their way into ``target``. ``strict``: ids by position, bad rows only left out of the figures (NeMo Gym's).

    A context manager: what was not published is gone afterwards.
    """

    def __init__(self, target: Path, sources: Sequence[Source], *, strict: bool, tools: Tools) -> None:
        self.type = sources[0].dataset.type
        self.target = target
        self.sources = tuple(sources)
        self.rows = 0
        self.read = 0
        self.warnings: list[str] = []
        self._strict = strict
        self._tools = tools
        self._part = target.with_name(f"{target.name}.part")
        self._stack = ExitStack()
        self._texts = self._stack.enter_context(TextTally())
        self._ids = self._stack.enter_context(TaskIds())
        self._metrics = [DatasetMetrics(self._texts, number) for number in range(len(sources))]

    def run(self, config: Mapping[str, Any], roots: Sequence[Path], validation: str) -> None:
        """Read all rows, write the part file, look at the rows with their servers' code.

        Raises RowError for a row that no run can send and for an id that two rows of a taskset have; TaskDataError with ``validation``
        ``error``; TaskCodeError; DatasetError when the part cannot be written.
        """
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            with self._part.open("wb") as out:
                for number, source in enumerate(self.sources):
                    self._copy(number, source, out)
        except OSError as error:
            raise DatasetError(f"the rows cannot be written: {error.strerror}", where=str(self.target)) from None
        if not self._strict:
            self._refuse_duplicates()
        for number, source in enumerate(self.sources):
            self._look(number, source, config, roots, validation)

    def _copy(self, number: int, source: Source, out: BinaryIO) -> None:
        dataset, metrics = source.dataset, self._metrics[number]
        bad: list[tuple[int, str]] = []
        faults = stamped = lines = 0
        progress = _Progress(source, self._tools)
        for given in read_rows(source.path):
            lines += 1
            stamped += AGENT_REF in given.row
            try:
                line = self._collated(number, source, given, metrics)
            except BadRowError as error:
                faults += 1
                if len(bad) < _TOLD:
                    bad.append((given.line, str(error)))
                continue
            if not bad:
                out.write(line * dataset.num_repeats)
            self.rows += dataset.num_repeats
            self.read += 1
            progress(given.line)
        if bad:
            raise _bad_rows(source.path, bad, faults)
        if lines == 0:
            self.warnings.append(f"{source.path}: {dataset.label} holds no rows")
        if stamped:
            self.warnings.append(f"{source.path}: agent_ref is left out of {stamped} rows; a declared dataset is routed by its instance")

    def _collated(self, number: int, source: Source, given: InputRow, metrics: DatasetMetrics) -> bytes:
        """The row as a line of the output, taken into the figures. Raises BadRowError, RowError."""
        dataset, row = source.dataset, given.row
        if self._strict:
            with suppress(BadRowError):  # NeMo Gym's rule: such a row is collated and only changes no figure
                metrics.observe(row, dataset.num_repeats, needs_params=dataset.taskset is None)
        task_id = self._task_id(source, given)
        sent = row
        if source.prompt is not None:
            if has_input(row):
                raise BadRowError("responses_create_params.input", "the row has one, and its dataset a prompt_config")
            try:
                sent = source.prompt.apply(row)
            except DatasetError as error:
                raise BadRowError("", f"{error.message} ({source.prompt.path})") from None
        if not self._strict:
            metrics.observe(sent, dataset.num_repeats, needs_params=dataset.taskset is None)
        sent = {key: value for key, value in sent.items() if key != AGENT_REF}
        if dataset.taskset is not None:
            try:
                sent = materialize(sent, dataset.taskset, task_id)
            except ValueError as error:
                raise RowError(str(error), path=source.path, line=given.line) from None
            self._ids.add(dataset.taskset, task_id, Place(number, given.line))
        else:
            if is_materialized(sent) and ROLLOUT_INDEX not in sent and ATTEMPT_INDEX not in sent:
                # With such an index it is one of several rollouts of a task, which share the id by design.
                self._ids.add(sent[TASK_ID]["taskset"], sent[TASK_ID]["task_id"], Place(number, given.line))
            sent[TASK_SOURCE] = dataset.instance
        try:
            return orjson.dumps(sent, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:
            raise RowError(TOO_DEEP, path=source.path, line=given.line) from None

    def _task_id(self, source: Source, given: InputRow) -> str:
        """The id of a row of a taskset: its own, else one of its content, so that it is the same wherever the row stands.

        The prompt is no part of it. ``strict``: its place among the source rows of all datasets of the type. Empty without a taskset.
        """
        if source.dataset.taskset is None:
            return ""
        try:
            own = given_id(given.row)
            if own is not None:
                return own
            return str(self.read) if self._strict else content_id(given.row)
        except ValueError as error:
            raise RowError(str(error), path=source.path, line=given.line) from None

    def _refuse_duplicates(self) -> None:
        found = self._ids.duplicate()
        if found is None:
            return
        first, again = self._at(found.first), self._at(found.again)
        source = self.sources[found.again.dataset]
        row = next(islice(read_rows(source.path), found.again.line - 1, None)).row
        same = ""
        if source.dataset.taskset is None:
            taskset, task_id = row[TASK_ID]["taskset"], row[TASK_ID]["task_id"]
        else:
            taskset, own = source.dataset.taskset, given_id(row)
            task_id = content_id(row) if own is None else own
            same = " (neither row brings an id, and their contents are the same)" if own is None else ""
        further = f", and {found.further} more rows have an id that was there before" if found.further else ""
        raise RowError(
            f"task id {task_id!r} of taskset {taskset!r} is also that of {first}{same}{further}",
            path=source.path,
            line=found.again.line,
            hint="Ids are unique in a taskset: change or remove one of the rows; num_repeats makes several rollouts of a row.",
            details=(first, again),
        )

    def _at(self, place: Place) -> str:
        return f"{self.sources[place.dataset].path}, line {place.line}"

    def _look(self, number: int, source: Source, config: Mapping[str, Any], roots: Sequence[Path], validation: str) -> None:
        """Schema and figures of the server that owns the rows."""
        code = find_task_code(config, source.dataset, roots)
        schema = code.schema if code is not None and validation != "off" else None
        if code is None or (schema is None and code.metrics is None):
            return
        prompt = source.prompt
        request = RowCheckRequest(
            rows=str(source.path),
            repeats=source.dataset.num_repeats,
            taskset=source.dataset.taskset,
            prompt=None if prompt is None else {"user": prompt.user, "system": prompt.system},
            strict=self._strict,
            schema_file=None if schema is None else str(schema),
            metrics_file=None if code.metrics is None else str(code.metrics),
            roots=[str(root) for root in roots],
        )
        answer = self._tools.check(request, source.dataset.label)
        if answer.error is not None:
            where = f"{source.path}, line {answer.line}" if answer.line is not None else str(source.path)
            raise TaskCodeError(answer.error, where=where, hint="The file is that of the server that owns the rows.")
        self.warnings += answer.warnings
        self._metrics[number].hook = {name: restored(state) for name, state in answer.metrics.items()}
        if answer.report is None or answer.report.clean:
            return
        error = _schema_error(answer.report, code.server, source.path)
        if validation == "error":
            raise error
        self.warnings += [str(error), *(f"  {line}" for line in error.details[1:])]

    @cached_property
    def _summaries(self) -> tuple[dict[int, dict[str, dict[str, int]]], dict[str, dict[str, int]]]:
        return self._texts.summaries()

    def dataset_metrics(self) -> Iterator[tuple[Source, dict[str, Any]]]:
        """Each dataset with the content of its metrics file."""
        apart, _ = self._summaries
        for number, (source, metrics) in enumerate(zip(self.sources, self._metrics, strict=True)):
            yield source, {**dataset_block(source.dataset, preparation=False), **metrics.document(apart.get(number, {}))}

    def type_metrics(self) -> dict[str, Any]:
        """The content of the type's metrics file: the keys of its first dataset, the figures of all rows.

        Raises TaskCodeError when two servers make different kinds of figures under one name.
        """
        _, together = self._summaries
        total = DatasetMetrics(self._texts, len(self.sources))
        for metrics in self._metrics:
            try:
                total.add(metrics)
            except ValueError as error:
                raise TaskCodeError(str(error), where=f"{self.type}_metrics.json") from None
        return {**dataset_block(self.sources[0].dataset, preparation=True), **total.document(together)}

    def publish(self) -> None:
        """Put the rows in their place. Raises DatasetError."""
        try:
            os.replace(self._part, self.target)
        except OSError as error:
            raise DatasetError(f"the rows cannot be written: {error.strerror}", where=str(self.target)) from None

    def __enter__(self) -> TypeCollation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stack.close()
        with suppress(OSError):  # there may be none, or no place for one; what ends this says so
            self._part.unlink()


class _Progress:
    """A line about a file that takes long, every few seconds."""

    def __init__(self, source: Source, tools: Tools) -> None:
        self._label = source.dataset.label
        self._tools = tools
        self._next = time.monotonic() + tools.progress_seconds

    def __call__(self, rows: int) -> None:
        if rows % _LOOK_EVERY == 0 and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._tools.progress_seconds
            self._tools.report(f"{self._label}: {rows} rows read")


def _bad_rows(path: Path, bad: Sequence[tuple[int, str]], count: int) -> RowError:
    line, message = bad[0]
    further = f" (and {count - 1} more rows like it)" if count > 1 else ""
    details = tuple(f"line {number}: {text}" for number, text in bad)
    return RowError(f"the row cannot be sent: {message}{further}", path=path, line=line, details=details if count > 1 else ())


def _schema_error(report: TaskDataReport, server: str, path: Path) -> TaskDataError:
    told = list(report.lines())
    line, message = told[0]
    further = report.error_rows - 1 if report.error_rows else 0
    keys = len(report.unknown) + len(report.conflicting) + len(report.misplaced) - (0 if report.error_rows else 1)
    more = [f"{further} more rows"] if further else []
    more += [f"{keys} more keys"] if keys else []
    also = f" (and {', '.join(more)})" if more else ""
    return TaskDataError(
        f"the row does not fit the task_data.py of {server}: {message}{also}",
        where=f"{path}, line {line}",
        hint="Mend the rows or the schema; ++task_data_validation=warn goes on all the same.",
        details=tuple(f"line {number}: {text}" for number, text in told),
    )
