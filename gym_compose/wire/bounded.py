"""``gym_compose.aggregate_metrics``: metrics of any number of records, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, overload

from gym_compose.wire import aggregation
from gym_compose.wire.record_table import TASKS_AT_ONCE, RecordTable, RecordWriter
from gym_compose.wire.statistics import Summary
from gym_compose.wire.table import Record

IN_MEMORY: Final = 20_000
"""Up to so many records are held (about 60 MB); more go to a temporary file."""


class Groups(Sequence[dict[str, Any]]):
    """The entries of ``group_level_metrics``, each made when it is looked at: those of a million records would take more than a gigabyte.

    ``json.dumps`` takes it with ``default=list``.
    """

    def __init__(self, table: RecordTable) -> None:
        self._table = table
        self._length = table.number_of_groups
        # Nearly all tasks have all columns, each with two values and more: then only the numbers differ.
        full = Summary(2, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._names = tuple(aggregation.describe(dict.fromkeys(table.columns, full), table.columns, 2))
        self._first = -1
        self._page: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for first in range(0, self._length, TASKS_AT_ONCE):
            yield from self._entries(first)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError("no such group")
        first = place - place % TASKS_AT_ONCE
        if first != self._first:
            self._page = self._entries(first)
            self._first = first
        return self._page[place - first]

    def _entries(self, first: int) -> list[dict[str, Any]]:
        columns = self._table.columns
        return [
            aggregation.group_entry(row.group(columns))
            if None in row.values
            else aggregation.entry_of(row.task, dict(zip(self._names, row.values, strict=True)), row.infos)
            for row in self._table.groups_from(first)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compares by content


def aggregate_metrics(records: Iterable[Record], *, in_memory: int = IN_MEMORY, directory: Path | None = None) -> dict[str, Any]:
    """Metrics per task, overall and per repeat of the records of one server (contract-data 4.3), as its ``/aggregate_metrics`` gives them.

    ``records`` may be a generator, in any order; the order of what comes out is that of tasks and rollouts. With more than ``in_memory``
    of them they are sorted in a temporary file (below ``directory``, default TMPDIR), and ``group_level_metrics`` is a read-only sequence
    with the entries that a list would have. Raises ValueError when two records have the same task and rollout index.
    """
    stream = iter(records)
    held = list(islice(stream, in_memory + 1))
    if len(held) <= in_memory:
        return aggregation.aggregate_metrics(held)
    first = iter(held)
    del held
    with RecordWriter(directory) as writer:
        for record in chain(first, stream):
            writer.add(record)
        table = writer.table()
    result = aggregation.table_metrics(table)
    result["group_level_metrics"] = Groups(table)
    return result
