"""Agent composition: a standalone agent takes the place of the agents that a config binds (contract-config 1.9)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from gym_compose.config.agents import AGENTS, AgentInstance, agent_instances, is_unbound, stem
from gym_compose.config.environments import retarget
from gym_compose.config.errors import AgentCompositionError, OverrideError, UnsupportedAgentOverrideError
from gym_compose.config.interpolation import Tree
from gym_compose.config.pairing import check_agent_pairing, pairing_waived

CARRIED_OVER = ("resources_server", "model_server", "datasets")
"""What of the replaced agent's block goes over to its successor; nothing else does."""


@dataclass(frozen=True)
class Composed:
    """Where a composed agent comes from: the standalone agent, and the agent whose place it took."""

    standalone: AgentInstance
    replaced: AgentInstance


def composed_names(tree: Tree) -> frozenset[str]:
    """The instance names that composition is going to make, worked out on the files before overrides and directives."""
    agents = agent_instances(tree)
    sources = [agent for agent in agents if is_unbound(tree, agent)]
    if len(sources) != 1:
        return frozenset()
    return frozenset(_composed_name(agent, sources[0].agent_type) for agent in agents if agent.name != sources[0].name)


def hold_back(overrides: dict[Any, Any], names: frozenset[str]) -> dict[str, Any]:
    """Take the overrides of instances that do not exist yet out of ``overrides``; they go onto the composed agents."""
    return {name: overrides.pop(name) for name in list(overrides) if name in names}


def compose_agent(tree: Tree, held: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Composed]:
    """Replace every agent that has a resources server by the one unbound agent, if there is one. Returns the new agents by name.

    ``held`` loses what was applied. Raises AgentCompositionError, UnsupportedAgentPairingError, UnsupportedAgentOverrideError,
    OverrideError (a held override of a field that the agent does not have).
    """
    agents = agent_instances(tree)
    sources = [agent for agent in agents if is_unbound(tree, agent)]
    if not sources:
        return {}
    if len(sources) > 1:
        raise AgentCompositionError(
            f"{len(sources)} agents leave the name of their resources_server open: {', '.join(sorted(repr(s.name) for s in sources))}.",
            hint="Load one standalone agent config, and bind the others to a resources server.",
        )
    source = sources[0]
    targets = [agent for agent in agents if agent.name != source.name and _has_resources_server(tree, agent)]
    if not targets:
        raise AgentCompositionError(
            "it leaves the name of its resources_server open, and the config has no other agent whose place it could take.",
            where=source.name,
            hint="Select a benchmark, an environment or a resources server beside the agent.",
        )
    if not pairing_waived(tree, environ):
        check_agent_pairing(tree, source, targets)
    renames = {target.name: _composed_name(target, source.agent_type) for target in targets}
    _refuse_clashes(tree, renames, source.name)
    block = _block(tree, source)
    bindings = {target.name: _bindings(tree, target) for target in targets}
    del tree.data[source.name]
    # All old names go before the first new one comes: a new name may be the old one of another agent.
    instances = {target.name: tree.data.pop(target.name) for target in targets}
    for target in targets:
        name = renames[target.name]
        composed = copy.deepcopy({**block, **bindings[target.name]})
        composed = _with_override(composed, held.pop(name, None), name, source.agent_type)
        instance = instances[target.name]
        implementations = instance[AGENTS]
        del implementations[target.agent_type]
        implementations[source.agent_type] = composed
        tree.data[name] = instance
    tree.changed()
    retarget(tree, renames)
    _refuse_outdated_routing(tree, renames)
    declared = tree.value(("agent_map",))
    tree.data["agent_map"] = {**renames, **({str(key): value for key, value in declared.items()} if isinstance(declared, dict) else {})}
    tree.changed()
    unapplied = sorted(name for name in held if name not in renames.values())
    if unapplied:
        raise UnsupportedAgentOverrideError(
            f"overrides name agent instances that do not exist: {', '.join(unapplied)}.",
            hint=f"The composed agents are: {', '.join(sorted(renames.values()))}.",
        )
    return {renames[target.name]: Composed(source, target) for target in targets}


def _composed_name(target: AgentInstance, agent_type: str) -> str:
    short = stem(target.name, target.agent_type)
    return f"{short}_{agent_type}" if short else agent_type


def _has_resources_server(tree: Tree, agent: AgentInstance) -> bool:
    place = tree.at((*agent.path, "resources_server"))
    return place is not None and isinstance(place.value, dict)


def _block(tree: Tree, agent: AgentInstance) -> dict[Any, Any]:
    place = tree.at(agent.path)
    assert place is not None
    return dict(place.value)


def _bindings(tree: Tree, agent: AgentInstance) -> dict[str, Any]:
    """What goes over from an agent to its successor, interpolations followed; an open binding (``???``) stays open, to be reported."""
    place = tree.at(agent.path)
    assert place is not None
    return tree.select(place, *CARRIED_OVER)


def _with_override(composed: dict[Any, Any], override: Any, name: str, agent_type: str) -> dict[Any, Any]:
    """The held override merged over the block; a field that the block does not have is an error, as it would do nothing."""
    implementations = override.get(AGENTS) if isinstance(override, dict) else None
    changes = implementations.get(agent_type) if isinstance(implementations, dict) else None
    if not isinstance(changes, dict):
        return composed
    config = OmegaConf.create(composed)
    OmegaConf.set_struct(config, True)
    token = f"{name}.{AGENTS}.{agent_type}"
    try:
        config.merge_with(changes)
    except (ConfigAttributeError, ConfigKeyError) as error:
        raise OverrideError(
            f"the composed agent has no field '{error.key}'", token=token, hint=f"Its fields are: {', '.join(map(str, composed))}."
        ) from error
    except (OmegaConfBaseException, TypeError) as error:
        raise OverrideError(str(error).splitlines()[0], token=token) from error
    merged = OmegaConf.to_container(config, resolve=False)
    assert isinstance(merged, dict)
    return merged


def _refuse_clashes(tree: Tree, renames: Mapping[str, str], source: str) -> None:
    taken = set(tree.data) - set(renames) - {source}
    new = list(renames.values())
    clashes = sorted(f"{old} -> {name}" for old, name in renames.items() if name in taken or new.count(name) > 1)
    if clashes:
        raise AgentCompositionError(
            f"two instances would get the same name: {', '.join(clashes)}.", hint="Rename the agent instance of the environment."
        )


def _refuse_outdated_routing(tree: Tree, renames: Mapping[str, str]) -> None:
    """Where rows are sent has to exist; the keys of ``agent_map`` are read off the data and may be old."""
    outdated: list[tuple[str, str]] = []
    selected = tree.value(("agent_name",))
    if isinstance(selected, str) and selected in renames:
        outdated.append(("agent_name", selected))
    outdated += [
        (f"agent_map[{key}]", place.value)
        for key, place in tree.fields(("agent_map",))
        if isinstance(place.value, str) and place.value in renames
    ]
    for key, place in tree.fields(("fan_out",)):
        agents = place.value if isinstance(place.value, list) else []
        outdated += [(f"fan_out[{key}]", agent) for agent in agents if isinstance(agent, str) and agent in renames]
    if outdated:
        raise AgentCompositionError(
            "; ".join(f"{where} names '{name}', which is '{renames[name]}' now" for where, name in outdated) + ".",
            hint="Use the new names.",
        )
