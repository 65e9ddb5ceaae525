"""The process engine: native servers of a deployment as processes of this host, for where no Docker engine answers (design decision 13).

What it does not give is what containers give: limits, a closed network, a root of their own. It keeps no state but ``processes.json`` in
the project directory, so any later command can see, follow and stop what one started.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gym_compose.compiler.deployment import Deployment, Image, Service
from gym_compose.engine.interface import (
    BuiltImage,
    EngineEvent,
    LogLine,
    Observed,
    PlannedAction,
    Report,
    ServiceState,
    StopReport,
)
from gym_compose.engine.masking import directory_redactor
from gym_compose.engine.plan import plan_actions
from gym_compose.engine.process import logs, proc, records, stop
from gym_compose.engine.process.events import code_of, project_events
from gym_compose.engine.process.records import ProcessRecord
from gym_compose.engine.process.requirements import RequirementSets, set_key
from gym_compose.engine.process.start import reap, start_service
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.names import EngineName
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

GYM_DIRECTORY = ".gym"


class ProcessEngine:
    """Implements ``gym_compose.engine.interface.Engine``.

    ``home`` is the directory that holds one directory per project (``.gym``); ``python`` runs the servers. Only one process may apply or
    stop a project at a time (the project's lock sees to that); looking is always safe.
    """

    name: EngineName = "process"

    def __init__(
        self, environ: Mapping[str, str], settings: Settings, home: Path, *, python: str = sys.executable, redactor: Redactor | None = None
    ) -> None:
        self._environ = dict(environ)
        self._settings = settings
        self._home = home
        self._redactor = redactor or Redactor()
        self._sets = RequirementSets(environ, settings, python)
        self._directories: dict[str, Path] = {}

    def _directory(self, project: str) -> Path:
        return self._directories.get(project, self._home / project)

    # Engine

    def check(self, deadline: Deadline) -> None:  # noqa: ARG002  nothing here takes time
        """Raise PrerequisiteError where there is no /proc: without it a process cannot be known again, and a wrong one might be killed."""
        if not (proc.PROC / "self" / "stat").is_file():
            raise PrerequisiteError("the process engine needs Linux's /proc", where=sys.platform, hint="Use Docker: --engine docker.")

    def build(self, deployment: Deployment, directory: Path, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:  # noqa: ARG002
        """Install the requirement sets that this interpreter does not satisfy. Raises RequirementsError."""
        built = []
        for image in deployment.images:
            lines = requirement_lines(image)
            if not lines:
                continue
            started = time.monotonic()
            made = self._sets.install(lines, image.name, deadline, report)
            built.append(BuiltImage(name=image.name, image_id=set_key(lines), built=made, seconds=round(time.monotonic() - started, 3)))
        return tuple(built)

    def observe(self, project: str, deadline: Deadline) -> Observed:  # noqa: ARG002
        reap()
        directory = self._directory(project)
        listed = records.read(directory, project).processes
        resident = _resident() if listed else {}
        states = tuple(self._state(directory, record, resident) for record in sorted(listed, key=lambda record: record.service))
        return Observed(project=project, engine="process", services=states, directory=str(directory) if states else None)

    def plan(self, deployment: Deployment, observed: Observed) -> Sequence[PlannedAction]:
        return plan_actions(deployment, observed)

    def apply(self, deployment: Deployment, directory: Path, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
        """Raises PortTakenError, CommandNotFoundError, InvalidInputError, LeftoverError. What was started before an error keeps running."""
        self._directories[deployment.project] = directory
        images = {image.name: image for image in deployment.images}
        listed = {record.service: record for record in records.read(directory, deployment.project).processes}
        outdated = [listed[action.service] for action in actions if action.action in {"recreate", "remove"} and action.service in listed]
        if outdated:
            stop.stop_group([record for record in outdated if record.alive()], self._settings, deadline)
            stop.sweep(outdated, self._settings, deadline)
            stop.forget(directory, deployment.project, [record.service for record in outdated])
        for action in actions:
            if action.action == "keep":
                continue
            report(f"{action.action} {action.service}: {action.reason}")
            if action.action != "remove":
                self._start(deployment.project, directory, deployment.service(action.service), images)

    def events(self, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
        return project_events(self._directory(project), project, stop, self._settings.process_poll_seconds)

    def logs(
        self, project: str, services: Sequence[str], *, follow: bool, tail: int | None, stop: threading.Event | None = None
    ) -> Iterator[LogLine]:
        directory = self._directory(project)
        known = directory_redactor(directory)
        redactor = self._redactor.with_values(known.values)

        def files() -> dict[str, Path]:
            found = {file.stem: file for file in sorted((directory / "logs").glob("*.log"))}
            present = {record.service for record in records.read(directory, project).processes}
            wanted = services or sorted(present)
            return {service: found[service] for service in wanted if service in found}

        if not follow:
            return logs.file_lines(files(), redactor, tail)
        return logs.followed_lines(files, lambda: self._running(project), redactor, tail, stop, self._settings)

    def stop(self, project: str, deadline: Deadline, report: Report) -> StopReport:
        directory = self._directory(project)
        listed = records.read(directory, project).processes
        if not listed:
            return StopReport()
        observed = self.observe(project, deadline)
        stopped = stop.stop_all(directory, project, listed, observed.services, self._settings, deadline, report)
        stop.forget(directory, project, [record.service for record in listed])
        return stopped

    def published(self, project: str, deadline: Deadline) -> dict[str, str]:  # noqa: ARG002
        directory = self._directory(project)
        return {
            record.service: f"{record.host}:{record.port}"
            for record in records.read(directory, project).processes
            if record.port and record.alive()
        }

    # Its own

    def _start(self, project: str, directory: Path, service: Service, images: Mapping[str, Image]) -> None:
        if not service.command:
            raise InvalidInputError(
                "a server with an image of its own cannot run as a process",
                where=f"services/{service.name}",
                hint="Use Docker: --engine docker.",
            )
        path: list[str] = []
        if service.image in images:
            installed = self._sets.directory(requirement_lines(images[service.image]))
            path = [str(installed)] if installed is not None else []
        record = start_service(service, directory, self._environ, path)
        with records.locked(directory):
            listed = records.read(directory, project)
            others = tuple(other for other in listed.processes if other.service != service.name)
            records.write(directory, listed.model_copy(update={"processes": (*others, record)}))

    def _running(self, project: str) -> bool:
        return any(record.alive() for record in records.read(self._directory(project), project).processes)

    def _state(self, directory: Path, record: ProcessRecord, resident: Mapping[int, int]) -> ServiceState:
        alive = record.alive()
        return ServiceState(
            service=record.service,
            role=record.role,
            status="running" if alive else "exited",
            instance=record.instance,
            identity=str(record.pid),
            exit_code=None if alive else code_of(directory, record),
            started_at=record.started_at,
            image=record.image,
            slice_sha256=record.slice_sha256,
            memory_bytes=resident.get(record.pid) if alive else None,
        )


def requirement_lines(image: Image) -> tuple[str, ...]:
    """The lines of a requirement set (the compiler's input ``requirements``); none for any other image."""
    text = dict(image.inputs).get("requirements", "") if image.kind == "requirements" else ""
    return tuple(line for line in text.splitlines() if line.strip())


def _resident() -> dict[int, int]:
    """Resident bytes by session leader. Pages that two processes share count twice, as in `ps`."""
    sums: dict[int, int] = {}
    for found in proc.all_facts():
        if not found.ended:
            sums[found.session] = sums.get(found.session, 0) + found.resident_bytes
    return sums
