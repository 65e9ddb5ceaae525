"""Records of rollouts as a table: what metrics are made of, whether the records are in memory or on disk (contract-data 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gym_compose.wire.perf import PerfColumns, perf_columns
from gym_compose.wire.run_body import MASK_SAMPLE, PERF, ROLLOUT_INDEX, TASK_INDEX
from gym_compose.wire.statistics import Summary, summarize

Record = Mapping[str, Any]
Tasks = list[list[Record]]


@dataclass(frozen=True)
class Group:
    """A task's scored records: how many, the summary of each column that has values, and an entry of ``rollout_infos`` for each."""

    task: Any
    rows: int
    columns: Mapping[str, Summary]
    infos: list[dict[str, Any]]


@dataclass(frozen=True)
class Repeat:
    """All scored records with one rollout index: of how many tasks, and the summary (with quartiles) of each column that has values."""

    rollout: Any
    present: int
    columns: Mapping[str, Summary]


@dataclass(frozen=True)
class Counts:
    """How many rollouts and tasks there are, and how many of them are scored; ``repeats`` counts the masked ones too."""

    rollouts: int
    scored: int
    tasks: int
    scored_tasks: int
    repeats: int


class Table(Protocol):
    """Records as metrics see them; ``MemoryTable`` holds them, ``wire.record_table`` has them on disk.

    ``columns`` are the numeric columns of the scored records in the order in which they appear in the sorted records.
    """

    @property
    def columns(self) -> Sequence[str]: ...

    def counts(self) -> Counts: ...

    def perf(self) -> PerfColumns: ...

    def overall(self) -> Mapping[str, Summary]: ...

    def repeats(self) -> Iterable[Repeat]:
        """Each rollout index of the scored records, ascending."""


class MemoryTable:
    """Records that are in memory already. Raises ValueError when two scored ones have the same task and rollout index, or one is both
    scored and masked (missing indices count as 0)."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.scored = [record for record in records if not record.get(MASK_SAMPLE)]
        self._refuse_duplicates()
        self.scored.sort(key=key_of)
        measures = [measured(record) for record in self.scored]
        self._rows = [{name: float(value) for name, value in found.items()} for found, _ in measures]
        self._infos = [info for _, info in measures]
        self.columns = list(dict.fromkeys(name for row in self._rows for name in row))

    def _refuse_duplicates(self) -> None:
        seen = set()
        for record in self.scored:
            key = key_of(record)
            if key in seen:
                raise ValueError(twice(*key))
            seen.add(key)
        for record in self._records:
            if record.get(MASK_SAMPLE) and key_of(record) in seen:
                raise ValueError(twice(*key_of(record)))

    def counts(self) -> Counts:
        return Counts(
            rollouts=len(self._records),
            scored=len(self.scored),
            tasks=len({key_of(record)[0] for record in self._records}),
            scored_tasks=len({key_of(record)[0] for record in self.scored}),
            repeats=len({key_of(record)[1] for record in self._records}),
        )

    def perf(self) -> PerfColumns:
        return perf_columns([record[PERF] for record in self._records if isinstance(record.get(PERF), dict)])

    def overall(self) -> Mapping[str, Summary]:
        return self._summaries(range(len(self._rows)))

    def repeats(self) -> Iterator[Repeat]:
        members = self._members(1)
        for rollout in sorted(members):
            indices = members[rollout]
            present = len({key_of(self.scored[index])[0] for index in indices})
            yield Repeat(rollout, present, self._summaries(indices, quartiles=True))

    def groups(self) -> Iterator[Group]:
        for task, indices in self._members(0).items():
            yield Group(task, len(indices), self._summaries(indices), [self._infos[index] for index in indices])

    def by_task(self) -> Tasks:
        """The scored records themselves, for hooks."""
        return [[self.scored[index] for index in indices] for indices in self._members(0).values()]

    def by_repeat(self) -> dict[Any, list[Record]]:
        """The scored records of each rollout index, for hooks."""
        return {rollout: [self.scored[index] for index in indices] for rollout, indices in self._members(1).items()}

    def _members(self, part: int) -> dict[Any, list[int]]:
        members: dict[Any, list[int]] = {}
        for index, record in enumerate(self.scored):
            members.setdefault(key_of(record)[part], []).append(index)
        return members

    def _summaries(self, indices: Iterable[int], *, quartiles: bool = False) -> dict[str, Summary]:
        rows = [self._rows[index] for index in indices]
        found = {name: summarize([row[name] for row in rows if name in row], quartiles=quartiles) for name in self.columns}
        return {name: summary for name, summary in found.items() if summary is not None}


def key_of(record: Record) -> tuple[Any, Any]:
    """Task and rollout index of a record."""
    return record.get(TASK_INDEX, 0), record.get(ROLLOUT_INDEX, 0)


def twice(task: Any, rollout: Any) -> str:
    """What is wrong with two records of one rollout."""
    return f"two records have {TASK_INDEX} {task} and {ROLLOUT_INDEX} {rollout}"


_NOT_IN_INFO = frozenset(("reward", "response"))
_NUMBER = (int, float)  # a tuple: testing against a union type takes three times as long, and this is done for every cell


def _usage(record: Record) -> Mapping[str, Any]:
    response = record.get("response")
    usage = response.get("usage") if isinstance(response, dict | Mapping) else None
    return usage if isinstance(usage, dict | Mapping) else {}


def measured(record: Record) -> tuple[dict[str, float], dict[str, Any]]:
    """The numeric columns of a record (bools as ints), and its entry in ``rollout_infos``: its identity, reward and numbers as they are.

    Columns are those of the record, then those of ``response.usage``, which win over the same name (one that is no number hides the
    record's); in the entry usage comes first, and the record wins.
    """
    task, rollout = key_of(record)
    info: dict[str, Any] = {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
    if "reward" in record:
        info["reward"] = record["reward"]
    found = {
        name: value + 0 if value is True or value is False else value
        for name, value in record.items()
        if isinstance(value, _NUMBER) and name[:1] != "_" and name != MASK_SAMPLE
    }
    usage = _usage(record)
    if not usage:
        info.update((name, value) for name, value in found.items() if name not in _NOT_IN_INFO)
        return found, info
    mine = dict(found)
    for name, value in usage.items():
        if isinstance(value, _NUMBER):
            number = value + 0 if value is True or value is False else value
            info[name] = number
            if name[:1] != "_" and name != MASK_SAMPLE:
                found[name] = number
        elif name in found:
            del found[name]
    info.update((name, value) for name, value in mine.items() if name not in _NOT_IN_INFO)
    return found, info
