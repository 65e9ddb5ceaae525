"""Which resources server verifies a stored rollout again, and what it is sent (contract-data 4.8). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gym_compose.driver.errors import RoutingError
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, agent_of, source_of
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.references import AGENT_TYPE, ENVIRONMENT_TYPE, RESOURCES_TYPE, has_server_type, referenced_name, server_blocks
from gym_compose.wire.run_body import RESULT_TYPE, ROLLOUT_INDEX, TASK_INDEX

_KEPT_OF_ROLLOUT = ("deliverables_dir", "reference_ids")


@dataclass(frozen=True)
class Verifier:
    """A resources server of the running deployment."""

    name: str
    url: str


class Verifiers:
    """Finds the verifier of a row by the head server's config. ``warnings`` says where it had to guess.

    Raises RoutingError when the config has none, or several and nothing to choose by.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.warnings: list[str] = []
        blocks = {block.instance: block.fields for block in server_blocks(config, RESOURCES_TYPE)}
        self._servers = {name: Verifier(name, _url(fields)) for name, fields in blocks.items()}
        self._of_agent = _references(config, AGENT_TYPE)
        self._of_environment = _references(config, ENVIRONMENT_TYPE)
        self._only: str | None = None
        if not self._of_agent:
            self._only = self._take_only()

    def of(self, row: Mapping[str, Any]) -> Verifier:
        """Its ``task_source`` when that is a resources server; else that of its environment server; else that of its agent.

        Raises RoutingError that names the row's agent and source.
        """
        source, server, agent = source_of(row), row.get(ENVIRONMENT_SERVER), agent_of(row)
        if source is not None and has_server_type(self._config, source, RESOURCES_TYPE):
            return self._servers[source]
        name = self._of_environment.get(server) if isinstance(server, str) else None
        name = name or self._only or (self._of_agent.get(agent) if agent is not None else None)
        if name is None or name not in self._servers:
            known = ", ".join(sorted(self._of_agent)) or "none"
            raise RoutingError(
                f"no resources server verifies a rollout of agent {agent!r} (task_source {source!r})",
                hint=f"Agents that have one: {known}.",
            )
        return self._servers[name]

    def _take_only(self) -> str:
        if len(self._servers) != 1:
            names = ", ".join(sorted(self._servers)) or "none"
            raise RoutingError(f"the config has no agents to choose a resources server by; resources servers: {names}")
        only = next(iter(self._servers))
        self.warnings.append(f"the config has no agents: every rollout is verified by {only!r}, whatever agent it names")
        return only


def verify_body(row: Mapping[str, Any], rollout: Mapping[str, Any]) -> dict[str, Any]:
    """What ``/verify`` is sent for an input row and its stored rollout. Raises InvalidInputError when they do not make one."""
    where = f"task {rollout.get(TASK_INDEX)}, rollout {rollout.get(ROLLOUT_INDEX)}"
    if "response" not in rollout:
        kind = rollout.get(RESULT_TYPE, "unknown")
        raise InvalidInputError(f"a rollout of result type {kind!r} has no response to verify", where=where)
    task_input = row.get("task_input")
    if isinstance(task_input, dict):
        body = {name: value for name, value in row.items() if name not in ("task_id", "task_input")}
        fields = dict(task_input)
        data = fields.pop("task_data", {})
        if not isinstance(data, dict):
            raise InvalidInputError("task_input.task_data is no object", where=where)
        for name in fields.keys() & data.keys():
            if fields[name] != data[name]:
                raise InvalidInputError(f"{name!r} stands inside and outside of task_data with different values", where=where)
        body.update(data)
        body.update(fields)
    else:
        body = dict(row)
    body["response"] = rollout["response"]
    body.update((name, rollout[name]) for name in _KEPT_OF_ROLLOUT if name in rollout)
    return body


def _references(config: Mapping[str, Any], kind: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for block in server_blocks(config, kind):
        name = referenced_name(block.fields, "resources_server")
        if name is not None:
            found.setdefault(block.instance, name)
    return found


def _url(fields: Mapping[str, Any]) -> str:
    host, port = fields.get("host"), fields.get("port")
    return f"http://{host}:{port}" if host and port else ""
