"""The one interface to what runs: Docker Compose and local processes implement it, tests have a fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from gym_compose.compiler.deployment import Deployment
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.names import EngineName

Status = Literal["created", "running", "exited", "missing"]
Report = Callable[[str], None]
"""Takes one line of progress ("building gym-compose/native:3f2a… (2 of 5)")."""


@dataclass(frozen=True)
class ServiceState:
    """What is seen of one service. Times are epoch seconds."""

    service: str
    role: str
    status: Status
    instance: str | None = None
    identity: str | None = None
    """Container id, or pid as text."""
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: float | None = None
    restarts: int = 0
    image: str | None = None
    slice_sha256: str | None = None
    memory_bytes: int | None = None
    networks: tuple[str, ...] = ()
    pid: int | None = None
    """Of its first process, as the engine's host numbers it; None when it does not run."""


@dataclass(frozen=True)
class Observed:
    """A snapshot: no calls are made from it later. ``directory`` is the project's run directory as the labels say."""

    project: str
    engine: EngineName
    services: tuple[ServiceState, ...]
    directory: str | None = None

    @property
    def empty(self) -> bool:
        return not self.services

    def state(self, service: str) -> ServiceState | None:
        return next((state for state in self.services if state.service == service), None)


Action = Literal["create", "recreate", "start", "keep", "remove"]


@dataclass(frozen=True)
class PlannedAction:
    service: str
    action: Action
    reason: str


@dataclass(frozen=True)
class EngineEvent:
    """Something happened to a container or process of the project."""

    service: str
    kind: Literal["start", "die", "oom"]
    exit_code: int | None = None
    oom_killed: bool = False
    at: float = 0.0


@dataclass(frozen=True)
class LogLine:
    service: str
    text: str
    at: float | None = None


@dataclass(frozen=True)
class StopReport:
    """Who stopped, in order, and who had to be killed."""

    stopped: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    removed: int = 0


@dataclass(frozen=True)
class BuiltImage:
    """``built`` False: it was there. ``own_bytes``: what it adds to its parent, None when unknown."""

    name: str
    image_id: str
    built: bool
    seconds: float
    own_bytes: int | None = None


class Engine(Protocol):
    """Every call is bounded by the deadline it is given and raises a GymComposeError for what a user can mend."""

    name: EngineName

    def check(self, deadline: Deadline) -> None:
        """Raise PrerequisiteError when this engine cannot be used here: not installed, not running, no permission, another host."""

    def build(self, deployment: Deployment, directory: Path, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:
        """Make what is missing of ``deployment.images``, base first (Docker), or the requirement sets (processes)."""

    def observe(self, project: str, deadline: Deadline) -> Observed:
        """What is there of the project now, the dead included."""

    def plan(self, deployment: Deployment, observed: Observed) -> Sequence[PlannedAction]:
        """Desired against observed, in start order; pure."""

    def apply(self, deployment: Deployment, directory: Path, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
        """Create, recreate and start; returns when all are started, not when they are ready."""

    def events(self, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
        """Events from now on until ``stop`` is set. Subscribed before the first ``next`` returns or the generator blocks."""

    def logs(
        self, project: str, services: Sequence[str], *, follow: bool, tail: int | None, stop: threading.Event | None = None
    ) -> Iterator[LogLine]:
        """Lines of the named services (all when empty), dead ones included."""

    def stop(self, project: str, deadline: Deadline, report: Report) -> StopReport:
        """Stop in order, driver first and head last, remove all that is the project's, say who had to be killed. Idempotent."""

    def published(self, project: str, deadline: Deadline) -> dict[str, str]:
        """``{service: "127.0.0.1:port"}`` of what is reachable from the host; ``head`` among them."""
