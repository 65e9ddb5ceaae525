"""Hosts and ports for the recognised servers, their references checked on the way (contract-config 1.11, 1.14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gym_compose.config.instances import Recognised
from gym_compose.config.interpolation import Tree
from gym_compose.config.ports import PortAllocator
from gym_compose.config.references import check_reference, server_reference

HostFor = Callable[[str], str]


@dataclass(frozen=True)
class Placement:
    """What is given to a server that names no host or port of its own."""

    default_host: Any
    low: Any
    high: Any
    ports: PortAllocator
    host_for: HostFor | None = None
    """Host by instance key; then it decides for every server, also where the config names a host: in containers the address that a
    server binds is the one that its peers call (contract-config 7.2)."""


def place_servers(tree: Tree, instances: Sequence[Recognised], placement: Placement, head_port: Any) -> tuple[list[Any], frozenset[str]]:
    """Check the direct references of each block, then fill ``host`` and ``port``, in the order of the config.

    Returns (disallowed ports: the head's, then each server's in order; keys of the instances whose port the config pinned).
    Raises ServerRefNotFoundError, ConfigInterpolationError, PortAllocationError.
    """
    disallowed: list[Any] = [head_port] if head_port is not None else []
    pinned: set[str] = set()
    inject = {key: tree.value((key,)) for key in ("skip_verification", "skip_verification_reward")}
    for instance in instances:
        # All fields are resolved before the first reference is checked: a broken interpolation is reported first, as in the peer.
        for field, place in list(tree.fields(instance.path)):
            reference = server_reference(tree.select(place, "type", "name")) if isinstance(place.value, dict) else None
            if reference is not None:
                check_reference(instance, str(field), reference, instances)
        if placement.host_for is not None:
            tree.put((*instance.path, "host"), placement.host_for(instance.key))
        elif not tree.value((*instance.path, "host")):
            tree.put((*instance.path, "host"), placement.default_host)
        port = tree.value((*instance.path, "port"))
        if port:
            pinned.add(instance.key)
            disallowed.append(port)
        else:
            port = _allocate(placement, disallowed)
            tree.put((*instance.path, "port"), port)
            if not placement.ports.offline:
                disallowed.append(port)
        if instance.server_type == "responses_api_agents":
            block = tree.at(instance.path)
            assert block is not None
            for key, value in inject.items():
                if value is not None and key not in block.value:
                    tree.put((*instance.path, key), value)
    return disallowed, frozenset(pinned)


def _allocate(placement: Placement, disallowed: Sequence[Any]) -> int:
    taken = [int(port) for port in disallowed if isinstance(port, int | str) and str(port).isdecimal()]
    return placement.ports.allocate(placement.low, placement.high, taken)
