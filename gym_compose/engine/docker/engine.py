"""The Docker engine: a deployment to containers through ``docker compose``, facts through the SDK, labels the only state."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from gym_compose.compiler.deployment import Deployment
from gym_compose.engine.docker import driver, logs, observe, stop
from gym_compose.engine.docker.api import COMPOSE_PROJECT, DockerApi, NotFoundInDockerError
from gym_compose.engine.docker.build import ImageBuilder
from gym_compose.engine.docker.compose import Compose
from gym_compose.engine.docker.endpoint import find_endpoint
from gym_compose.engine.docker.events import project_events
from gym_compose.engine.docker.package_index import index_settings
from gym_compose.engine.errors import AddressPoolError, BindSourceError
from gym_compose.engine.interface import BuiltImage, EngineEvent, LogLine, Observed, PlannedAction, Report, StopReport
from gym_compose.engine.masking import deployment_redactor, directory_redactor
from gym_compose.engine.plan import plan_actions
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.names import EngineName
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings


class DockerEngine:
    """Implements ``gym_compose.engine.interface.Engine``. Making one calls nothing; ``check`` is the first contact.

    ``environ`` is the caller's environment (DOCKER_HOST, PATH, PIP_*). Raises DockerUnavailableError when it names an engine on another
    machine: bind mounts cannot work there.
    """

    name: EngineName = "docker"

    def __init__(self, environ: Mapping[str, str], settings: Settings, redactor: Redactor | None = None) -> None:
        self._environ = dict(environ)
        self._settings = settings
        known = redactor or Redactor()
        endpoint = find_endpoint(environ)
        self.api = DockerApi(endpoint, settings, known)
        self.compose = Compose(environ, endpoint, settings, known)

    def _mask(self, redactor: Redactor) -> None:
        """From now on everything that is said is masked with this deployment's secrets too."""
        self.api.redactor = redactor
        self.compose.redactor = redactor

    # Engine

    def check(self, deadline: Deadline) -> None:
        self.api.ping(deadline)
        self.compose.version(deadline.within(self._settings.docker_call_seconds, "docker compose version"))

    def build(self, deployment: Deployment, directory: Path, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:
        self._mask(deployment_redactor(deployment))
        return ImageBuilder(self.api, self.compose, self._settings, lambda: self._index(deadline), deployment, directory).build(
            deadline, report
        )

    def observe(self, project: str, deadline: Deadline) -> Observed:
        return observe.observe(self.api, project, deadline)

    def plan(self, deployment: Deployment, observed: Observed) -> Sequence[PlannedAction]:
        return plan_actions(deployment, observed)

    def apply(self, deployment: Deployment, directory: Path, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
        """Raises PortTakenError, AddressPoolError (networks counted by project), ImageMissingError, BindSourceError, DiskFullError,
        EngineError.

        Compose itself leaves alone what has the same definition, slice digest and image; a service whose limits or environment changed
        it recreates, whatever ``actions`` say of it.
        """
        self._mask(deployment_redactor(deployment))
        file = directory / stop.COMPOSE_FILE
        if not file.is_file():
            raise BindSourceError("the compose file is not there", where=str(file), hint="It is written before a deployment is applied.")
        for action in actions:
            if action.action != "keep":
                report(f"{action.action} {action.service}: {action.reason}")
        self._remove_ended(deployment.project, {action.service for action in actions if action.action == "recreate"}, deadline)
        try:
            self.compose.up(deployment.project, file, deadline)
        except AddressPoolError as error:
            raise self._with_networks(error, deadline) from error

    def events(self, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
        return project_events(self.api, project, stop)

    def logs(
        self, project: str, services: Sequence[str], *, follow: bool, tail: int | None, stop: threading.Event | None = None
    ) -> Iterator[LogLine]:
        deadline = Deadline.after(self._settings.docker_call_seconds, "logs")
        return logs.project_logs(self.api, project, services, self._redactor_of(project, deadline), follow=follow, tail=tail, stop=stop)

    def stop(self, project: str, deadline: Deadline, report: Report) -> StopReport:
        return stop.stop_project(self.api, self.compose, project, deadline, report)

    def published(self, project: str, deadline: Deadline) -> dict[str, str]:
        addresses: dict[str, str] = {}
        for state in observe.observe(self.api, project, deadline, memory=False).services:
            if state.status != "running" or state.role == "driver" or state.identity is None:
                continue
            try:
                facts = self.api.inspect(state.identity, deadline)
            except NotFoundInDockerError:
                continue
            address = observe.published_address(facts)
            if address is not None:
                addresses[state.service] = address
        return addresses

    # Docker's own

    def start_driver(self, request: driver.DriverRequest, deadline: Deadline) -> driver.DriverContainer:
        """Start a driver inside the project's network, detached. Raises what ``driver.start_driver`` does."""
        return driver.start_driver(self.api, self.compose, request, deadline)

    def drivers(self, project: str, deadline: Deadline, *, running: bool = True) -> list[driver.DriverContainer]:
        """Drivers of the project, youngest first."""
        return driver.drivers(self.api, project, deadline, running=running)

    def close(self) -> None:
        """Close the connections. The engine may be used again."""
        self.api.close()

    def _index(self, deadline: Deadline) -> dict[str, str]:
        """Where the builder takes packages from. An index URL may hold a password: it is masked in all output from now on."""
        index = index_settings(self._environ, self._settings, deadline)
        self._mask(self.api.redactor.with_values(index.values()))
        return index

    def _remove_ended(self, project: str, services: AbstractSet[str], deadline: Deadline) -> None:
        """Compose would start an ended container of the same definition again; a new one has a log and a state of its own."""
        for item in self.api.containers([f"{COMPOSE_PROJECT}={project}"], deadline) if services else ():
            labels = item.get("Labels") or {}
            if item.get("State") != "running" and observe.service_of(labels) in services and observe.role_of(labels) != "driver":
                self.api.remove(str(item["Id"]), deadline)

    def _redactor_of(self, project: str, deadline: Deadline) -> Redactor:
        """This command may not be the one that started the project: its secrets are then read from its directory."""
        containers = self.api.containers([f"{COMPOSE_PROJECT}={project}"], deadline)
        directory = next((folder for item in containers if (folder := observe.directory_of(item.get("Labels") or {}))), None)
        redactor = directory_redactor(Path(directory) if directory else None)
        return self.api.redactor.with_values(redactor.values)

    def _with_networks(self, error: AddressPoolError, deadline: Deadline) -> GymComposeError:
        counted = Counter(
            str((network.get("Labels") or {}).get(COMPOSE_PROJECT, "(no project)")) for network in self.api.networks([], deadline)
        )
        held = ", ".join(f"{project}: {count}" for project, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])))
        return AddressPoolError(error.message, where=error.where, hint=error.hint, details=(f"networks by project: {held}", *error.details))
