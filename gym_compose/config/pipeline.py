"""From sources to the merged config, in the contract's order (contract-config 1.15)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym_compose.config.agents import AGENTS
from gym_compose.config.aliases import route_old_agents
from gym_compose.config.composition import Composed, compose_agent, composed_names, hold_back
from gym_compose.config.defaults import fill_defaults, head_port
from gym_compose.config.diagnostics import diagnose
from gym_compose.config.directives import apply_directives
from gym_compose.config.dummy import fold_dummy_models
from gym_compose.config.environments import front_agents
from gym_compose.config.errors import ConfigError
from gym_compose.config.includes import CONFIG_PATHS
from gym_compose.config.instances import Recognised, recognise, refuse_almost_servers
from gym_compose.config.interpolation import MISSING, Tree, is_interpolation
from gym_compose.config.layers import COMMAND_LINE, INITIAL, Sources
from gym_compose.config.merge import Layer, merge_layers
from gym_compose.config.missing import fill_open, refuse_missing
from gym_compose.config.pairing import check_model_pairings, pairing_waived
from gym_compose.config.placement import HostFor, Placement, place_servers
from gym_compose.config.ports import DEFAULT_HIGH, DEFAULT_LOW, FixedPort, PortAllocator


@dataclass(frozen=True)
class Surroundings:
    """What the pipeline may know of the outside."""

    cwd: Path
    working_directory: Path
    """Where results and caches go by default: the working directory, or the install root of an editable checkout."""
    environ: Mapping[str, str]
    ports: PortAllocator
    machine_address: Callable[[], str]
    host_for: HostFor | None = None
    open_values: str | None = None
    """What stands for a value that is open; without it an open value is an error."""


@dataclass(frozen=True)
class Merged:
    """The end of the pipeline. ``tree`` holds the merged config, its interpolations unresolved."""

    tree: Tree
    instances: tuple[Recognised, ...]
    pinned: frozenset[str]
    warnings: tuple[str, ...]
    composed: Mapping[str, Composed] = field(default_factory=dict)
    """The agents that composition made, by name."""


def run_pipeline(sources: Sources, around: Surroundings) -> Merged:
    """Merge, then carry out everything that stands between the merge and a running deployment.

    Call it inside ``interpolation.environment``. Raises any class of ``errors``.
    """
    warnings = list(sources.notices)
    tree, held = _merge(sources)
    if sources.entries:
        tree.put((CONFIG_PATHS,), list(sources.entries))
    apply_directives(tree)
    composed = compose_agent(tree, held, around.environ)
    if held:
        tree = merge_layers([Layer("merged", tree.data), Layer(COMMAND_LINE, held)])
    route_old_agents(tree, warnings)
    if around.open_values is None:
        refuse_missing(tree.data)
    else:
        fill_open(tree, around.open_values)
    front_agents(tree, warnings)
    fold_dummy_models(tree)
    instances, almost = recognise(tree)
    if almost and tree.value(("error_on_almost_servers",), True):
        # The peer shows the whole config, masked, with this error, and resolves it for that: a broken interpolation anywhere comes first.
        tree.resolved()
        refuse_almost_servers(almost)
    warnings += [f"{block}; it is taken for no server." for block in almost]
    if not pairing_waived(tree, around.environ):
        check_model_pairings(tree)
    default_host = _default_host(tree, around)
    head = head_port(tree)
    for key, default in (("port_range_low", DEFAULT_LOW), ("port_range_high", DEFAULT_HIGH)):
        if key not in tree.data:
            tree.put((key,), default)
    placement = Placement(default_host, tree.value(("port_range_low",)), tree.value(("port_range_high",)), around.ports, around.host_for)
    disallowed, pinned = place_servers(tree, instances, placement, head)
    if isinstance(default_host, dict | list):
        raise ConfigError(f"it has to be a host name or address, not {default_host!r}.", where="default_host")
    fill_defaults(
        tree,
        default_host=default_host,
        disallowed_ports=disallowed,
        cwd=around.cwd,
        working_directory=around.working_directory,
        environ=around.environ,
    )
    one_host = not isinstance(around.ports, FixedPort)
    warnings += diagnose(tree.data, instances, pinned, head, one_host=one_host)
    return Merged(tree, instances, pinned, tuple(dict.fromkeys(warnings)), composed)


def _merge(sources: Sources) -> tuple[Tree, dict[str, Any]]:
    """The merged tree and the overrides that wait for composed agents."""
    overrides = copy.deepcopy(sources.overrides)
    initial = [Layer(INITIAL, sources.initial)]
    held: dict[str, Any] = {}
    # A composed agent is called after the unbound agent's type; without such a name among the overrides nothing has to wait, and the
    # merge without them is not needed.
    types = tuple(kind for layer in (*sources.below, *initial) for kind in _open_agent_types(layer.tree))
    if INTERPOLATED in types or (types and any(isinstance(name, str) and name.endswith(types) for name in overrides)):
        # A binding that is an interpolation has to be resolved here, as in the peer: by the files, before the overrides are merged.
        held = hold_back(overrides, composed_names(merge_layers([*sources.below, *initial])))
    top = [Layer(COMMAND_LINE, overrides)]
    if sources.initial:
        # Initial values and overrides are one source to the files: a mapping of the overrides over a scalar of the initial ones
        # merges with what the files have.
        top = [Layer(COMMAND_LINE, merge_layers([*initial, *top]).data)]
    return merge_layers([*sources.below, *top]), held


INTERPOLATED = ""
"""Stands for an agent of which only the merge of all files can tell whether it is bound."""


def _open_agent_types(tree: Mapping[Any, Any]) -> Iterator[str]:
    """The types of the agents in a file whose ``resources_server.name`` is ``???``: the only way to an unbound agent."""
    for instance in tree.values():
        implementations = instance.get(AGENTS) if isinstance(instance, dict) else None
        if is_interpolation(implementations):
            yield INTERPOLATED
        for kind, block in implementations.items() if isinstance(implementations, dict) else ():
            reference = block.get("resources_server") if isinstance(block, dict) else None
            if is_interpolation(reference):
                yield INTERPOLATED
            elif isinstance(reference, dict) and reference.get("name") == MISSING:
                yield str(kind)


def _default_host(tree: Tree, around: Surroundings) -> Any:
    if "use_absolute_ip" not in tree.data:
        tree.put(("use_absolute_ip",), False)
    if tree.value(("use_absolute_ip",)) and not around.ports.offline:
        return around.machine_address()
    return tree.value(("default_host",)) or "127.0.0.1"
