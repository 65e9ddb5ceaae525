"""Which agents an environment server fronts, and the relays that are made for agents that none fronts (contract-config 1.10).

Which fields refer to agents is decided in ``wire.references``, for routing, retargeting and listing alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gym_compose.config.agents import AgentInstance, agent_instances, is_unbound, stem
from gym_compose.config.errors import AgentWithoutEnvironmentServerError
from gym_compose.config.interpolation import Place, Tree
from gym_compose.config.model import KeyPath
from gym_compose.wire import references

AGENTS = "responses_api_agents"
ENVIRONMENTS = "environment_servers"
AGENT_FIELD = "agent_server"
STRICT_KEY = "error_on_agent_without_environment_server"
RELAY = "legacy_agent"
_SUFFIX = "_environment_server"


def environment_server_agent_refs(server: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The agent references of one environment server block, interpolations resolved, in the order of its fields.

    A top-level field counts when its value is a mapping whose ``type`` is ``responses_api_agents``, or when the field is
    ``agent_server`` and the ``type`` is absent or null.
    """
    return [server[reference.field] for reference in references.environment_server_agent_refs(server)]


def environment_server_agent_names(server: Mapping[str, Any]) -> list[str]:
    """The names in those references, each once; a reference without a name gives none."""
    return list(references.environment_server_agent_names(server))


def environment_server_attributed_agent(server: Mapping[str, Any]) -> str | None:
    """The agent that results of this server are booked on: that of ``agent_server``, else the only one it names, else None."""
    return references.environment_server_attributed_agent(server)


def environment_servers(tree: Tree, *, follow: bool = True) -> Iterator[tuple[str, str, Place]]:
    """(instance, implementation, place of the block) of everything under ``environment_servers``.

    With ``follow``, top-level interpolations are followed, so a broken one raises ConfigInterpolationError here.
    """
    top = tree.fields(()) if follow else ((name, Place(value, (name,))) for name, value in tree.data.items())
    for name, instance in list(top):
        if not isinstance(instance.value, dict) or instance.path is None:
            continue
        for implementation, server in list(tree.fields((*instance.path, ENVIRONMENTS))):
            if isinstance(server.value, dict):
                yield name, implementation, server


def agent_reference_fields(tree: Tree, server: Place, *, follow: bool = True) -> list[tuple[str, Place, Mapping[str, Any]]]:
    """(field, place, its type and name) of the agent references of a block that still is in the tree.

    With ``follow``, every field is resolved, so a broken one raises ConfigInterpolationError here.
    """
    found: list[tuple[str, Place, Mapping[str, Any]]] = []
    if server.path is None:
        return found
    raw = ((field, Place(value, (*server.path, field))) for field, value in server.value.items())
    for field, place in list(tree.fields(server.path) if follow else raw):
        if isinstance(place.value, dict) and references.refers_to_agent(field, tree.select(place, "type").get("type")):
            found.append((field, place, tree.select(place, "type", "name")))
    return found


def retarget(tree: Tree, renames: Mapping[str, str]) -> None:
    """Let every agent reference of every environment server follow its agent to the new name; the servers keep theirs."""
    changes: list[tuple[KeyPath, str]] = []
    for _, _, server in environment_servers(tree):
        for _, place, reference in agent_reference_fields(tree, server):
            name = reference.get("name")
            if isinstance(name, str) and name in renames and place.path is not None:
                changes.append(((*place.path, "name"), renames[name]))
    for path, name in changes:
        tree.put(path, name)


def relay_name(agent: str, agent_type: str) -> str:
    """The name of the relay that is made for an agent: its name without the agent type, or without ``_agent``, and a suffix."""
    return f"{stem(agent, agent_type) or agent_type}{_SUFFIX}"


def relay_block(agent: str) -> dict[str, Any]:
    return {ENVIRONMENTS: {RELAY: {"entrypoint": "app.py", AGENT_FIELD: {"type": AGENTS, "name": agent}}}}


def front_agents(tree: Tree, warnings: list[str]) -> None:
    """Add a relay for each agent that is bound, has an entry point and is named by no environment server, in sorted order.

    With ``error_on_agent_without_environment_server`` such agents raise AgentWithoutEnvironmentServerError.
    """
    fronted: set[str] = set()
    for _, _, server in environment_servers(tree):
        named = (reference.get("name") for _, _, reference in agent_reference_fields(tree, server))
        fronted.update(name for name in named if isinstance(name, str))
    alone: dict[str, AgentInstance] = {
        agent.name: agent
        for agent in agent_instances(tree)
        if agent.name not in fronted and not is_unbound(tree, agent) and tree.value((*agent.path, "entrypoint")) is not None
    }
    if not alone:
        return
    names = sorted(alone)
    if tree.value((STRICT_KEY,), False):
        raise AgentWithoutEnvironmentServerError(
            f"no environment server names {', '.join(repr(name) for name in names)}, so no rollout can reach them.",
            hint=f"Add an environment server whose {AGENT_FIELD} names the agent, or unset {STRICT_KEY} to have relays made.",
            details=tuple(f"- {name}" for name in names),
        )
    made: dict[str, str] = {}
    for name in names:
        relay = relay_name(name, alone[name].agent_type)
        if relay in tree.data or relay in made.values():
            relay = f"{name}{_SUFFIX}"
        while relay in tree.data:
            relay = f"{relay}{_SUFFIX}"
        tree.put((relay,), relay_block(name))
        made[name] = relay
    pairs = ", ".join(f"{relay} for {agent}" for agent, relay in made.items())
    warnings.append(
        f"Agents without an environment server are deprecated; a {RELAY} relay was made for each: {pairs}. "
        f"Declare it yourself: {{<name>: {{{ENVIRONMENTS}: {{{RELAY}: {{entrypoint: app.py, "
        f"{AGENT_FIELD}: {{type: {AGENTS}, name: <agent>}}}}}}}}}}; {STRICT_KEY}: true makes this an error."
    )
