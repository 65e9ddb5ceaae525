"""Stopping a project: in order, with grace, saying who had to be killed, and leaving nothing (field-notes A8, B16).

Each step is best effort and bounded: an error in one does not keep the next from running, and what counts is what is left at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gym_compose.engine.docker.api import COMPOSE_PROJECT, DockerApi, NotFoundInDockerError
from gym_compose.engine.docker.compose import Compose
from gym_compose.engine.docker.events import KILLED
from gym_compose.engine.docker.observe import observe
from gym_compose.engine.errors import CommandTimeoutError, EngineError, LeftoverError
from gym_compose.engine.interface import Report, ServiceState, StopReport
from gym_compose.engine.order import server_types, stop_tiers
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.names import LABEL_PROJECT

COMPOSE_FILE = "compose.yaml"


def stop_project(api: DockerApi, compose: Compose, project: str, deadline: Deadline, report: Report) -> StopReport:
    """Stop and remove everything of ``project``: containers, networks, anonymous and project volumes. Idempotent.

    Raises DockerUnavailableError, and LeftoverError naming what could not be removed.
    """
    observed = observe(api, project, deadline, memory=False)
    before = _left(api, project, deadline)
    directory = Path(observed.directory) if observed.directory else None
    stopped: list[str] = []
    killed: list[str] = []
    for tier in stop_tiers((state for state in observed.services if state.status == "running"), server_types(directory)):
        with ThreadPoolExecutor(api.settings.docker_parallel) as pool:
            outcomes = list(pool.map(lambda state: _stop_one(api, state, deadline), tier))
        for state, outcome in zip(tier, outcomes, strict=True):
            name = state.instance or state.service
            if isinstance(outcome, GymComposeError):
                report(f"{name}: {outcome.message}")
                continue
            stopped.append(name)
            if outcome:
                killed.append(name)
                report(f"{name} did not stop in time and was killed")
            else:
                report(f"{name} stopped")
    if before:
        _down(compose, project, directory, deadline, report)
    left = _remove_leftovers(api, project, deadline, report)
    if left:
        raise LeftoverError(
            f"{len(left)} things of the project could not be removed: {', '.join(left)}",
            where=f"project {project}",
            hint="Run `gym compose down` again; `docker ps -a` and `docker network ls` show them.",
        )
    return StopReport(stopped=tuple(stopped), killed=tuple(killed), removed=len(before))


def _stop_one(api: DockerApi, state: ServiceState, deadline: Deadline) -> bool | GymComposeError:
    """Whether it had to be killed; an error is returned, not raised."""
    container = state.identity or ""
    try:
        if state.role == "driver":
            return _stop_driver(api, container, deadline)
        facts = api.inspect(container, deadline)
        grace = (facts.get("Config") or {}).get("StopTimeout")
        seconds = api.settings.stop_grace_seconds if grace is None else float(grace)
        left = deadline.remaining()
        # Half of what is left at most: removing everything must still fit.
        api.stop(container, max(1, round(seconds if left is None else min(seconds, left / 2))), deadline)
        after = api.inspect(container, deadline).get("State") or {}
        return int(after.get("ExitCode") or 0) == KILLED and not after.get("OOMKilled")
    except NotFoundInDockerError:
        return False  # gone by itself
    except GymComposeError as error:
        return error


def _stop_driver(api: DockerApi, container: str, deadline: Deadline) -> bool:
    """A driver is asked by SIGINT, which makes it write what it has (design decision 12), and gets time of its own."""
    try:
        api.kill(container, "SIGINT", deadline)
    except EngineError as error:
        if "is not running" in error.message:
            return False
        raise
    left = deadline.remaining()
    grace = api.settings.driver_stop_seconds
    try:
        api.wait(container, Deadline.after(grace if left is None else min(grace, left / 2), "the driver to end"))
    except CommandTimeoutError:
        api.kill(container, "SIGKILL", deadline)
        api.wait(container, deadline)
        return True
    return False


def _down(compose: Compose, project: str, directory: Path | None, deadline: Deadline, report: Report) -> None:
    file = directory / COMPOSE_FILE if directory is not None else None
    candidates: Sequence[Path | None] = (file, None) if file is not None and file.is_file() else (None,)
    for candidate in candidates:
        try:
            result = compose.down(project, candidate, deadline)
        except GymComposeError as error:
            report(f"docker compose down: {error.message}")
            continue
        if result.ok:
            return
        report(f"docker compose down ended with {result.exit_code}: " + " ".join(result.tail(1)))


def _labels(project: str) -> Sequence[str]:
    """Compose's label, and ours: what was made without compose bears that one only."""
    return (f"{COMPOSE_PROJECT}={project}", f"{LABEL_PROJECT}={project}")


def _left(api: DockerApi, project: str, deadline: Deadline) -> dict[str, Callable[[], bool]]:
    """What is there of the project, by a name for people, each with the call that removes it. Containers first: they hold the rest."""
    found: dict[str, Callable[[], bool]] = {}
    for label in _labels(project):
        for container in api.containers([label], deadline):
            identity = str(container["Id"])
            name = next(iter(container.get("Names") or ()), identity[:12]).lstrip("/")
            found[f"container {name}"] = lambda identity=identity: api.remove(identity, deadline)  # type: ignore[misc]
    for label in _labels(project):
        for network in api.networks([label], deadline):
            found[f"network {network['Name']}"] = lambda identity=str(network["Id"]): api.remove_network(identity, deadline)  # type: ignore[misc]
    for label in _labels(project):
        for volume in api.volumes([label], deadline):
            found[f"volume {volume['Name']}"] = lambda identity=str(volume["Name"]): api.remove_volume(identity, deadline)  # type: ignore[misc]
    return found


def _remove_leftovers(api: DockerApi, project: str, deadline: Deadline, report: Report) -> list[str]:
    """Remove what `down` left, by label; the names of what is there after that.

    What compose had asked for when it was interrupted the engine still finishes: a network that is being made cannot be removed for a
    moment. So it is tried again until nothing is left, for ``removal_seconds`` at most.
    """
    bound = deadline.within(api.settings.removal_seconds)
    errors: dict[str, str] = {}
    while True:
        left = _left(api, project, deadline)
        if not left or bound.expired:
            for name in left:
                report(f"{name}: {errors.get(name, 'it came back')}")
            return list(left)
        for name, remove in left.items():
            try:
                if remove():
                    report(f"removed {name}")
            except GymComposeError as error:
                errors[name] = error.message
        threading.Event().wait(bound.pause(api.settings.event_settle_seconds))
