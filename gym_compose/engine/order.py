"""In which order a project stops: who is called last stops last (drivers, environment servers, agents, resources, models, Ray, head).

The server type of a service is read from its public slice in the project directory, which both engines keep; a service whose slice is
gone stops with the resources servers, in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from gym_compose.engine.interface import ServiceState
from gym_compose.wire.names import ServerType

_TIER: Mapping[ServerType, int] = {"environment_servers": 1, "responses_api_agents": 2, "resources_servers": 3, "responses_api_models": 4}
_DRIVER, _UNKNOWN, _RAY, _HEAD = 0, 3, 5, 6


def server_types(directory: Path | None) -> dict[str, str]:
    """``{service: server type}`` out of ``slices/<service>/public.json``; a file that cannot be read is left out."""
    types: dict[str, str] = {}
    if directory is None:
        return types
    for file in sorted((directory / "slices").glob("*/public.json")):
        try:
            document = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(document, dict) and isinstance(document.get("server_type"), str):
            types[file.parent.name] = document["server_type"]
    return types


def stop_tiers(states: Iterable[ServiceState], types: Mapping[str, str]) -> Sequence[Sequence[ServiceState]]:
    """The services in groups that stop one after the other; within a group, by name, they stop together."""
    tiers: dict[int, list[ServiceState]] = {}
    for state in sorted(states, key=lambda state: (state.service, state.identity or "")):
        tiers.setdefault(_tier(state, types), []).append(state)
    return tuple(tuple(tiers[tier]) for tier in sorted(tiers))


def _tier(state: ServiceState, types: Mapping[str, str]) -> int:
    if state.role == "driver":
        return _DRIVER
    if state.role in ("head", "relay"):
        return _HEAD
    if state.role == "ray":
        return _RAY
    for server_type, tier in _TIER.items():
        if types.get(state.service) == server_type:
            return tier
    return _UNKNOWN
