"""What is legal and hardly meant: warnings about a merged config (contract-config 7.9)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gym_compose.config.directives import COPY, INHERIT
from gym_compose.config.environments import AGENT_FIELD, ENVIRONMENTS
from gym_compose.config.instances import Recognised
from gym_compose.config.reserved import RESERVED_KEYS
from gym_compose.wire.names import EXTENSION_KEY, SERVER_TYPES

_LONGEST_LABEL = 63


def diagnose(
    data: Mapping[Any, Any], instances: Sequence[Recognised], pinned: Collection[str], head_port: Any, *, one_host: bool
) -> Iterator[str]:
    """One line for each finding. ``one_host``: the servers share a network, so equal ports clash."""
    by_key = {instance.key: instance for instance in instances}
    for key, value in data.items():
        if key in RESERVED_KEYS or key == EXTENSION_KEY or not isinstance(value, dict):
            continue
        yield from _block(str(key), value, by_key.get(str(key)))
    for key in ("h", "help"):
        if data.get(key):
            yield f"{key}: NeMo Gym prints its help and does nothing when this key is set; it means nothing here."
    if one_host:
        yield from _ports(data, instances, pinned, head_port)


def _block(key: str, block: Mapping[Any, Any], instance: Recognised | None) -> Iterator[str]:
    if not block:
        yield f"{key}: an empty mapping at top level; NeMo Gym's `env start` fails on it."
        return
    kinds = [kind for kind in SERVER_TYPES if kind in block]
    if len(kinds) > 1:
        yield f"{key}: two server types in one block ({', '.join(kinds)}); one instance is one server, so give each its own name."
    if instance is None:
        return
    first = next(iter(block))
    if first not in SERVER_TYPES:
        yield f"{key}: NeMo Gym starts what stands first in a block, and that is '{first}'; put {instance.server_type} first."
    for directive in (INHERIT, COPY):
        if any(directive in level for level in _levels(block, instance)):
            yield (
                f"{key}: {directive} was left over: a block cannot inherit from one that inherits itself (there is no chaining), "
                "so nothing of its source is here. Name the first source instead."
            )
    if len(key) > _LONGEST_LABEL:
        yield f"{key}: the name has {len(key)} characters; a host name made of it is cut to {_LONGEST_LABEL}."
    if instance.server_type == ENVIRONMENTS:
        server = block[ENVIRONMENTS].get(instance.implementation) if isinstance(block.get(ENVIRONMENTS), dict) else None
        reference = server.get(AGENT_FIELD) if isinstance(server, dict) else None
        if isinstance(reference, dict) and reference.get("type") is None:
            yield (
                f"{key}: {AGENT_FIELD} has no type, so its name is not checked and the server refuses it at boot; "
                "add type: responses_api_agents."
            )


def _levels(block: Mapping[Any, Any], instance: Recognised) -> Iterator[Mapping[Any, Any]]:
    yield block
    below = block.get(instance.server_type)
    if isinstance(below, dict):
        yield below
        implementation = below.get(instance.implementation)
        if isinstance(implementation, dict):
            yield implementation


def _ports(data: Mapping[Any, Any], instances: Sequence[Recognised], pinned: Collection[str], head_port: Any) -> Iterator[str]:
    users: dict[str, list[str]] = defaultdict(list)
    users[str(head_port)].append("head_server")
    for instance in instances:
        if instance.key in pinned:
            holder: Any = data
            for step in instance.path:
                holder = holder[step]
            users[str(holder["port"])].append(instance.key)
    for port, names in users.items():
        if len(names) > 1:
            yield f"port {port} is pinned by {', '.join(names)}; on one host only the first of them can bind it."
