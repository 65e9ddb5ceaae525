"""Which environment server gets a row, and whether it may (contract-data 1.5, 1.6). Everything is checked before a file is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gym_compose.driver.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError, RoutingError
from gym_compose.tasks.agents import ROUTES_KEY, dataset_agent_pins, resolve_dataset_agent
from gym_compose.tasks.errors import DatasetAgentError, RowOptionsError
from gym_compose.tasks.rows import AGENT_REF, ENVIRONMENT_SERVER, agent_of, source_of, taskset_of
from gym_compose.wire.names import EXTENSION_KEY
from gym_compose.wire.references import (
    AGENT_TYPE,
    ENVIRONMENT_TYPE,
    RESOURCES_TYPE,
    ServerBlock,
    environment_server_agent_names,
    environment_server_attributed_agent,
    has_server_type,
    referenced_name,
    server_blocks,
)
from gym_compose.wire.suggestions import close_or_all

RoutingMode = Literal["agent", "legacy", "taskset"]
IDEMPOTENT_KEY = "idempotent_episodes"
PAIRING_KEY = "allow_unsupported_pairing"
PAIRING_VARIABLE = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"


@dataclass(frozen=True)
class EnvironmentServer:
    """An environment server of the running deployment. ``agents`` are those it refers to, ``agent`` the one its rollouts count for.

    ``idempotent``: the config says that a second ``POST /run`` of one episode id does no harm
    (``compose: {servers: {NAME: {idempotent_episodes: true}}}``).
    """

    name: str
    implementation: str
    url: str
    agents: tuple[str, ...]
    agent: str | None
    resources_server: str | None
    idempotent: bool = False


class _Key(NamedTuple):
    """All that routing looks at in an expanded row."""

    materialized: bool
    server: str | None
    agent: str | None
    source: str | None


@dataclass
class _Decision:
    server: EnvironmentServer | None = None
    agent_ref: str | None = None
    problem: RoutingError | None = None
    first_line: int = 0
    rows: int = 0


@dataclass
class Router:
    """Routes the rows of one run by the head server's config.

    ``routes`` None: as the config says. ``choose`` decides before expansion, ``place`` after it; ``raise_problems`` ends the pass over the
    rows. Raises RowOptionsError when mode, name and routes do not fit each other.
    """

    config: Mapping[str, Any]
    mode: RoutingMode = "agent"
    server_name: str | None = None
    routes: Mapping[str, str] | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    servers: dict[str, EnvironmentServer] = field(init=False)
    _by_agent: dict[str, list[str]] = field(init=False)
    _decisions: dict[_Key, _Decision] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.routes is None:
            declared = self.config.get(ROUTES_KEY)
            self.routes = dict(declared) if isinstance(declared, Mapping) else {}
        self.servers = environment_servers(self.config)
        self._by_agent = {}
        for server in self.servers.values():
            for agent in server.agents:
                self._by_agent.setdefault(agent, []).append(server.name)
        if self.mode == "legacy" and not self.server_name:
            raise RowOptionsError("environment_routing_mode=legacy needs environment_server_name")
        if self.mode == "taskset" and not self.routes:
            raise RowOptionsError("environment_routing_mode=taskset needs environment_server_routes")

    def choose(self, row: Mapping[str, Any]) -> str | None:
        """The environment server that the mode chooses, None for "by its agent". Raises ValueError for a row without a route."""
        taskset = taskset_of(row)
        if taskset is not None:
            return self._route(taskset)
        if self.mode == "agent":
            return None
        if self.mode == "legacy":
            return self.server_name
        raise ValueError("environment_routing_mode=taskset takes materialized rows only; mode agent takes both kinds")

    def _route(self, taskset: str) -> str:
        """The environment server of a taskset. Raises ValueError when the routes name none, several, or one that does not run."""
        routes = self.routes or {}
        if taskset not in routes:
            raise ValueError(f"taskset {taskset!r} has no route in {ROUTES_KEY}. {close_or_all(taskset, list(routes))}")
        # A config's value may be anything; only a request's routes were checked.
        target: Any = routes[taskset]
        if isinstance(target, list | tuple):
            raise ValueError(f"taskset {taskset!r} is routed to {', '.join(map(repr, target))}: {ROUTES_KEY} names one server for each")
        if not isinstance(target, str) or target not in self.servers:
            what = "is not an environment server" if target in self.config else "is not in the running config"
            close = close_or_all(str(target), list(self.servers))
            raise ValueError(f"taskset {taskset!r} is routed to {target!r}, which {what}. {close}")
        return target

    def place(self, row: dict[str, Any], line: int = 0) -> EnvironmentServer | None:
        """The server that gets this row, which is stamped with ``agent_ref`` where it names none (contract-data 1.6 b, c).

        None when the row has a problem; problems are kept for ``raise_problems``.
        """
        stamp = row.get(ENVIRONMENT_SERVER)
        key = _Key(taskset_of(row) is not None, stamp if isinstance(stamp, str) else None, agent_of(row), source_of(row))
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self._decide(key)
            decision.first_line = line
        decision.rows += 1
        if decision.agent_ref is not None:
            row[AGENT_REF] = {"name": decision.agent_ref}
        return decision.server

    def raise_problems(self) -> None:
        """Raise what the rows so far had: the error of one kind alone, else one RoutingError; ``details`` list them all."""
        bad = [decision for decision in self._decisions.values() if decision.problem is not None]
        if not bad:
            return
        details = tuple(
            f"{decision.rows} row(s), first from line {decision.first_line}: {decision.problem}" for decision in bad if decision.problem
        )
        more = f" (and {len(bad) - 1} more kinds of rows)" if len(bad) > 1 else ""
        first = next(decision.problem for decision in bad if decision.problem is not None)
        kind = type(first) if all(isinstance(decision.problem, type(first)) for decision in bad) else RoutingError
        raise kind(first.message + more, where=first.where, hint=first.hint, details=details)

    def _decide(self, key: _Key) -> _Decision:
        try:
            if key.server is not None:
                return self._stamped(key, key.server)
            return self._by_its_agent(key)
        except RoutingError as error:
            return _Decision(problem=error)

    def _stamped(self, key: _Key, name: str) -> _Decision:
        server = self.servers.get(name)
        if server is None:
            what = "is not an environment server" if name in self.config else "is not in the running config"
            raise RoutingError(f"environment server {name!r} {what}.", hint=close_or_all(name, list(self.servers)))
        if key.agent is not None and server.agents and key.agent not in server.agents:
            raise RoutingError(
                f"agent {key.agent!r} of the row is none of environment server {name!r}.", hint=f"It fronts {', '.join(server.agents)}."
            )
        if key.source is not None and server.resources_server is not None and key.source != server.resources_server:
            raise RoutingError(
                f"task_source {key.source!r} of the row is not the resources server of environment server {name!r}.",
                hint=f"That is {server.resources_server!r}.",
            )
        if server.agent is not None:
            self._check_agent(server.agent)
            self._check_pairing(server.agent, server.resources_server)
        stamp = server.agent if key.agent is None and not key.materialized else None
        return _Decision(_with_address(server), agent_ref=stamp)

    def _by_its_agent(self, key: _Key) -> _Decision:
        agent = key.agent
        if agent is None:
            agent = self._of_source(key.source)
        self._check_agent(agent)
        self._check_pairing(agent, key.source)
        names = self._by_agent.get(agent, [])
        if not names:
            raise AgentWithoutEnvironmentServerError(
                f"no environment server fronts agent {agent!r}.", hint="Declare one, for instance legacy_agent with agent_server."
            )
        if len(names) > 1:
            raise AmbiguousEnvironmentServerError(
                f"several environment servers front agent {agent!r}: {', '.join(sorted(names))}.",
                hint="Choose one with environment_routing_mode=legacy and environment_server_name, or route tasksets.",
            )
        return _Decision(_with_address(self.servers[names[0]]), agent_ref=agent if key.agent is None else None)

    def _of_source(self, source: str | None) -> str:
        if source is None:
            raise RoutingError("the row names neither an agent nor a task_source.")
        if source not in self.config:
            known = [block.instance for block in server_blocks(self.config) if block.server_type in (RESOURCES_TYPE, AGENT_TYPE)]
            raise RoutingError(f"task_source {source!r} is not in the running config.", hint=close_or_all(source, known))
        if not has_server_type(self.config, source, AGENT_TYPE) and not has_server_type(self.config, source, RESOURCES_TYPE):
            raise RoutingError(f"task_source {source!r} is neither a resources server nor an agent.")
        pins = dataset_agent_pins(self.config, source)
        if len(pins) > 1:
            raise RoutingError(
                f"the datasets of {source!r} pin several agents: {', '.join(sorted(pins))}.", hint=f"Give agent_map={{{source}: AGENT}}."
            )
        try:
            agent = resolve_dataset_agent(self.config, source, pin=pins[0] if pins else None)
        except DatasetAgentError as error:
            raise RoutingError(f"task_source {source!r}: {error.message}.", hint=error.hint) from None
        if agent is None:
            raise RoutingError(f"no agent runs the datasets of {source!r}.")
        return agent

    def _check_agent(self, agent: str) -> None:
        if has_server_type(self.config, agent, AGENT_TYPE):
            return
        if agent in self.config:
            raise RoutingError(f"{agent!r} is in the running config and is not an agent.")
        known = [block.instance for block in server_blocks(self.config, AGENT_TYPE)]
        raise RoutingError(f"agent {agent!r} is not in the running config.", hint=close_or_all(agent, known))

    def _check_pairing(self, agent: str, source: str | None) -> None:
        """Whether the verifiers accept this agent's type (contract-data 1.6 e)."""
        if self.config.get(PAIRING_KEY) or self.environ.get(PAIRING_VARIABLE, "").lower() not in ("", "0", "false"):
            return
        block = next(iter(server_blocks({agent: self.config[agent]}, AGENT_TYPE)), None)
        if block is None:
            return
        for verifier in dict.fromkeys((source, referenced_name(block.fields, "resources_server"))):
            allowed = _allowed_agents(self.config, verifier)
            if allowed and block.implementation not in allowed:
                raise RoutingError(
                    f"resources server {verifier!r} does not accept agent {agent!r} of type {block.implementation!r}.",
                    hint=f"It accepts {', '.join(allowed)}; {PAIRING_KEY}=true waives this.",
                )


def environment_servers(config: Mapping[str, Any]) -> dict[str, EnvironmentServer]:
    """The environment servers of a config by instance name, in its order."""
    extension = config.get(EXTENSION_KEY)
    options = extension.get("servers") if isinstance(extension, Mapping) else None
    declared = {
        name
        for name, server in (options.items() if isinstance(options, Mapping) else ())
        if isinstance(server, Mapping) and server.get(IDEMPOTENT_KEY) is True
    }
    return {block.instance: _environment_server(block, block.instance in declared) for block in server_blocks(config, ENVIRONMENT_TYPE)}


def _environment_server(block: ServerBlock, idempotent: bool) -> EnvironmentServer:
    host, port = block.fields.get("host"), block.fields.get("port")
    # The published view of a head leaves out what does not work from here; such a server is known and cannot be called.
    url = f"http://{host}:{port}" if host and port else ""
    return EnvironmentServer(
        name=block.instance,
        implementation=block.implementation,
        url=url,
        agents=environment_server_agent_names(block.fields),
        agent=environment_server_attributed_agent(block.fields),
        resources_server=referenced_name(block.fields, "resources_server"),
        idempotent=idempotent,
    )


def _with_address(server: EnvironmentServer) -> EnvironmentServer:
    if not server.url:
        raise RoutingError(
            f"environment server {server.name!r} has no address that works from here.", hint="Publish it with `--publish environment`."
        )
    return server


def _allowed_agents(config: Mapping[str, Any], instance: str | None) -> tuple[str, ...]:
    if instance is None:
        return ()
    block = next(iter(server_blocks({instance: config.get(instance)}, RESOURCES_TYPE)), None)
    declared = block.fields.get("allowed_agents") if block is not None else None
    if not declared:
        return ()
    if isinstance(declared, str):
        return (declared,)
    if not isinstance(declared, list):
        raise RoutingError(f"{instance}: allowed_agents is a list of agent types.")
    return tuple(str(name) for name in declared)
