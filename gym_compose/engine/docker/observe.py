"""What is there of a project: one snapshot from the labels and states of its containers. Nothing is kept between two looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from gym_compose.engine.docker.api import COMPOSE_ONEOFF, COMPOSE_PROJECT, COMPOSE_SERVICE, DockerApi, Json, NotFoundInDockerError
from gym_compose.engine.errors import EngineError
from gym_compose.engine.interface import Observed, ServiceState, Status
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.names import DRIVER_SERVICE, LABEL_DIRECTORY, LABEL_INSTANCE, LABEL_ROLE, LABEL_SLICE, Role

_STATUS: Mapping[str, Status] = {
    "created": "created",
    "running": "running",
    "paused": "running",
    "restarting": "running",
    "removing": "exited",
    "exited": "exited",
    "dead": "exited",
}
_APART: tuple[Role, ...] = ("head", "relay", "ray")
"""Roles of services that are no servers."""


def observe(api: DockerApi, project: str, deadline: Deadline, *, memory: bool = True) -> Observed:
    """The project's containers, dead ones and drivers too, sorted by service. ``memory``: read it of those that run."""
    listed = api.containers([f"{COMPOSE_PROJECT}={project}"], deadline)
    with ThreadPoolExecutor(api.settings.docker_parallel) as pool:
        found = list(pool.map(lambda summary: _look(api, str(summary["Id"]), deadline, memory), listed))
    states = [state for state, _ in filter(None, found)]
    directory = next((folder for _, folder in filter(None, found) if folder), None)
    return Observed(project=project, engine="docker", services=tuple(_one_each(states)), directory=directory)


def service_of(labels: Mapping[str, str]) -> str:
    return labels.get(COMPOSE_SERVICE, "")


def role_of(labels: Mapping[str, str]) -> Role:
    """The role by our label; a one-off container without one is a driver too (somebody's own `docker compose run`)."""
    role = labels.get(LABEL_ROLE)
    if labels.get(COMPOSE_ONEOFF) == "True" or role == "driver" or labels.get(COMPOSE_SERVICE) == DRIVER_SERVICE:
        return "driver"
    return next((known for known in _APART if role == known), "server")


def directory_of(labels: Mapping[str, str]) -> str | None:
    """The project directory that the container was made from; for a compose file without our label, the file's own."""
    return labels.get(LABEL_DIRECTORY) or labels.get("com.docker.compose.project.working_dir")


def published_address(facts: Json) -> str | None:
    """``host:port`` where a container is reachable from this host: its first published port that has one, at loopback if it can be."""
    ports: Mapping[str, Any] = (facts.get("NetworkSettings") or {}).get("Ports") or {}
    for _, bindings in sorted(ports.items()):
        for binding in sorted(bindings or (), key=lambda binding: not str(binding.get("HostIp")).startswith("127.")):
            host = str(binding.get("HostIp") or "127.0.0.1")
            if binding.get("HostPort") and ":" not in host:
                return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{binding['HostPort']}"
    return None


def state_of(facts: Json, memory: int | None = None) -> ServiceState:
    """A service's state out of what `docker inspect` says of its container."""
    state: Mapping[str, Any] = facts.get("State") or {}
    config: Mapping[str, Any] = facts.get("Config") or {}
    labels: Mapping[str, str] = config.get("Labels") or {}
    status = _STATUS.get(str(state.get("Status")), "missing")
    networks: Mapping[str, Any] = (facts.get("NetworkSettings") or {}).get("Networks") or {}
    project = labels.get(COMPOSE_PROJECT, "")
    return ServiceState(
        service=service_of(labels),
        role=role_of(labels),
        status=status,
        instance=labels.get(LABEL_INSTANCE),
        identity=facts.get("Id"),
        exit_code=int(state.get("ExitCode", 0)) if status == "exited" else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_at=epoch(state.get("StartedAt")),
        restarts=int(facts.get("RestartCount") or 0),
        image=config.get("Image"),
        slice_sha256=labels.get(LABEL_SLICE),
        memory_bytes=memory,
        networks=tuple(sorted(name.removeprefix(f"{project}_") for name in networks)),
        pid=int(state.get("Pid") or 0) or None,
    )


def epoch(text: object) -> float | None:
    """Docker's RFC 3339 time with up to nine decimals as epoch seconds; its zero time (year 1) and nonsense are None."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    head, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if dot else ""
    zone = rest[len(digits) :] if dot else ""
    try:
        whole = datetime.fromisoformat((head + zone).replace("Z", "+00:00"))
    except ValueError:
        return None
    return whole.timestamp() + (int(digits) / 10 ** len(digits) if digits else 0.0)


def _look(api: DockerApi, container: str, deadline: Deadline, with_memory: bool) -> tuple[ServiceState, str | None] | None:
    try:
        facts = api.inspect(container, deadline)
    except NotFoundInDockerError:
        return None  # removed between the list and the look
    memory = None
    if with_memory and (facts.get("State") or {}).get("Running"):
        try:
            memory = api.memory(container, deadline)
        except (NotFoundInDockerError, EngineError):
            memory = None  # a figure for `ps`; a container that ends meanwhile has none
    return state_of(facts, memory), directory_of((facts.get("Config") or {}).get("Labels") or {})


def _one_each(states: Iterable[ServiceState]) -> list[ServiceState]:
    """One state a service: while compose recreates one, two containers bear its name; the running, younger one counts. Drivers all stay."""
    chosen: dict[str, ServiceState] = {}
    drivers: list[ServiceState] = []
    for state in states:
        if state.role == "driver":
            drivers.append(state)
            continue
        other = chosen.get(state.service)
        if other is None or _rank(state) > _rank(other):
            chosen[state.service] = state
    return sorted([*chosen.values(), *drivers], key=lambda state: (state.service, state.identity or ""))


def _rank(state: ServiceState) -> tuple[bool, float, str]:
    return state.status == "running", state.started_at or 0.0, state.identity or ""
