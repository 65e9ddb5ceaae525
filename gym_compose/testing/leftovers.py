"""What is still there of our projects: containers, networks, volumes, processes. Every test that starts a deployment asserts none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.engine.docker.api import COMPOSE_PROJECT, DockerApi
from gym_compose.engine.docker.endpoint import find_endpoint
from gym_compose.engine.errors import DockerUnavailableError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.names import LABEL_PROJECT
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

_MODULES = (b"gym_compose.serving.launch", b"gym_compose.controller", b"gym_compose.driver")
"""Entry points of the process engine's children (``python -m …``); in a container they count as the container."""


@dataclass(frozen=True)
class Leftovers:
    """Names (containers, networks, volumes) and ``pid command`` lines (processes)."""

    containers: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.containers) + len(self.networks) + len(self.volumes) + len(self.processes)

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        kinds = (("container", self.containers), ("network", self.networks), ("volume", self.volumes), ("process", self.processes))
        lines = [f"{kind} {name}" for kind, names in kinds for name in names]
        return "nothing is left" if not lines else f"{len(lines)} left: " + "; ".join(lines)


def docker_api(environ: Mapping[str, str], settings: Settings) -> DockerApi | None:
    """The engine of this environment, or None when there is none to ask."""
    try:
        api = DockerApi(find_endpoint(environ), settings, Redactor())
        api.ping(Deadline.after(settings.docker_check_seconds, "Docker to answer"))
    except DockerUnavailableError:
        return None
    return api


def find_leftovers(project: str | None = None, *, environ: Mapping[str, str], settings: Settings | None = None) -> Leftovers:
    """What is there of ``project``, or of any project of ours. Without Docker only processes are looked for."""
    chosen = settings or Settings.from_environ(environ)
    processes = tuple(f"{pid} {command}" for pid, command in our_processes(project))
    api = docker_api(environ, chosen)
    if api is None:
        return Leftovers(processes=processes)
    deadline = Deadline.after(chosen.docker_call_seconds, "a list of what is left")
    try:
        ours = LABEL_PROJECT if project is None else f"{LABEL_PROJECT}={project}"
        composed = COMPOSE_PROJECT if project is None else f"{COMPOSE_PROJECT}={project}"
        containers = api.containers([ours], deadline)
        # Compose labels networks and volumes with its own project label only when the file gives them no others.
        names: set[str | None] = {project} if project is not None else {_label(container, LABEL_PROJECT) for container in containers}
        networks = [network for network in api.networks([composed], deadline) if _is_ours(network, names)]
        volumes = [volume for volume in api.volumes([composed], deadline) if _is_ours(volume, names)]
    finally:
        api.close()
    return Leftovers(
        containers=tuple(sorted(str(container["Names"][0]).lstrip("/") for container in containers)),
        networks=tuple(sorted(str(network["Name"]) for network in networks)),
        volumes=tuple(sorted(str(volume["Name"]) for volume in volumes)),
        processes=processes,
    )


def our_processes(project: str | None = None, *, proc: Path = Path("/proc")) -> Iterator[tuple[int, str]]:
    """Servers, controllers and drivers that run on this host outside containers, by pid; those of ``project`` name its directory."""
    for entry in sorted(proc.iterdir(), key=lambda entry: int(entry.name) if entry.name.isdigit() else 0):
        if not entry.name.isdigit():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            cgroup = (entry / "cgroup").read_bytes()
        except OSError:  # it ended meanwhile, or belongs to somebody else: not ours to count
            continue
        if not any(module in argv for module in _MODULES) or b"/docker/" in cgroup or b"/docker-" in cgroup:
            continue
        text = b" ".join(argv).decode("utf-8", "replace")
        if project is None or f"/.gym/{project}/" in text:
            yield int(entry.name), text


def _label(thing: Mapping[str, Any], name: str) -> str | None:
    value = (thing.get("Labels") or {}).get(name)
    return None if value is None else str(value)


def _is_ours(thing: Mapping[str, Any], projects: Collection[str | None]) -> bool:
    return _label(thing, LABEL_PROJECT) is not None or _label(thing, COMPOSE_PROJECT) in projects
