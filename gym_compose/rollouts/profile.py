"""``gym eval profile``: statistics of each task, agent and repeat of a run, beside its rollouts (contract-data 4.7).

Rollouts are read once and go to tables on disk; of an input row its key and place are held.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from pydantic import BaseModel, ConfigDict

from gym_compose.driver.aggregate import labels_of
from gym_compose.rollouts.errors import RolloutsDifferError
from gym_compose.rollouts.reader import read_lines
from gym_compose.wire.aggregation import across_repeats, coverage_of, describe, repeat_entry
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.record_table import TASKS_AT_ONCE, GroupRow, RecordTable, RecordWriter, Shapes, columns_of
from gym_compose.wire.run_body import AGENT_REF, ENVIRONMENT_SERVER, MASK_SAMPLE, ROLLOUT_INDEX, TASK_INDEX
from gym_compose.wire.table import Counts

_NAMED = 10
"""Keys that an error lists."""

Key = tuple[int, int]


class Profile(BaseModel):
    """What was profiled. Rollouts: ``expected`` input rows, ``completed`` of them with a result, ``masked`` of those in no statistic.
    Tasks (by what ran them): with all, some, none of their rollouts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expected: int
    completed: int
    completion_pct: float
    masked: int
    tasks: int
    complete_tasks: int
    partial_tasks: int
    missing_tasks: int
    files: dict[str, str]


def profile(inputs: Path, rollouts: Path, *, allow_partial: bool = False, directory: Path | None = None) -> Profile:
    """Write ``<stem>_reward_profiling.jsonl``, ``_agent_metrics.json`` and ``_repeat_level_metrics.json`` beside ``rollouts``.

    Masked rollouts are in no statistic and count as coverage of their agent. Raises RolloutsDifferError when a key is there twice, a
    rollout has no input row, or (unless ``allow_partial``) an input row no rollout; RolloutFileError, PrerequisiteError. Then nothing is
    written.
    """
    rows = _Rows.read(inputs)
    with ExitStack() as stack:
        measured = _Measured(rows, stack, directory)
        for line in read_lines(rollouts, flag="--rollouts"):
            measured.add(line.key, line.record)
        measured.check(rollouts, allow_partial=allow_partial)
        tables = {label: writer.table() for label, writer in measured.writers.items()}
        for table in tables.values():
            stack.callback(table.close)
        with inputs.open("rb") as lines:
            groups = _groups(rows, measured, tables, lines)
            files = _write(rollouts, groups, *_levels(rows, measured, tables))
    return measured.summary(files)


@dataclass
class _Rows:
    """The input rows by key: where they stand and what ran them. ``labels`` name the latter as the metrics of a run do."""

    places: dict[Key, tuple[int, str | None]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    agents: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> _Rows:
        rows = cls()
        agents: dict[str, str | None] = {}
        names: dict[str, str] = {}
        for line in read_lines(path, flag="--inputs"):
            if line.key in rows.places:
                raise RolloutsDifferError(f"rollout {_named(line.key)} is there twice", where=str(path))
            run, agent = _run_of(line.record)
            if run is not None:
                run = names.setdefault(run, run)  # one string for all rows, not one for each
                agents[run] = agents.get(run) or agent
            if agent is not None:
                rows.agents[line.key] = names.setdefault(agent, agent)
            rows.places[line.key] = (line.offset, run)
        rows.labels = labels_of(agents)
        return rows

    def label(self, key: Key) -> str | None:
        run = self.places[key][1]
        return None if run is None else self.labels[run]


@dataclass
class _Measured:
    """Rollouts as they are read: each to the table of what ran it."""

    rows: _Rows
    stack: ExitStack
    directory: Path | None
    writers: dict[str | None, RecordWriter] = field(default_factory=dict)
    seen: set[Key] = field(default_factory=set)
    masked: set[Key] = field(default_factory=set)
    extra: list[Key] = field(default_factory=list)
    first: dict[tuple[int, str | None], Key] = field(default_factory=dict)

    def add(self, key: Key, record: Mapping[str, Any]) -> None:
        if key in self.seen:
            raise RolloutsDifferError(f"rollout {_named(key)} is there twice", where="the rollouts")
        self.seen.add(key)
        if key not in self.rows.places:
            self.extra.append(key)
            return
        if record.get(MASK_SAMPLE):
            self.masked.add(key)
            return
        label = self.rows.label(key)
        if label not in self.writers:
            self.writers[label] = self.stack.enter_context(RecordWriter(self.directory))
        self.writers[label].add(record)
        group = (key[0], label)
        self.first[group] = min(self.first.get(group, key), key)

    def check(self, rollouts: Path, *, allow_partial: bool) -> None:
        if self.extra:
            raise RolloutsDifferError(
                f"{len(self.extra)} rollouts have no input row: {_listed(self.extra)}",
                where=str(rollouts),
                hint="Are both files of one run?",
            )
        missing = self.rows.places.keys() - self.seen
        if missing and not allow_partial:
            raise RolloutsDifferError(
                f"{len(missing)} input rows have no rollout: {_listed(missing)}",
                where=str(rollouts),
                hint="++allow_partial_rollouts=true profiles what is there.",
            )

    def shapes(self) -> Shapes:
        """Of all tables together: their columns have one order."""
        found: Shapes = {}
        for writer in self.writers.values():
            for shape, key in writer.shapes.items():
                found[shape] = min(found.get(shape, key), key)
        return found

    def expected(self) -> Counter[tuple[int, str | None]]:
        """Input rows by task and label, those of masked rollouts left out."""
        return Counter((key[0], self.rows.label(key)) for key in self.rows.places if key not in self.masked)

    def summary(self, files: Mapping[str, Path]) -> Profile:
        expected = Counter((key[0], run) for key, (_, run) in self.rows.places.items())
        completed = Counter((key[0], self.rows.places[key][1]) for key in self.seen)
        states = Counter(
            "complete" if completed[group] == count else "partial" if completed[group] else "missing" for group, count in expected.items()
        )
        return Profile(
            expected=len(self.rows.places),
            completed=len(self.seen),
            completion_pct=100.0 * len(self.seen) / len(self.rows.places) if self.rows.places else 100.0,
            masked=len(self.masked),
            tasks=len(expected),
            complete_tasks=states["complete"],
            partial_tasks=states["partial"],
            missing_tasks=states["missing"],
            files={kind: str(path) for kind, path in files.items()},
        )


Tables = Mapping[str | None, RecordTable]


def _groups(rows: _Rows, measured: _Measured, tables: Tables, inputs: BinaryIO) -> Iterator[dict[str, Any]]:
    """An entry for each task, in order; for each task and label, where a task ran on several."""
    expected = measured.expected()
    several = len(expected) > len({task for task, _ in expected})
    columns = columns_of(measured.shapes())
    streams = [_rows_of(table, label) for label, table in tables.items()]
    for task, label, row in heapq.merge(*streams, key=lambda item: (item[0], item[1] or "")):
        found = row.group(tables[label].columns).columns
        entry: dict[str, Any] = {TASK_INDEX: task, **describe(found, columns, row.rows)}
        if several and label is not None:
            entry[AGENT_REF] = {"name": label}
        wanted = expected[task, label]
        offset = rows.places[measured.first[task, label]][0]
        inputs.seek(offset)
        sample = orjson.loads(inputs.readline())
        entry["sample"] = {name: value for name, value in sample.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)}
        entry["num_rollouts"] = row.rows
        entry["expected_num_rollouts"] = wanted
        entry["missing_num_rollouts"] = wanted - row.rows
        entry["reward_profile_completion_pct"] = 100.0 * row.rows / wanted if wanted else 100.0
        entry["rollout_infos"] = row.infos
        yield entry


def _rows_of(table: RecordTable, label: str | None) -> Iterator[tuple[int, str | None, GroupRow]]:
    for first in range(0, table.number_of_groups, TASKS_AT_ONCE):
        for row in table.groups_from(first):
            yield row.task, label, row


def _levels(rows: _Rows, measured: _Measured, tables: Tables) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The entries of agents and of repeats, by label."""
    columns = columns_of(measured.shapes())
    coverage = _coverage(rows, measured)
    agents: list[dict[str, Any]] = []
    repeats: list[dict[str, Any]] = []
    for label in sorted(name for name in tables if name is not None):
        table = tables[label]
        counts = table.counts()
        found = list(table.repeats())
        entries = [repeat_entry(repeat, counts.scored_tasks) for repeat in found] if len(found) > 1 else []
        reference = {AGENT_REF: {"name": label}}
        repeats.extend({**reference, **entry} for entry in entries)
        agents.append(
            {**describe(table.overall(), columns, counts.scored), **reference, **across_repeats(entries), **coverage.pop(label, {})}
        )
    agents.extend({AGENT_REF: {"name": name}, **counted} for name, counted in coverage.items())
    return agents, repeats


def _coverage(rows: _Rows, measured: _Measured) -> dict[str, dict[str, Any]]:
    """What was masked of each agent; nothing for one of which nothing was."""
    by_agent: dict[str, list[Key]] = {}
    for key in sorted(measured.seen):
        if key in rows.agents:
            by_agent.setdefault(rows.agents[key], []).append(key)
    found = {}
    for name, keys in by_agent.items():
        scored = [key for key in keys if key not in measured.masked]
        counts = Counts(len(keys), len(scored), len({task for task, _ in keys}), len({task for task, _ in scored}), 0)
        if counts.scored < counts.rollouts:
            found[name] = coverage_of(counts)
    return found


def _write(
    rollouts: Path, groups: Iterator[dict[str, Any]], agents: Sequence[dict[str, Any]], repeats: Sequence[dict[str, Any]]
) -> dict[str, Path]:
    files = {
        "reward_profiling": rollouts.with_name(f"{rollouts.stem}_reward_profiling.jsonl"),
        "agent_metrics": rollouts.with_name(f"{rollouts.stem}_agent_metrics.json"),
        "repeat_level_metrics": rollouts.with_name(f"{rollouts.stem}_repeat_level_metrics.json"),
    }
    part = files["reward_profiling"].with_suffix(".part")
    try:
        with part.open("wb") as out:
            for entry in groups:
                out.write(_line(entry))
        part.replace(files["reward_profiling"])
        files["agent_metrics"].write_bytes(orjson.dumps(agents))
        files["repeat_level_metrics"].write_bytes(orjson.dumps(repeats))
    except OSError as error:
        raise PrerequisiteError(f"the profile cannot be written: {error.strerror}", where=str(rollouts.parent)) from None
    finally:
        part.unlink(missing_ok=True)
    return files


def _line(entry: Mapping[str, Any]) -> bytes:
    """Raises RolloutsDifferError for a group that holds an input row which JSON cannot be written of: it is read to 1,024 levels here and
    written to 254."""
    try:
        return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        raise RolloutsDifferError(
            f"the input row of task {entry[TASK_INDEX]} is nested too deep for a profile", hint="Take its rollouts out."
        ) from None


def _run_of(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What ran a row (its environment server, else its agent), and its agent."""
    reference = row.get(AGENT_REF)
    agent = reference.get("name") if isinstance(reference, dict) else None
    server = row.get(ENVIRONMENT_SERVER)
    return (server if server is not None else agent), agent


def _named(key: Key) -> str:
    return f"{key[0]}:{key[1]}"


def _listed(keys: Sequence[Key] | set[Key]) -> str:
    shown = sorted(keys)[:_NAMED]
    return ", ".join(map(_named, shown)) + (", …" if len(keys) > len(shown) else "")
