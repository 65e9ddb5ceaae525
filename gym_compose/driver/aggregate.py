"""Metrics over a run's rollouts, asked from each environment server that ran some (contract-data 4.1, 4.2)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gym_compose.driver.errors import AggregationError, OutputFailedError
from gym_compose.driver.output import write_document
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.serving.client import HttpClient, PeerError
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, agent_of
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.settings import Settings

_HEAVY = frozenset(("response", "responses_create_params", "ng_agent_observations", "ng_model_call_capture", "ng_trajectory"))
_KEPT_OF_RESPONSE = ("usage", "incomplete_details")
_METRICS = ("agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics")


@dataclass
class _Group:
    """Where a server's rollouts stand in the output file: offset, task and rollout index of each."""

    agent: str | None
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    tasks: array[int] = field(default_factory=lambda: array("q"))
    rollouts: array[int] = field(default_factory=lambda: array("q"))


async def aggregate(
    http: HttpClient, rollouts: Path, target: Path, servers: Mapping[str, EnvironmentServer], settings: Settings
) -> tuple[dict[str, Any], ...]:
    """Ask each server that has rollouts in the output file, write ``target``, return its entries.

    Rollouts are sent sorted by (task, rollout), heavy fields left out; entries stand in the order of ``servers`` (the peer's order is
    that of completion). Without rollouts nothing is written. Raises AggregationError, OutputFailedError.
    """
    groups = _index(rollouts, servers)
    if not groups:
        return ()
    labels = labels_of({name: group.agent for name, group in groups.items()})
    entries = []
    for name, server in servers.items():
        if name in groups:
            metrics = await _ask(http, server, _body(rollouts, groups[name]), settings)
            entry = {"agent_ref": {"name": labels[name]}, ENVIRONMENT_SERVER: name, **{key: metrics.get(key) for key in _METRICS}}
            if metrics.get("perf_summary") is not None:
                entry["perf_summary"] = metrics["perf_summary"]
            entries.append(entry)
    write_document(target, entries)
    return tuple(entries)


def labels_of(agents: Mapping[str, str | None]) -> dict[str, str]:
    """A unique label for each server: its agent's name when no other server has that agent and no server that name, else its own."""
    shared = Counter(agents.values())
    return {name: agent if agent is not None and shared[agent] == 1 and agent not in agents else name for name, agent in agents.items()}


def stripped(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is sent for aggregation: without heavy fields, with ``response: {usage, incomplete_details}`` where they exist."""
    light = {key: value for key, value in record.items() if key not in _HEAVY}
    response = record.get("response")
    if isinstance(response, Mapping):
        kept = {key: response[key] for key in _KEPT_OF_RESPONSE if response.get(key) is not None}
        if kept:
            light["response"] = kept
    return light


def _index(rollouts: Path, servers: Mapping[str, EnvironmentServer]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    position = 0
    for line, record in _lines(rollouts):
        name = record.get(ENVIRONMENT_SERVER)
        if not isinstance(name, str) or name not in servers:
            known = ", ".join(sorted(servers))
            raise AggregationError(
                f"a rollout names environment server {name!r}, which does not run", where=str(rollouts), hint=f"Running: {known}."
            )
        group = groups.get(name)
        if group is None:
            group = groups[name] = _Group(agent_of(record) or servers[name].agent)
        group.offsets.append(position)
        group.tasks.append(record[TASK_INDEX])
        group.rollouts.append(record[ROLLOUT_INDEX])
        position += len(line)
    return groups


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield line, orjson.loads(line)
    except (OSError, ValueError) as error:
        raise OutputFailedError(f"the rollouts cannot be read back: {error}", where=str(path)) from None


def _body(rollouts: Path, group: _Group) -> bytes:
    order = sorted(range(len(group.offsets)), key=lambda number: (group.tasks[number], group.rollouts[number]))
    # One growing buffer: kept one by one, what orjson returns holds far more memory than it has bytes.
    body = bytearray(b'{"verify_responses":[')
    with rollouts.open("rb") as lines:
        for place, number in enumerate(order):
            lines.seek(group.offsets[number])
            body += b"," if place else b""
            body += orjson.dumps(stripped(orjson.loads(lines.readline())))
    body += b"]}"
    return bytes(body)


async def _ask(http: HttpClient, server: EnvironmentServer, body: bytes, settings: Settings) -> dict[str, Any]:
    url = f"{server.url}/aggregate_metrics"
    deadline = Deadline.after(settings.aggregate_seconds, "aggregating metrics")
    try:
        reply = (
            await http.request("POST", url, data=body, headers={"content-type": "application/json"}, deadline=deadline)
        ).raise_for_status()
        metrics = reply.json()
    except (PeerError, ValueError) as error:
        raise AggregationError(f"no aggregate metrics from {server.name!r}: {error}", where=url, hint="The rollouts are saved.") from None
    if not isinstance(metrics, dict):
        raise AggregationError(f"what {server.name!r} answers is no aggregate", where=url, hint="The rollouts are saved.")
    return metrics
