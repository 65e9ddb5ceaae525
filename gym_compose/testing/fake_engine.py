"""An engine in memory, for tests of what stands above it: no Docker, no process, deaths and log lines on demand."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gym_compose.compiler.deployment import Attachment, Deployment, Image, Network, Service
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
from gym_compose.engine.order import stop_tiers
from gym_compose.engine.plan import plan_actions
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.head import HeadDocument, HeadSecret, Listen
from gym_compose.wire.names import EngineName, Role
from gym_compose.wire.settings import Settings

_KILLED = 137


class FakeEngine:
    """Implements ``gym_compose.engine.interface.Engine`` on dictionaries. Calls are counted in ``calls``, in order, by name.

    ``errors`` maps a call's name to what it raises; ``deaf`` services have to be killed at ``stop``. ``addresses`` is what ``published``
    says of those that run. ``die`` and ``say`` script a death and a log line.
    """

    def __init__(self, name: EngineName = "docker") -> None:
        self.name: EngineName = name
        self.calls: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.deaf: set[str] = set()
        self.addresses: dict[str, str] = {}
        self.built: set[str] = set()
        self._states: dict[str, dict[str, ServiceState]] = {}
        self._directories: dict[str, Path] = {}
        self._lines: dict[str, list[LogLine]] = {}
        self._listeners: list[tuple[str, queue.Queue[EngineEvent]]] = []
        self._started = 0

    # Scripting

    def die(self, project: str, service: str, exit_code: int | None = 1, *, oom: bool = False) -> None:
        """End a running service: its state changes and every listener is told."""
        state = self._states[project][service]
        self._states[project][service] = replace(state, status="exited", exit_code=exit_code, oom_killed=oom)
        if oom:
            self._tell(project, EngineEvent(service, "oom", oom_killed=True))
        self._tell(project, EngineEvent(service, "die", exit_code, oom))

    def say(self, project: str, service: str, *lines: str) -> None:
        """Add log lines."""
        self._lines.setdefault(project, []).extend(LogLine(service, line) for line in lines)

    def put(self, project: str, state: ServiceState) -> None:
        """Have a service in a state of one's own making."""
        self._states.setdefault(project, {})[state.service] = state

    # Engine

    def check(self, deadline: Deadline) -> None:
        self._called("check", deadline)

    def build(self, deployment: Deployment, directory: Path, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:  # noqa: ARG002
        self._called("build", deadline)
        images = []
        for image in deployment.images:
            new = image.name not in self.built
            if new:
                report(f"building {image.name}")
                self.built.add(image.name)
            images.append(BuiltImage(image.name, f"sha256:{image.key}", new, 0.0))
        return tuple(images)

    def observe(self, project: str, deadline: Deadline) -> Observed:
        self._called("observe", deadline)
        directory = self._directories.get(project)
        states = tuple(state for _, state in sorted(self._states.get(project, {}).items()))
        return Observed(project, self.name, states, str(directory) if directory is not None and states else None)

    def plan(self, deployment: Deployment, observed: Observed) -> Sequence[PlannedAction]:
        return plan_actions(deployment, observed)

    def apply(self, deployment: Deployment, directory: Path, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
        self._called("apply", deadline)
        project = deployment.project
        self._directories[project] = directory
        states = self._states.setdefault(project, {})
        for action in actions:
            if action.action == "keep":
                continue
            report(f"{action.action} {action.service}: {action.reason}")
            if action.action == "remove":
                del states[action.service]
                continue
            self._started += 1
            states[action.service] = _running(deployment.service(action.service), f"id-{self._started}", float(self._started))
            self._tell(project, EngineEvent(action.service, "start", at=float(self._started)))

    def events(self, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
        self._called("events", None)
        told: queue.Queue[EngineEvent] = queue.Queue()
        self._listeners.append((project, told))
        return _until(told, stop)

    def logs(
        self, project: str, services: Sequence[str], *, follow: bool, tail: int | None, stop: threading.Event | None = None
    ) -> Iterator[LogLine]:
        """What was said so far; ``follow`` then waits for ``stop``, since nothing more is written while a test reads."""
        self._called("logs", None)
        kept: dict[str, list[LogLine]] = {}
        for line in self._lines.get(project, []):
            if not services or line.service in services:
                kept.setdefault(line.service, []).append(line)
        wanted = {id(line) for lines in kept.values() for line in (lines if tail is None else lines[len(lines) - min(tail, len(lines)) :])}
        yield from [line for line in self._lines.get(project, []) if id(line) in wanted]
        if follow and stop is not None:
            stop.wait()

    def stop(self, project: str, deadline: Deadline, report: Report) -> StopReport:
        self._called("stop", deadline)
        states = self._states.pop(project, {})
        stopped: list[str] = []
        killed: list[str] = []
        for tier in stop_tiers((state for state in states.values() if state.status == "running"), {}):
            for state in tier:
                name = state.instance or state.service
                stopped.append(name)
                if state.service in self.deaf:
                    killed.append(name)
                report(f"{name} stopped")
                self._tell(project, EngineEvent(state.service, "die", _KILLED if state.service in self.deaf else 0))
        return StopReport(tuple(stopped), tuple(killed), len(states))

    def published(self, project: str, deadline: Deadline) -> dict[str, str]:
        self._called("published", deadline)
        running = {service for service, state in self._states.get(project, {}).items() if state.status == "running"}
        return {service: address for service, address in self.addresses.items() if service in running}

    # Inside

    def _called(self, name: str, deadline: Deadline | None) -> None:
        self.calls.append(name)
        if deadline is not None and deadline.expired:
            raise AssertionError(f"{name} was called with a deadline that has passed")
        if name in self.errors:
            raise self.errors[name]

    def _tell(self, project: str, event: EngineEvent) -> None:
        for listened, told in self._listeners:
            if listened == project:
                told.put(event)


def sample_deployment(
    project: str = "sample",
    services: Mapping[str, str | None] | Sequence[Service] = (),
    *,
    images: Sequence[Image] = (),
    target: EngineName = "docker",
) -> Deployment:
    """A small deployment. ``services`` are Services, or ``{name: slice digest}``, where ``head`` and ``driver`` get those roles."""
    made = (
        tuple(sample_service(name, slice_sha256=digest) for name, digest in services.items())
        if isinstance(services, Mapping)
        else tuple(services)
    )
    head = HeadDocument(
        gym_compose="0",
        project=project,
        engine=target,
        config={},
        instances=(),
        server_spinup_timeout_seconds=60,
        model_endpoint_readiness_timeout_seconds=0,
        listen=Listen(host="127.0.0.1", port=11000),
    )
    return Deployment(
        project=project,
        version="0",
        target=target,
        services=made,
        images=tuple(images),
        networks=(Network("servers"),),
        head=head,
        head_secret=HeadSecret(),
        head_port=0,
    )


def sample_service(
    name: str,
    command: Sequence[str] = ("true",),
    *,
    slice_sha256: str | None = "s1",
    image: str = "image:1",
    host: str = "",
    port: int = 0,
    stop_grace_seconds: float = 10.0,
    environment: Mapping[str, str] | None = None,
) -> Service:
    """A service without a slice; the names ``head`` and ``driver`` give the role."""
    role: Role = "head" if name == "head" else "driver" if name == "driver" else "server"
    return Service(
        name=name,
        role=role,
        instance=name if role == "server" else None,
        image=image,
        command=tuple(command),
        attachments=(Attachment("servers"),),
        user=None,
        slice_sha256=slice_sha256,
        environment=tuple((environment or {}).items()),
        stop_grace_seconds=stop_grace_seconds,
        profiles=("driver",) if role == "driver" else (),
        host=host,
        port=port,
    )


def _running(service: Service, identity: str, at: float) -> ServiceState:
    return ServiceState(
        service=service.name,
        role=service.role,
        status="running",
        instance=service.instance,
        identity=identity,
        started_at=at,
        image=service.image,
        slice_sha256=service.slice_sha256,
    )


def _until(told: queue.Queue[EngineEvent], stop: threading.Event) -> Iterator[EngineEvent]:
    while not stop.is_set():
        try:
            yield told.get(timeout=Settings.event_poll_seconds)
        except queue.Empty:
            continue
