"""Metrics of a dataset's rows: what stands in ``<stem>_metrics.json`` and ``<type>_metrics.json`` (contract-data 3.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from gym_compose.tasks.rows import PARAMS, TASK_ID, TASK_INPUT, is_materialized
from gym_compose.tasks.running_statistics import CategoryCounts, NumberStatistics, Statistics
from gym_compose.tasks.text_tally import TextTally
from gym_compose.wire.responses import ResponsesCreateParams

EXAMPLES: Final = "Number of examples"
TASKS: Final = "Number of tasks"
TASKSETS: Final = "Tasksets"
_TOOLS: Final = "Number of tools"
_WORDS: Final = "Json-dumped number of words (proxy for token count)"
_TASK_WORDS: Final = "Json-dumped task-input words (proxy for token count)"
_TURNS: Final = "Number of turns"
_TEMPERATURE: Final = "Temperature"
FRAMEWORK_NAMES: Final = frozenset((EXAMPLES, TASKS, TASKSETS, _TOOLS, _WORDS, _TASK_WORDS, _TURNS, _TEMPERATURE))
"""Names that a ``dataset_metrics.py`` may not take."""
_NOT_COUNTED: Final = frozenset((PARAMS, "response"))


class BadRowError(ValueError):
    """A row that no run can send; ``field`` is the dotted place, or empty."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)


class DatasetMetrics:
    """Metrics of one dataset, row by row, in memory that does not grow with the rows.

    ``texts`` counts the different texts of each key; ``number`` is this dataset's there.
    """

    def __init__(self, texts: TextTally, number: int) -> None:
        self.examples = 0
        self.tasks = 0
        self.framework = {name: NumberStatistics() for name in (_TOOLS, _WORDS, _TASK_WORDS, _TURNS, _TEMPERATURE)}
        self.numbers: dict[str, NumberStatistics] = {}
        self.tasksets = CategoryCounts()
        self.hook: dict[str, Statistics] = {}
        self._texts = texts
        self._number = number

    def observe(self, row: Mapping[str, Any], times: int = 1, *, needs_params: bool = True) -> None:
        """Take one row in, as often as it is repeated.

        Raises BadRowError for a row that cannot be sent: a flat one whose ``responses_create_params`` are missing or wrong (with
        ``needs_params`` off it is an example all the same: its environment server knows what it needs), or a materialized one whose parts
        are no task. Such a row changes no figure.
        """
        if is_materialized(row):
            self._materialized(row[TASK_ID], row[TASK_INPUT], times)
            return
        try:
            params = _params(row)
        except BadRowError:
            if needs_params:
                raise
            params = None
        self.examples += times
        if params is not None:
            self._params(params, times)
        self._others(row, times)

    def _materialized(self, task_id: Mapping[str, Any], task_input: Any, times: int) -> None:
        for key in ("taskset", "task_id"):
            if not isinstance(task_id.get(key), str) or not task_id[key]:
                raise BadRowError(f"{TASK_ID}.{key}", "a text that is not empty stands here")
        if not isinstance(task_input, Mapping):
            raise BadRowError(TASK_INPUT, "an object stands here")
        self.examples += times
        self.tasks += times
        self.framework[_TASK_WORDS].observe(_words(task_input), times)
        self.tasksets.observe(task_id["taskset"], times)

    def _params(self, params: ResponsesCreateParams, times: int) -> None:
        given = params.given_fields()
        observe = self.framework
        if given.get("tools") is not None:
            observe[_TOOLS].observe(len(given["tools"]), times)
        turns = sum(item.get("role") == "user" for item in params.items())
        if turns:
            observe[_TURNS].observe(turns, times)
        if given.get("temperature") is not None:
            observe[_TEMPERATURE].observe(given["temperature"], times)
        observe[_WORDS].observe(_words(given), times)

    def _others(self, row: Mapping[str, Any], times: int) -> None:
        """Numbers and texts of the row's other keys, those in a list one by one. What is deeper, and the collector's keys, are not
        looked at."""
        for key, value in row.items():
            if key in _NOT_COUNTED or key.startswith("_"):
                continue
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, str):
                    self._texts.observe(self._number, key, item, times)
                elif isinstance(item, int | float):
                    self.numbers.setdefault(key, NumberStatistics()).observe(item, times)

    def add(self, other: DatasetMetrics) -> None:
        """Take in another dataset's figures (its texts are counted by the tally).

        Raises ValueError when a hook's metric is a number in one and a category in the other.
        """
        self.examples += other.examples
        self.tasks += other.tasks
        self.tasksets.add(other.tasksets)
        for name, statistics in other.framework.items():
            self.framework[name].add(statistics)
        for key, statistics in other.numbers.items():
            self.numbers.setdefault(key, NumberStatistics()).add(statistics)
        for name, found in other.hook.items():
            try:
                self.hook.setdefault(name, type(found)()).add(found)
            except TypeError:
                raise ValueError(f"the metric {name!r} is a number in one dataset and a category in another") from None

    def document(self, texts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
        """The figures by the names of a metrics file. ``texts``: the tally's summaries for the same rows."""
        made: dict[str, Any] = {EXAMPLES: self.examples}
        if self.tasks:
            made[TASKS] = self.tasks
        made.update((name, statistics.summary()) for name, statistics in self.framework.items() if name != _TASK_WORDS or self.tasks)
        if self.tasks:
            made[TASKSETS] = self.tasksets.summary()
        for key in sorted({*self.numbers, *texts}):
            found = self.numbers[key].summary() if key in self.numbers else {}
            made[key] = {**found, **texts.get(key, {})}
        made.update((name, statistics.summary()) for name, statistics in sorted(self.hook.items()))
        return made


def _params(row: Mapping[str, Any]) -> ResponsesCreateParams:
    if PARAMS not in row:
        raise BadRowError(PARAMS, "the row has none")
    try:
        return ResponsesCreateParams.model_validate(row[PARAMS])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise BadRowError(".".join((PARAMS, *map(str, first["loc"]))), first["msg"]) from None


def _words(value: Any) -> int:
    return len(json.dumps(value).split())
