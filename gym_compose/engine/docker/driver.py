"""The driver's container: started detached, followed, signalled and waited for through the engine, so that the client's death ends no run.

`docker compose run` off a terminal leaves its container running whatever signal the client gets; ``run -d`` and then the API took
0.5 s, handlers ran, and the exit code could be read (platform.md).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gym_compose.compiler.deployment import Mount
from gym_compose.engine.docker.api import COMPOSE_PROJECT, DockerApi, Json, NotFoundInDockerError
from gym_compose.engine.docker.compose import Compose, Volume
from gym_compose.engine.docker.logs import Follower, StampedLine, lines_of
from gym_compose.engine.docker.observe import role_of, state_of
from gym_compose.engine.interface import ServiceState
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.names import (
    DRIVER_SERVICE,
    LABEL_DIRECTORY,
    LABEL_OUTPUT,
    LABEL_PROJECT,
    LABEL_ROLE,
    LABEL_RUN,
    driver_container,
)


@dataclass(frozen=True)
class DriverRequest:
    """What a driver is started with. ``directory`` holds compose.yaml; ``arguments`` replace the service's command (empty keeps it).

    ``user`` is ``uid:gid`` of whoever is to own the results, root's too. ``output`` is the results file on this host, for the label.
    ``environment`` must hold no secret.
    """

    project: str
    directory: Path
    run_id: str
    user: str
    mounts: tuple[Mount, ...] = ()
    arguments: tuple[str, ...] = ()
    output: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return driver_container(self.project, self.run_id)


class DriverContainer:
    """One driver, running or ended."""

    def __init__(self, api: DockerApi, container: str, labels: Mapping[str, str]) -> None:
        self._api = api
        self.container = container
        self.run_id = labels.get(LABEL_RUN)
        self.output = labels.get(LABEL_OUTPUT)
        self.directory = labels.get(LABEL_DIRECTORY)

    def state(self, deadline: Deadline) -> ServiceState | None:
        """Its state now; None when it was removed."""
        try:
            return state_of(self._api.inspect(self.container, deadline))
        except NotFoundInDockerError:
            return None

    def lines(self, stop: threading.Event, *, tail: int | None = None) -> Iterator[str]:
        """Lines of its stdout from the first one (or the last ``tail``) until it ends or ``stop`` is set.

        As they are: they are JSON, and a secret that is an ordinary word ("completed") would break it. Whoever shows one masks its text.

        Raises DockerUnavailableError when the engine stays away for ``docker_call_seconds``.
        """
        arrived: queue.Queue[StampedLine] = queue.Queue()
        follower = Follower(self._api, self.container, arrived.put, tail=tail, stderr=False).start()
        try:
            while not stop.is_set():
                ended = follower.ended.is_set()
                with contextlib.suppress(queue.Empty):
                    yield arrived.get(timeout=0 if ended else self._api.settings.event_poll_seconds).text
                    continue
                if ended:
                    if follower.error is not None:
                        raise follower.error
                    return
        finally:
            follower.close()

    def errors(self, deadline: Deadline, *, tail: int) -> Sequence[str]:
        """The last lines of its stderr, masked: what it said beside its events."""
        try:
            frames = self._api.log(self.container, deadline, tail=tail, stdout=False)
        except NotFoundInDockerError:
            return ()
        return tuple(self._api.redactor.text(line.text) for line in lines_of(frames))

    def signal(self, name: str, deadline: Deadline) -> bool:
        """Send ``SIGINT`` and the like; False when it has ended."""
        state = self.state(deadline)
        if state is None or state.status != "running":
            return False
        self._api.kill(self.container, name, deadline)
        return True

    def wait(self, deadline: Deadline) -> int:
        """Its exit code, once it has ended. Raises CommandTimeoutError when it does not within the deadline."""
        return self._api.wait(self.container, deadline)

    def remove(self, deadline: Deadline) -> bool:
        """Remove it, running or not; False when it was gone."""
        return self._api.remove(self.container, deadline)


def start_driver(api: DockerApi, compose: Compose, request: DriverRequest, deadline: Deadline) -> DriverContainer:
    """Start the ``driver`` service of the project's compose file as a one-off container. Raises BindSourceError, EngineError, …"""
    labels = {
        LABEL_PROJECT: request.project,
        LABEL_ROLE: "driver",
        LABEL_RUN: request.run_id,
        LABEL_DIRECTORY: str(request.directory),
        **({LABEL_OUTPUT: request.output} if request.output is not None else {}),
    }
    compose.run_detached(
        request.project,
        request.directory / "compose.yaml",
        DRIVER_SERVICE,
        deadline,
        name=request.name,
        user=request.user,
        volumes=[Volume(mount.source, mount.target, mount.read_only) for mount in request.mounts],
        labels=labels,
        environment=request.environment,
        arguments=request.arguments,
    )
    facts = api.inspect(request.name, deadline)
    return DriverContainer(api, str(facts["Id"]), (facts.get("Config") or {}).get("Labels") or {})


def drivers(api: DockerApi, project: str, deadline: Deadline, *, running: bool = True) -> list[DriverContainer]:
    """The project's drivers, youngest first: those that run, or the ended ones too."""

    def wanted(summary: Json) -> bool:
        return role_of(summary.get("Labels") or {}) == "driver" and (not running or summary.get("State") == "running")

    found = [summary for summary in api.containers([f"{COMPOSE_PROJECT}={project}"], deadline) if wanted(summary)]
    found.sort(key=lambda summary: (-int(summary.get("Created") or 0), str(summary["Id"])))
    return [DriverContainer(api, str(summary["Id"]), summary.get("Labels") or {}) for summary in found]
