"""Agent instances of a config that is still being merged (contract-config 1.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gym_compose.config.interpolation import MISSING, Tree
from gym_compose.config.model import KeyPath
from gym_compose.config.reserved import RESERVED_KEYS

AGENTS = "responses_api_agents"


@dataclass(frozen=True)
class AgentInstance:
    """A top-level mapping with exactly one implementation under ``responses_api_agents``; ``path`` leads to that block."""

    name: str
    agent_type: str
    path: KeyPath


def agent_instances(tree: Tree) -> list[AgentInstance]:
    """All of them, in the order of the config. An instance that is an interpolation itself is none."""
    found = []
    for name, value in tree.data.items():
        if name in RESERVED_KEYS or not isinstance(value, dict) or value.get(AGENTS, MISSING) == MISSING:
            continue
        holder = tree.at((name, AGENTS))
        if holder is None or holder.path is None or not isinstance(holder.value, dict) or len(holder.value) != 1:
            continue
        [agent_type] = holder.value
        if isinstance(holder.value[agent_type], dict):
            found.append(AgentInstance(str(name), str(agent_type), (*holder.path, agent_type)))
    return found


def bound_reference(tree: Tree, agent: AgentInstance, field: str) -> dict[Any, Any] | None:
    """Type and name of what the agent has under ``resources_server`` or ``model_server``; None without a mapping there."""
    place = tree.at((*agent.path, field))
    if place is None or not isinstance(place.value, dict):
        return None
    return tree.select(place, "type", "name")


def is_unbound(tree: Tree, agent: AgentInstance) -> bool:
    """Whether the agent leaves the name of its resources server open. One without a ``resources_server`` is self-contained, not unbound."""
    place = tree.at((*agent.path, "resources_server"))
    return place is not None and isinstance(place.value, dict) and place.value.get("name") == MISSING


def stem(name: str, agent_type: str) -> str:
    """The instance name without its trailing agent type, else without a trailing ``_agent``; may be empty."""
    short = name.removesuffix(f"_{agent_type}").removesuffix(agent_type).rstrip("_")
    return name.removesuffix("_agent").rstrip("_") if short == name else short
