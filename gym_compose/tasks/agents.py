"""Which agent runs a dataset: the one resolver for listing, preparation, collation and dispatch (contract-data 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gym_compose.tasks.errors import DatasetAgentError
from gym_compose.wire.names import SERVER_TYPES
from gym_compose.wire.references import (
    AGENT_TYPE,
    ENVIRONMENT_TYPE,
    RESOURCES_TYPE,
    environment_server_agent_refs,
    environment_server_attributed_agent,
    has_server_type,
    referenced_name,
    server_blocks,
)
from gym_compose.wire.suggestions import close_or_all

ROUTES_KEY = "environment_server_routes"


def agents_of_resources_server(config: Mapping[str, Any], instance: str) -> tuple[str, ...]:
    """The agents whose ``resources_server`` is ``instance``, in the order of the config, each once."""
    names = (block.instance for block in server_blocks(config, AGENT_TYPE) if referenced_name(block.fields, "resources_server") == instance)
    return tuple(dict.fromkeys(names))


def dataset_agent_pins(config: Mapping[str, Any], instance: str) -> tuple[str, ...]:
    """The distinct ``agent:`` keys of the datasets that ``instance`` declares."""
    pins: dict[str, None] = {}
    for block in server_blocks({instance: config.get(instance)}):
        for dataset in block.fields.get("datasets") or ():
            if isinstance(dataset, Mapping) and isinstance(dataset.get("agent"), str):
                pins[dataset["agent"]] = None
    return tuple(pins)


def taskset_environment_server(config: Mapping[str, Any], taskset: str | None) -> str | None:
    """The environment server that ``environment_server_routes`` names for a taskset; None without a taskset or a route."""
    routes = config.get(ROUTES_KEY)
    target = routes.get(taskset) if taskset is not None and isinstance(routes, Mapping) else None
    return target if isinstance(target, str) and target else None


def resolve_dataset_agent(config: Mapping[str, Any], instance: str, *, pin: str | None = None, taskset: str | None = None) -> str | None:
    """The agent that runs a dataset declared by ``instance``.

    ``pin`` is the dataset's ``agent:``. With ``taskset`` the route decides, and None is the answer when its environment server fronts
    several agents without an ``agent_server``. Raises DatasetAgentError; each broken rule has a message of its own.
    """
    if taskset is not None:
        return _of_taskset(config, instance, pin, taskset)
    if has_server_type(config, instance, AGENT_TYPE):
        if pin is not None and pin != instance:
            raise DatasetAgentError(
                f"a dataset of agent {instance!r} pins agent {pin!r}, but the declaring agent runs it",
                hint="Remove `agent:`, or declare the dataset on the resources server.",
            )
        return instance
    candidates = agents_of_resources_server(config, instance)
    known = ", ".join(sorted(candidates)) or "none"
    if pin is not None:
        if pin not in candidates:
            raise DatasetAgentError(
                f"the dataset pins agent {pin!r}, which does not use resources server {instance!r}", hint=f"Agents that use it: {known}."
            )
        return pin
    if not candidates:
        raise DatasetAgentError(
            f"no agent uses resources server {instance!r}",
            hint="Point an agent's resources_server at it, or declare the dataset on the agent.",
        )
    if len(candidates) > 1:
        raise DatasetAgentError(
            f"{len(candidates)} agents use resources server {instance!r}: {known}",
            hint=f"Pin one with `agent:` in the dataset, or give agent_map={{{instance}: AGENT}}.",
        )
    return candidates[0]


def _of_taskset(config: Mapping[str, Any], instance: str, pin: str | None, taskset: str) -> str | None:
    target = taskset_environment_server(config, taskset)
    if target is None:
        raise _no_route(config, taskset)
    top = config.get(target)
    servers = top.get(ENVIRONMENT_TYPE) if isinstance(top, Mapping) else None
    if not isinstance(servers, Mapping) or len(servers) != 1:
        raise _not_one_server(config, taskset, target)
    server = next(iter(servers.values()))
    if not isinstance(server, Mapping):
        raise DatasetAgentError(f"environment server {target!r} has no fields", hint="Its block is a mapping.")
    agents = []
    for reference in environment_server_agent_refs(server):
        if reference.name is None or not has_server_type(config, reference.name, AGENT_TYPE):
            raise DatasetAgentError(f"{target}.{reference.field} names {reference.name!r}, which is not an agent")
        agents.append(reference.name)
    if not agents:
        raise DatasetAgentError(f"environment server {target!r} names no agent, so it cannot run taskset {taskset!r}")
    if pin is not None:
        raise DatasetAgentError(
            f"the dataset of taskset {taskset!r} pins agent {pin!r}, but a taskset is routed to environment server {target!r}",
            hint="Remove `agent:`.",
        )
    if has_server_type(config, instance, AGENT_TYPE):
        if instance not in agents:
            raise DatasetAgentError(
                f"taskset {taskset!r} of agent {instance!r} is routed to {target!r}, which fronts {', '.join(dict.fromkeys(agents))}"
            )
        return instance
    bound = server.get("resources_server")
    kind = bound.get("type", RESOURCES_TYPE) if isinstance(bound, Mapping) else None
    if kind != RESOURCES_TYPE or referenced_name(server, "resources_server") != instance:
        raise DatasetAgentError(
            f"taskset {taskset!r} is declared by resources server {instance!r}, but environment server {target!r} "
            f"is bound to {referenced_name(server, 'resources_server') or 'none'}"
        )
    return environment_server_attributed_agent(server)


def _no_route(config: Mapping[str, Any], taskset: str) -> DatasetAgentError:
    """Why ``environment_server_routes`` names no server for a taskset: it does not mention it, or it mentions several."""
    routes = config.get(ROUTES_KEY)
    target = routes.get(taskset) if isinstance(routes, Mapping) else None
    if not isinstance(target, list | tuple | Mapping) or not target:
        return DatasetAgentError(f"taskset {taskset!r} has no route", hint=f"Set {ROUTES_KEY}.{taskset} to an environment server.")
    return DatasetAgentError(
        f"taskset {taskset!r} is routed to {len(target)} servers: {', '.join(map(str, target))}",
        where=f"{ROUTES_KEY}.{taskset}",
        hint="A taskset has one environment server, named as a text. Rows that are for another need a taskset of their own.",
    )


def _not_one_server(config: Mapping[str, Any], taskset: str, target: str) -> DatasetAgentError:
    """Why the block that a route names is not one environment server: it is missing, of another type, or several."""
    top = config.get(target)
    leads = f"the route of taskset {taskset!r} leads to {target!r}, which is not one environment server"
    close = close_or_all(target, [block.instance for block in server_blocks(config, ENVIRONMENT_TYPE)])
    if not isinstance(top, Mapping):
        return DatasetAgentError(f"{leads}: the config has no such block", where=f"{ROUTES_KEY}.{taskset}", hint=close)
    servers = top.get(ENVIRONMENT_TYPE)
    if isinstance(servers, Mapping) and len(servers) > 1:
        return DatasetAgentError(
            f"{leads} but {len(servers)}: {', '.join(map(str, servers))}",
            where=f"{target}.{ENVIRONMENT_TYPE}",
            hint="Give each a block of its own, and the taskset the name of one.",
        )
    kinds = [kind for kind in SERVER_TYPES if kind in top and kind != ENVIRONMENT_TYPE]
    what = f"it holds {' and '.join(kinds)}" if kinds else "its block is empty"
    return DatasetAgentError(f"{leads}: {what}", where=f"{ROUTES_KEY}.{taskset}", hint=close)
