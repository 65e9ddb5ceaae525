"""Failed and missing rollouts that count as zeros in a run's metrics, and nowhere else (contract-data 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_compose.driver.output import OutputPaths
from gym_compose.driver.stored import stored_lines
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, agent_of
from gym_compose.wire.run_body import AGENT_REF, FAILURE_CLASS, MASK_SAMPLE

_DIAGNOSTICS = frozenset(("failure_kind", "failure_reason"))
_NOT_OF_A_TASK = frozenset(("responses_create_params", "response"))

Key = tuple[int, int]
Identity = tuple[str, int, int]
GroupOf = Callable[[Mapping[str, Any]], str | None]


@dataclass(frozen=True)
class Counting:
    """``classes``: failures of these classes count; ``missing``: rows that left no trace do."""

    classes: tuple[str, ...] = ()
    missing: bool = False

    def __bool__(self) -> bool:
        return bool(self.classes) or self.missing


NOTHING = Counting()


@dataclass
class Stored:
    """What the rollouts files hold: keys by file, identities (server, task, rollout), and the fields that rows of each server carry."""

    keys: list[set[Key]] = field(default_factory=list)
    identities: set[Identity] = field(default_factory=set)
    fields: dict[str, set[str]] = field(default_factory=dict)


@dataclass
class Counted:
    """Records to add to the metrics' input, by server, how many of each kind, and what to tell about rows that could not be counted."""

    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: int = 0
    missing: int = 0
    warnings: list[str] = field(default_factory=list)

    def add(self, server: str, record: dict[str, Any]) -> None:
        self.records.setdefault(server, []).append(record)


def count_as_zero(counting: Counting, shards: Sequence[OutputPaths], stored: Stored, group_of: GroupOf) -> Counted:
    """The records to add. Each file of rollouts is held against its own failures and inputs: separate runs number their tasks from 0."""
    counted = Counted()
    failures: dict[Identity, dict[str, Any]] = {}
    seen: list[set[Key]] = []
    for shard, keys in zip(shards, stored.keys, strict=True):
        latest = {_key(line.record): line.record for line in stored_lines(shard.failures, [])}
        seen.append(set(latest))
        failures.update((_identity(record, group_of), record) for key, record in latest.items() if key not in keys)
    wanted = {name: record for name, record in failures.items() if name not in stored.identities and _named(record)}
    added: dict[Identity, dict[str, Any]] = {}
    for identity, record in wanted.items():
        if record.get(FAILURE_CLASS) in counting.classes:
            added[identity] = _as_zero(record)
    counted.failed = len(added)
    if counting.missing:
        taken = stored.identities | failures.keys()
        for shard, keys, failed in zip(shards, stored.keys, seen, strict=True):
            _add_missing(shard, keys | failed, taken, group_of, added, counted)
    _fill(added, shards, stored, group_of)
    for (server, _, _), record in added.items():
        counted.add(server, record)
    return counted


def _add_missing(
    shard: OutputPaths,
    present: set[Key],
    taken: set[Identity],
    group_of: GroupOf,
    added: dict[Identity, dict[str, Any]],
    counted: Counted,
) -> None:
    if not shard.materialized.exists():
        counted.warnings.append(f"{shard.materialized.name} is not there: what is missing in {shard.rollouts.name} cannot be counted")
        return
    nameless = 0
    for line in stored_lines(shard.materialized, []):
        row = line.record
        if _key(row) in present:
            continue
        if not _named(row):
            nameless += 1
            continue
        identity = _identity(row, group_of)
        if identity in taken:
            continue
        taken.add(identity)
        zero = {TASK_INDEX: row[TASK_INDEX], ROLLOUT_INDEX: row[ROLLOUT_INDEX], AGENT_REF: row.get(AGENT_REF), "reward": 0.0}
        if ENVIRONMENT_SERVER in row:
            zero[ENVIRONMENT_SERVER] = row[ENVIRONMENT_SERVER]
        added[identity] = zero
        counted.missing += 1
    if nameless:
        counted.warnings.append(f"{nameless} rows of {shard.materialized.name} name no agent and no environment server: not counted")


def _fill(added: Mapping[Identity, dict[str, Any]], shards: Iterable[OutputPaths], stored: Stored, group_of: GroupOf) -> None:
    """Give added records their task's fields, as far as real rows of the same server carry them."""
    if not added:
        return
    for shard in shards:
        for line in stored_lines(shard.materialized, []):
            target = added.get(_identity(line.record, group_of))
            if target is not None:
                carried = stored.fields.get(_identity(line.record, group_of)[0], set())
                for name, value in line.record.items():
                    if name in carried and name[:1] != "_" and name not in _NOT_OF_A_TASK:
                        target.setdefault(name, value)


def _as_zero(record: Mapping[str, Any]) -> dict[str, Any]:
    zero = {name: value for name, value in record.items() if not name.startswith("_ng_failure_") and name not in _DIAGNOSTICS}
    zero[MASK_SAMPLE] = False
    zero.setdefault("reward", 0.0)
    return zero


def _key(record: Mapping[str, Any]) -> Key:
    return record[TASK_INDEX], record[ROLLOUT_INDEX]


def _identity(record: Mapping[str, Any], group_of: GroupOf) -> Identity:
    return group_of(record) or "", *_key(record)


def _named(record: Mapping[str, Any]) -> bool:
    return agent_of(record) is not None or isinstance(record.get(ENVIRONMENT_SERVER), str)
