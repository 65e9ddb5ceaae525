"""A console on strings, an invocation, and a project that does nothing."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gym_compose.cli.console import Console
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation, translate
from gym_compose.engine.interface import (
    BuiltImage,
    EngineEvent,
    LogLine,
    Observed,
    PlannedAction,
    ServiceState,
    StopReport,
)
from gym_compose.wire.head import HealthReport, InstanceHealth
from gym_compose.wire.settings import Settings


@dataclass
class Captured:
    """A console and what was printed on it."""

    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)

    @property
    def console(self) -> Console:
        return Console(self.out, self.err)

    @property
    def stdout(self) -> str:
        return self.out.getvalue()

    @property
    def stderr(self) -> str:
        return self.err.getvalue()


@pytest.fixture
def captured() -> Captured:
    return Captured()


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Invocation]:
    def make(text: str, environ: dict[str, str] | None = None) -> Invocation:
        found = translate(text.split(), cwd=tmp_path, environ=environ or {})
        assert isinstance(found, Invocation), found
        return found

    return make


class FakeEngine:
    """Events come from ``deaths``; nothing else is asked of it."""

    name = "docker"

    def __init__(self) -> None:
        self.deaths: list[EngineEvent] = []

    def events(self, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
        yield from self.deaths
        stop.wait(5)


_SERVICES = (("head", "head"), ("math", "server"), ("driver", "driver"))


class FakeProject:
    """What the handlers use of a Project. ``calls`` is what was done, in order."""

    name = "demo"
    settings = Settings()

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.engine = FakeEngine()
        self.services: tuple[ServiceState, ...] = (
            ServiceState("head", "head", "running", identity="0123456789abcdef", memory_bytes=52_428_800, image="i:1"),
            ServiceState("math", "server", "running", instance="math"),
        )
        self.deployment = SimpleNamespace(
            services=tuple(
                SimpleNamespace(name=name, role=role, instance=name if role == "server" else None, image="gym-compose/native:1")
                for name, role in _SERVICES
            ),
            images=(SimpleNamespace(name="gym-compose/native:1", kind="native", depends_on=("gym-compose/base:1",)),),
        )
        self.config = SimpleNamespace(resolved={}, warnings=())
        self.lines = [LogLine("head", "ready"), LogLine("math", "(math) hello")]
        self.actions: Sequence[PlannedAction] = (
            PlannedAction("head", "keep", "unchanged"),
            PlannedAction("math", "create", "does not exist"),
        )
        self.failure: BaseException | None = None

    def plan(self, deadline: Any) -> Sequence[PlannedAction]:
        self.calls.append("plan")
        return self.actions

    def up(self, deadline: Any, report: Any, *, on_plan: Any, on_health: Any) -> HealthReport:
        self.calls.append("up")
        on_plan(self.actions)
        report("creating math")
        waiting = (InstanceHealth(name="math", kind="server", state="waiting", url="http://math.gym:8000"),)
        on_health(HealthReport(status="starting", phase="servers", elapsed_seconds=0.1, waiting=waiting))
        if self.failure is not None:
            raise self.failure
        done = HealthReport(status="ok", phase="ready", elapsed_seconds=1.0)
        on_health(done)
        return done

    def down(self, deadline: Any, report: Any) -> StopReport:
        self.calls.append("down")
        return StopReport(stopped=("math", "head"), killed=("slow",), removed=3)

    def observe(self, deadline: Any) -> Observed:
        return Observed("demo", "docker", self.services, "/somewhere")

    def head_address(self, deadline: Any) -> str:
        return "127.0.0.1:11000"

    def logs(self, services: Sequence[str] = (), *, follow: bool = False, tail: int | None = None, stop: Any = None) -> Iterator[LogLine]:
        self.calls.append(f"logs {list(services)} {follow} {tail}")
        yield from self.lines
        if follow and self.failure is not None:
            raise self.failure

    def build(self, deadline: Any, report: Any, *, upgrade: bool = False) -> Sequence[BuiltImage]:
        self.calls.append("build --upgrade" if upgrade else "build")
        report("building gym-compose/native:1")
        built = BuiltImage("gym-compose/native:1", "sha256:1", True, 2.5, 1_048_576)
        return (built, BuiltImage("gym-compose/base:1", "sha256:0", False, 0.0))

    def redact(self, text: str) -> str:
        return text


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """The project that any command line loads and finds."""
    fake = FakeProject()
    monkeypatch.setattr(Session, "load", lambda self, **options: fake)
    monkeypatch.setattr(Session, "find", lambda self: fake)
    return fake
