"""A deployment of three services and an engine that plays it from memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.deployment import Deployment, Service
from gym_compose.engine.interface import BuiltImage, EngineEvent, LogLine, Observed, PlannedAction, Report, ServiceState, StopReport
from gym_compose.project.project import Project
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.head import HeadDocument, Listen
from gym_compose.wire.names import EngineName, Role
from gym_compose.wire.settings import Settings

PROJECT = "quick-123456"


def make_service(name: str, role: Role = "server", instance: str | None = None) -> Service:
    return Service(
        name=name,
        role=role,
        instance=instance if instance is not None else (name if role == "server" else None),
        image="gym-compose/native:0",
        command=("run",),
        attachments=(),
        user=None,
    )


def make_deployment(*, spinup: float = 600, head_port: int = 11000) -> Deployment:
    return Deployment(
        project=PROJECT,
        version="0.1.0",
        target="docker",
        services=(
            make_service("head", "head"),
            make_service("policy_model"),
            make_service("math.slug", instance="math server"),
            make_service("driver", "driver"),
        ),
        images=(),
        networks=(),
        head=HeadDocument(
            gym_compose="0.1.0",
            project=PROJECT,
            engine="docker",
            config={},
            instances=(),
            server_spinup_timeout_seconds=spinup,
            model_endpoint_readiness_timeout_seconds=600,
            listen=Listen(host="head.gym", port=11000),
        ),
        head_secret=None,  # type: ignore[arg-type]  # not looked at here
        head_port=head_port,
    )


@dataclass
class PlayedEngine:
    """An engine in memory. ``on_apply`` runs when servers are started; ``calls`` holds what was asked for, in order."""

    name: EngineName = "docker"
    states: dict[str, ServiceState] = field(default_factory=dict)
    log: dict[str, list[str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    address: str | None = "127.0.0.1:11000"
    further: dict[str, str] = field(default_factory=dict)
    on_apply: Callable[[PlayedEngine], None] | None = None
    fail: dict[str, BaseException] = field(default_factory=dict)
    _events: list[EngineEvent] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    listeners: int = 0

    def _call(self, verb: str) -> None:
        self.calls.append(verb)
        if verb in self.fail:
            raise self.fail[verb]

    def check(self, deadline: Deadline) -> None:
        self._call("check")

    def build(self, deployment: Deployment, directory: Path, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:
        self._call("build")
        return ()

    def observe(self, project: str, deadline: Deadline) -> Observed:
        self._call("observe")
        return Observed(project, self.name, tuple(self.states.values()))

    def plan(self, deployment: Deployment, observed: Observed) -> Sequence[PlannedAction]:
        return tuple(
            PlannedAction(service.name, "keep" if observed.state(service.name) else "create", "")
            for service in deployment.services
            if service.role != "driver"
        )

    def apply(self, deployment: Deployment, directory: Path, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
        self._call("apply")
        for action in actions:
            if action.action != "keep":
                self.states[action.service] = ServiceState(action.service, "server", "running")
        if self.on_apply is not None:
            self.on_apply(self)

    def events(self, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
        self.listeners += 1
        if "events" in self.fail:
            raise self.fail["events"]
        given = 0
        try:
            while not stop.is_set():
                with self._changed:
                    if len(self._events) == given:
                        self._changed.wait(timeout=0.02)
                    fresh = self._events[given:]
                given += len(fresh)
                yield from fresh
        finally:
            self.listeners -= 1

    def logs(
        self, project: str, services: Sequence[str], *, follow: bool, tail: int | None, stop: threading.Event | None = None
    ) -> Iterator[LogLine]:
        self._call("logs")
        for service in services or tuple(self.log):
            lines = self.log.get(service, [])
            yield from (LogLine(service, line) for line in (lines if tail is None else lines[-tail:]))

    def stop(self, project: str, deadline: Deadline, report: Report) -> StopReport:
        self._call("stop")
        stopped = tuple(self.states)
        self.states.clear()
        return StopReport(stopped=stopped, removed=len(stopped))

    def published(self, project: str, deadline: Deadline) -> dict[str, str]:
        self._call("published")
        return {**({} if self.address is None else {"head": self.address}), **self.further}

    # What happens to it

    def die(self, service: str, exit_code: int = 1, *, oom: bool = False, event_oom: bool = False) -> None:
        """The service ends: the state first, the event after, as Docker does it."""
        self.states[service] = replace(self.states[service], status="exited", exit_code=exit_code, oom_killed=oom)
        self.emit(EngineEvent(service, "die", exit_code, oom_killed=event_oom))

    def emit(self, event: EngineEvent) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()


@pytest.fixture
def engine() -> PlayedEngine:
    return PlayedEngine()


@pytest.fixture
def deployment() -> Deployment:
    return make_deployment()


@pytest.fixture
def settings() -> Settings:
    """Short times, so that a test of a timeout takes no time."""
    return Settings(ready_poll_seconds=0.02, event_settle_seconds=0.05, head_start_seconds=0.3, log_tail_lines=3, project_lock_seconds=0.2)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 5
        while not condition():
            assert time.monotonic() < end, "it did not happen within 5 s"
            time.sleep(0.005)

    return wait


class HeadServer:
    """A head on a free port of this host that gives these answers to /health one after the other, the last one for ever.

    A callable is called when its turn comes, and the next answer is given.
    """

    def __init__(self, *answers: dict[str, object] | Callable[[], None]) -> None:
        self.answers = list(answers)
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                while callable(played.answers[0]):
                    played.answers.pop(0)()  # type: ignore[operator]
                answer = played.answers[0] if len(played.answers) == 1 else played.answers.pop(0)
                body = json.dumps(answer).encode()
                self.send_response(200 if isinstance(answer, dict) and answer["status"] == "ok" else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


OK = {"status": "ok", "phase": "ready", "elapsed_seconds": 1}
STARTING = {"status": "starting", "phase": "servers", "elapsed_seconds": 0}


@pytest.fixture
def head(engine: PlayedEngine) -> Iterator[Callable[..., HeadServer]]:
    """``head(answer, …)``: what the engine publishes as its head from then on. Without arguments it is ready at once."""
    made: list[HeadServer] = []

    def start(*answers: dict[str, object] | Callable[[], None]) -> HeadServer:
        server = HeadServer(*(answers or (OK,)))
        made.append(server)
        engine.address = server.address
        return server

    yield start
    for server in made:
        server.close()


CONFIG = """
tool:
  resources_servers:
    example_single_tool_call: {entrypoint: app.py, domain: agent}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: tool}
      model_server: {type: responses_api_models, name: policy}
      datasets: [{name: example, type: example, jsonl_fpath: resources_servers/example_single_tool_call/data/example.jsonl}]
policy:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: https://models.example/v1
      openai_api_key: ${policy_api_key}
      openai_model: tiny
environment:
  environment_servers:
    legacy_agent: {entrypoint: app.py, agent_server: {type: responses_api_agents, name: agent}}
"""
SECRET = "marker-secret-4711"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A user's directory: a config of four native servers, and env.yaml with a key."""
    (tmp_path / "four.yaml").write_text(CONFIG)
    (tmp_path / "env.yaml").write_text(f"policy_api_key: {SECRET}\nunused_password: another-{SECRET}\n")
    return tmp_path


@pytest.fixture
def load(cwd: Path, engine: PlayedEngine, settings: Settings) -> Callable[..., Project]:
    """``load(*overrides, …)``: the project of that config on the played engine."""

    def make(*overrides: str, **options: Any) -> Project:
        chosen = ("+config_paths=[four.yaml]", *overrides)
        return Project.load(chosen, **{"engine": engine, "cwd": cwd, "environ": {}, "settings": settings, **options})

    return make
