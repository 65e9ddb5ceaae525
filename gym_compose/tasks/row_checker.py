"""``python -m gym_compose.tasks.row_checker``: looks at the rows of one file with a server's own code.

Reads a RowCheckRequest from stdin and writes lines of JSON to stdout: ``{"rows": N}`` now and then, a RowCheckAnswer at the end. What the
server's code prints goes to stderr.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from gym_compose.tasks.dataset_metrics import FRAMEWORK_NAMES
from gym_compose.tasks.errors import DatasetError, RowError
from gym_compose.tasks.prompt import Prompt, has_input
from gym_compose.tasks.rows import TASK_INPUT, is_materialized, read_rows
from gym_compose.tasks.running_statistics import CategoryCounts, NumberStatistics, Statistics
from gym_compose.tasks.task_code import RowCheckAnswer, RowCheckRequest
from gym_compose.tasks.task_data import TaskDataValidator
from gym_compose.wire.flat_task import task_input_of

_SCHEMA_EXPORT = "TaskData"
_METRICS_EXPORT = "compute_task_metrics"
_PROGRESS_SECONDS = 1.0

Hook = Callable[[Mapping[str, Any]], Any]


class CodeError(Exception):
    """A server's code cannot be used."""


class HookMetrics:
    """The figures that a ``compute_task_metrics(task_input)`` gives, over all rows."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.found: dict[str, Statistics] = {}

    def observe(self, task_input: Mapping[str, Any], times: int) -> None:
        """Ask the hook about one task. Raises CodeError for what is no mapping of names to numbers, texts, lists of these or null."""
        try:
            answer = self._hook(task_input)
        except Exception as error:
            raise CodeError(f"{_METRICS_EXPORT} raised {type(error).__name__}: {error}") from error
        if not isinstance(answer, Mapping):
            raise CodeError(f"{_METRICS_EXPORT} returned {type(answer).__name__}, not a mapping")
        for name, value in answer.items():
            if not isinstance(name, str) or not name:
                raise CodeError(f"{_METRICS_EXPORT} returned the name {name!r}; a name is a text that is not empty")
            if name in FRAMEWORK_NAMES:
                raise CodeError(f"{_METRICS_EXPORT} returned {name!r}, which is a figure of every dataset; choose another name")
            for item in value if isinstance(value, list) else [value]:
                self._take(name, item, times)

    def _take(self, name: str, item: Any, times: int) -> None:
        if item is None:
            return
        if not isinstance(item, str | int | float):
            raise CodeError(f"{_METRICS_EXPORT} returned {name!r}: {item!r}, which is neither a number nor a text")
        kind = CategoryCounts if isinstance(item, str) else NumberStatistics
        _check_value(name, item)
        known = self.found.setdefault(name, kind())
        if not isinstance(known, kind):
            raise CodeError(f"{_METRICS_EXPORT} returned numbers and texts as {name!r}")
        known.observe(item, times)


def _check_value(name: str, item: str | int | float) -> None:
    """Raise CodeError for what no metrics file can hold: infinity, NaN, half a character."""
    try:
        if isinstance(item, str):
            (name + item).encode()
        elif not math.isfinite(item):
            raise CodeError(f"{_METRICS_EXPORT} returned {name!r}: {item!r}, which is no finite number")
    except OverflowError as error:
        raise CodeError(f"{_METRICS_EXPORT} returned {name!r}: a number too large for a metric") from error
    except UnicodeEncodeError as error:
        raise CodeError(f"{_METRICS_EXPORT} returned {name!r}: {item!r}, which is no text in UTF-8") from error


def check(request: RowCheckRequest, progress: Callable[[int], None]) -> RowCheckAnswer:
    """Look at all rows. A schema that cannot be loaded is a warning, metrics that cannot be made are an error (contract-data 3.4, 3.6)."""
    answer = RowCheckAnswer()
    validator = None
    line = None
    try:
        if request.schema_file is not None:
            try:
                validator = TaskDataValidator(_export(Path(request.schema_file), _SCHEMA_EXPORT))
            except Exception as error:  # noqa: BLE001  whatever its import raises, the schema is what cannot be used
                reason = str(error) if isinstance(error, CodeError) else f"{type(error).__name__}: {error}"
                answer.warnings.append(f"rows are not checked against {request.schema_file}: {' '.join(reason.split())}")
        hook = _hook(Path(request.metrics_file)) if request.metrics_file is not None else None
        if validator is None and hook is None:
            return answer
        metrics = HookMetrics(hook) if hook is not None else None
        prompt = Prompt(request.prompt["user"] or "", request.prompt.get("system")) if request.prompt is not None else None
        for source in read_rows(Path(request.rows)):
            line = source.line
            if validator is not None:
                validator.check(line, source.row)
            if metrics is not None and (task_input := _task_input(source.row, request, prompt)) is not None:
                metrics.observe(task_input, request.repeats)
            progress(line)
    except CodeError as error:
        answer.error, answer.line = f"{request.metrics_file}: {error}", line
    except (RowError, DatasetError) as error:
        answer.error = str(error)
    else:
        answer.report = validator.report if validator is not None else None
        answer.metrics = {name: statistics.state() for name, statistics in metrics.found.items()} if metrics is not None else {}
    return answer


def _task_input(row: dict[str, Any], request: RowCheckRequest, prompt: Prompt | None) -> Mapping[str, Any] | None:
    """What an environment server gets of the row; None where no figures are made of it."""
    if is_materialized(row):
        given = row[TASK_INPUT]
        return given if isinstance(given, Mapping) else None
    if request.strict:
        return None
    return task_input_of(prompt.apply(row) if prompt is not None and not has_input(row) else row)


def _hook(path: Path) -> Hook:
    try:
        hook = _export(path, _METRICS_EXPORT)
    except CodeError:
        raise
    except Exception as error:
        raise CodeError(f"it cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(hook):
        raise CodeError(f"{_METRICS_EXPORT} is no function")
    return hook  # type: ignore[no-any-return]


def _export(path: Path, name: str) -> Any:
    """The object called ``name`` of the module at ``path``. Raises CodeError without one, and whatever its import raises."""
    title = f"gym_compose_task_code.{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(title, path)
    if spec is None or spec.loader is None:
        raise CodeError("it is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module  # models that refer to each other by name look themselves up there
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if found is None:
        raise CodeError(f"it has no {name}")
    return found


class _Progress:
    """Tells how many rows were looked at, once a second at most."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def __call__(self, rows: int) -> None:
        if rows % 1000 == 0 and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            print(f'{{"rows": {rows}}}', file=self._out, flush=True)


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the server's code, those of its extensions included, stay out of the answer
    request = RowCheckRequest.model_validate_json(sys.stdin.read())
    sys.path[:0] = request.roots
    print(check(request, _Progress(out)).model_dump_json(), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
