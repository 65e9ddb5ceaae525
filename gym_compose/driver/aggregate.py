"""Metrics over stored rollouts, asked from each environment server that ran some (contract-data 4.1, 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.driver.counting import NOTHING, Counted, Counting, Stored, count_as_zero
from gym_compose.driver.errors import AggregationError
from gym_compose.driver.metrics_request import RecordGroup, read_records, refuse_duplicates, write_metrics
from gym_compose.driver.output import OutputPaths
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.tasks.rows import AGENT_REF, ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, agent_of
from gym_compose.wire.settings import Settings


@dataclass(frozen=True)
class Aggregated:
    """The entries that were written, without their groups, what was counted beside the rollouts, and how many records each server got."""

    entries: tuple[dict[str, Any], ...]
    counted: Counted
    records: dict[str, int]


async def aggregate(
    shards: Sequence[OutputPaths],
    target: Path,
    servers: Mapping[str, EnvironmentServer],
    settings: Settings,
    counting: Counting = NOTHING,
    before: Callable[[Counted], None] | None = None,
) -> Aggregated:
    """Ask each server that has rollouts in the files of ``shards``, write ``target``.

    Rollouts are sent sorted by (task, rollout), heavy fields left out; entries stand in the order of ``servers`` (the peer's order is
    that of completion). Without rollouts nothing is written. ``before`` is called when all files are read and nothing was sent or written
    yet. Raises AggregationError, OutputFailedError.
    """
    groups, counted = _index(shards, servers, counting)
    files = [shard.rollouts for shard in shards]
    asked = [(groups[name], groups[name].order()) for name in servers if name in groups]
    for group, order in asked:
        refuse_duplicates(group, order, files)
    if before is not None:
        before(counted)
    labels = labels_of({name: group.agent for name, group in groups.items()})
    for name, group in groups.items():
        group.head = {AGENT_REF: {"name": labels[name]}, ENVIRONMENT_SERVER: name}
    entries = await write_metrics(files, asked, target, settings) if asked else ()
    return Aggregated(entries, counted, {name: len(group.tasks) for name, group in groups.items()})


def labels_of(agents: Mapping[str, str | None]) -> dict[str, str]:
    """A unique label for each server: its agent's name when no other server has that agent and no server that name, else its own."""
    shared = Counter(agents.values())
    return {name: agent if agent is not None and shared[agent] == 1 and agent not in agents else name for name, agent in agents.items()}


def group_of(record: Mapping[str, Any], servers: Mapping[str, EnvironmentServer]) -> str | None:
    """The environment server whose metrics a record belongs to: the one that it names, else the only one that fronts its agent; None when
    it names neither. Raises AggregationError when that one does not run, or several front the agent."""
    name = record.get(ENVIRONMENT_SERVER)
    if name is None:
        agent = agent_of(record)
        if agent is None:
            return None
        fronting = [server.name for server in servers.values() if agent in server.agents]
        if len(fronting) == 1:
            return fronting[0]
        raise AggregationError(f"a rollout of agent {agent!r} names no environment server, and {len(fronting)} that run front it")
    if not isinstance(name, str) or name not in servers:
        known = ", ".join(sorted(servers))
        raise AggregationError(f"a rollout names environment server {name!r}, which does not run", hint=f"Running: {known}.")
    return name


def _index(
    shards: Sequence[OutputPaths], servers: Mapping[str, EnvironmentServer], counting: Counting
) -> tuple[dict[str, RecordGroup], Counted]:
    groups: dict[str, RecordGroup] = {}
    stored, nameless = Stored(), 0

    def group_for(name: str, record: Mapping[str, Any]) -> RecordGroup:
        if name not in groups:
            groups[name] = RecordGroup(name, servers[name].url, agent_of(record) or servers[name].agent)
        return groups[name]

    for number, shard in enumerate(shards):
        keys: set[tuple[int, int]] = set()
        stored.keys.append(keys)
        for offset, record in read_records(shard.rollouts):
            try:
                name = group_of(record, servers)
            except AggregationError as error:
                raise AggregationError(error.message, where=str(shard.rollouts), hint=error.hint) from None
            if name is None:
                nameless += 1
                continue
            group_for(name, record).add(number, offset, record)
            if counting:
                keys.add((record[TASK_INDEX], record[ROLLOUT_INDEX]))
                stored.identities.add((name, record[TASK_INDEX], record[ROLLOUT_INDEX]))
                stored.fields.setdefault(name, set()).update(record)
    counted = count_as_zero(counting, shards, stored, lambda record: group_of(record, servers)) if counting else Counted()
    for name, records in counted.records.items():
        for record in records:
            group_for(name, record).add_record(record)
    if nameless:
        counted.warnings.append(f"{nameless} rollouts name neither an environment server nor an agent and are in no metrics")
    return groups, counted
