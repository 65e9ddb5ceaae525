"""Removes what tests left behind, by label: testcontainers' own reaper (Ryuk) needs an image that cannot be had everywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from gym_compose.engine.docker.api import COMPOSE_PROJECT, DockerApi
from gym_compose.project.directory import GYM_DIRECTORY
from gym_compose.testing.leftovers import Leftovers, docker_api, our_processes
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.names import LABEL_DIRECTORY, LABEL_PROJECT
from gym_compose.wire.settings import Settings


def reap(under: Path, *, environ: Mapping[str, str], settings: Settings | None = None) -> Leftovers:
    """Remove everything of the projects whose directory stands below ``under``; returns what there was.

    A test's own clean-up comes first and this finds nothing; what it finds is a fault of a test, or of a run that was killed.
    """
    chosen = settings or Settings.from_environ(environ)
    deadline = Deadline.after(chosen.down_seconds, "what tests left to be removed")
    processes = _reap_processes(under, chosen)
    api = docker_api(environ, chosen)
    if api is None:
        return Leftovers(processes=processes)
    try:
        containers, networks, volumes = _reap_docker(api, under, deadline)
    finally:
        api.close()
    return Leftovers(containers=containers, networks=networks, volumes=volumes, processes=processes)


def _reap_docker(api: DockerApi, under: Path, deadline: Deadline) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    projects = {path.name for path in under.glob(f"**/{GYM_DIRECTORY}/*") if path.is_dir()}  # a network may outlive its containers
    containers: list[str] = []
    for container in api.containers([LABEL_PROJECT], deadline):
        labels = container.get("Labels") or {}
        if not Path(labels.get(LABEL_DIRECTORY, "/")).is_relative_to(under):
            continue
        projects.add(labels[LABEL_PROJECT])
        if api.remove(str(container["Id"]), deadline):
            containers.append(str(container["Names"][0]).lstrip("/"))
    labels = [f"{COMPOSE_PROJECT}={project}" for project in sorted(projects)]
    networks = [network for label in labels for network in api.networks([label], deadline)]
    volumes = [volume for label in labels for volume in api.volumes([label], deadline)]
    return (
        tuple(containers),
        tuple(str(network["Name"]) for network in networks if api.remove_network(str(network["Id"]), deadline)),
        tuple(str(volume["Name"]) for volume in volumes if api.remove_volume(str(volume["Name"]), deadline)),
    )


def _reap_processes(under: Path, settings: Settings) -> tuple[str, ...]:
    """SIGTERM to each, SIGKILL to those that stay."""
    found = [(pid, text) for pid, text in our_processes() if str(under) in text]
    for pid, _ in found:
        _signal(pid, signal.SIGTERM)
    deadline = Deadline.after(settings.stop_grace_seconds, "processes to end")
    while found and not deadline.expired and any(pid in dict(found) for pid, _ in our_processes()):
        time.sleep(deadline.pause(settings.process_poll_seconds))
    for pid, text in our_processes():
        if str(under) in text:
            _signal(pid, signal.SIGKILL)
    return tuple(f"{pid} {text}" for pid, text in found)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
