"""Which agents an environment server fronts: one definition for config, tasks and driver (contract-data 1.5, contract-config 1.10).

All functions take plain mappings, so that they serve a merged config and the head server's answer alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gym_compose.wire.names import SERVER_TYPES, ServerType

AGENT_TYPE: ServerType = "responses_api_agents"
ENVIRONMENT_TYPE: ServerType = "environment_servers"
RESOURCES_TYPE: ServerType = "resources_servers"
_AGENT_SERVER_FIELD = "agent_server"


@dataclass(frozen=True)
class AgentReference:
    """A top-level field of an environment server's block that refers to an agent. ``name`` is None when the reference has none."""

    field: str
    name: str | None


@dataclass(frozen=True)
class ServerBlock:
    """One server of a config: instance name, server type, implementation directory and its mapping."""

    instance: str
    server_type: ServerType
    implementation: str
    fields: Mapping[str, Any]


def environment_server_agent_refs(block: Mapping[str, Any]) -> tuple[AgentReference, ...]:
    """The agent references of an environment server's block, in field order.

    A field counts when its value is a mapping with ``type: responses_api_agents``, or when it is ``agent_server`` and has no type.
    Nested mappings and lists do not count.
    """
    found = []
    for field, value in block.items():
        if isinstance(value, Mapping) and refers_to_agent(field, value.get("type")):
            name = value.get("name")
            found.append(AgentReference(field, None if name is None else str(name)))
    return tuple(found)


def refers_to_agent(field: Any, kind: Any) -> bool:
    """The rule itself: whether a mapping with this ``type`` under this field refers to an agent. ``???`` is as good as no type."""
    return bool(kind == AGENT_TYPE or (field == _AGENT_SERVER_FIELD and kind in (None, "???")))


def environment_server_agent_names(block: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the agents that an environment server's block refers to, each once, in field order."""
    return tuple(dict.fromkeys(reference.name for reference in environment_server_agent_refs(block) if reference.name is not None))


def environment_server_attributed_agent(block: Mapping[str, Any]) -> str | None:
    """The agent to which an environment server's rollouts are attributed.

    The name of ``agent_server`` when that is a mapping, whatever its type; else that of the only reference with a name; else None.
    """
    primary = block.get(_AGENT_SERVER_FIELD)
    if isinstance(primary, Mapping):
        name = primary.get("name")
        return None if name is None else str(name)
    named = [reference.name for reference in environment_server_agent_refs(block) if reference.name is not None]
    return named[0] if len(named) == 1 else None


def server_blocks(config: Mapping[str, Any], server_type: ServerType | None = None) -> Iterator[ServerBlock]:
    """The servers of a config in its order, all or those of one type; what is not of a server's shape is passed over."""
    for instance, top in config.items():
        if not isinstance(top, Mapping):
            continue
        for kind in SERVER_TYPES if server_type is None else (server_type,):
            implementations = top.get(kind)
            if not isinstance(implementations, Mapping):
                continue
            for implementation, fields in implementations.items():
                if isinstance(fields, Mapping):
                    yield ServerBlock(str(instance), kind, str(implementation), fields)


def has_server_type(config: Mapping[str, Any], instance: str, server_type: ServerType) -> bool:
    """Whether the top-level block ``instance`` declares a server of this type."""
    top = config.get(instance)
    return isinstance(top, Mapping) and server_type in top


def referenced_name(block: Mapping[str, Any], field: str) -> str | None:
    """The name in the reference that stands in ``field``; None when there is none."""
    value = block.get(field)
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else None
