"""Waiting until a deployment is ready (design decision 9): the head's verdict by HTTP, deaths by engine events, whichever is first."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from gym_compose.compiler.deployment import Deployment
from gym_compose.engine.errors import CommandError
from gym_compose.engine.interface import Engine, EngineEvent, LogLine
from gym_compose.project.errors import HeadFailedError, ServerDiedError
from gym_compose.project.listening import listening_text
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import NotReadyError
from gym_compose.wire.head import HealthReport, InstanceHealth
from gym_compose.wire.names import HEAD_SERVICE
from gym_compose.wire.settings import Settings

_DEPENDENCY = re.compile(r"dependency failed to start: container (\S+) (?:is unhealthy|exited \((\d+)\))")

Health = Callable[[], HealthReport | None]
Redact = Callable[[str], str]


class DeathWatch:
    """Listens to a project's events in a thread, from before it is started.

    A context manager. ``next_death`` gives the services that ended. An event is a hint only, since a recreated service's old
    container dies too: whoever gets one looks at the present state.
    """

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine = engine
        self._project = project
        self._stop = threading.Event()
        self._deaths: queue.Queue[EngineEvent] = queue.Queue()
        self._thread = threading.Thread(target=self._listen, name=f"events of {project}", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> DeathWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stop.set()

    def join(self, seconds: float) -> bool:
        """Whether the listening thread ended within ``seconds`` of the end of the ``with`` block."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def next_death(self, seconds: float) -> EngineEvent | None:
        """The next service that ended or ran out of memory, or None when there is none for ``seconds``."""
        with contextlib.suppress(queue.Empty):
            return self._deaths.get(timeout=seconds) if seconds > 0 else self._deaths.get_nowait()
        return None

    def _listen(self) -> None:
        try:
            for event in self._engine.events(self._project, self._stop):
                if event.kind != "start":
                    self._deaths.put(event)
                if self._stop.is_set():
                    return
        except Exception as error:  # noqa: BLE001  the waiter raises it: losing events must not go unseen
            self.error = error


@dataclass(frozen=True)
class ReadyWait:
    """What a wait is made of. ``deployment`` says who is waited for, ``redact`` masks log lines."""

    engine: Engine
    deployment: Deployment
    redact: Redact
    settings: Settings
    on_health: Callable[[HealthReport], None] | None = None
    fresh: frozenset[str] = frozenset()
    """Instances that were started under a head that kept running: its verdict is older than they are, so each must have answered after
    ``since`` (epoch seconds)."""
    since: float = 0.0

    def run(self, health: Health, watch: DeathWatch, deadline: Deadline) -> HealthReport:
        """Wait for the head's ok; ``health`` asks it, None is no answer.

        Raises ServerDiedError for the first server that ended (exit code, OOM flag, last lines) and HeadFailedError when the head
        says ``failed``, stays silent for ``head_start_seconds``, or ``deadline`` passes.
        """
        self.raise_dead(deadline)
        silence = deadline.within(self.settings.head_start_seconds, "the head server to answer")
        last: HealthReport | None = None
        while True:
            report = health()
            if report is not None:
                report = self._with_fresh(report)
                last = report
                if self.on_health is not None:
                    self.on_health(report)
                if report.status == "ok":
                    return report
                if report.status == "failed":
                    raise self._failed(report)
            elif last is None and silence.expired:
                raise HeadFailedError(
                    f"the head server did not answer within {self.settings.head_start_seconds:g} s",
                    where=f"services/{HEAD_SERVICE}",
                    details=self._log_tail(HEAD_SERVICE),
                )
            if deadline.expired:
                raise self._too_late(last)
            if watch.error is not None:
                raise watch.error
            event = watch.next_death(deadline.pause(self.settings.ready_poll_seconds))
            if event is not None:
                self.raise_dead(deadline, event)

    def _with_fresh(self, report: HealthReport) -> HealthReport:
        """``report`` with those of ``fresh`` that have not answered yet as waited for."""
        if report.status != "ok":
            return report
        late = {name for name in self.fresh if report.answered.get(name, 0.0) <= self.since}
        if not late:
            return report
        known = {item.name: item for item in report.unreachable}
        waiting = tuple(
            known.get(name) or InstanceHealth(name=name, kind="server", state="waiting", url="", since=self.since) for name in sorted(late)
        )
        others = tuple(item for item in report.unreachable if item.name not in late)
        return report.model_copy(update={"status": "starting", "phase": "servers", "waiting": waiting, "unreachable": others})

    def raise_unhealthy(self, error: CommandError) -> None:
        """Raise for the service that others wait for and that is the reason of ``error``: compose says of it no more than its name."""
        for line in error.details:
            match = _DEPENDENCY.search(line)
            service = match and next(
                (s.name for s in self.deployment.services if f"{self.deployment.project}-{s.name}-1" == match[1]), None
            )
            if match and service:
                log = self._log_tail(service)
                if match[2] is not None:
                    raise ServerDiedError(service, exit_code=int(match[2]), oom_killed=False, log=log) from error
                raise NotReadyError(
                    "it did not become healthy, and others wait for it", where=f"services/{service}", details=log
                ) from error

    def raise_dead(self, deadline: Deadline, event: EngineEvent | None = None) -> None:
        """Raise for the first service (in start order) that has ended by now.

        The OOM flag may follow the death by a moment, so after an event the state is read once more when it is not set yet.
        """
        bounded = deadline.within(self.settings.docker_call_seconds, "the state of the services")
        dead = self._dead(bounded)
        if dead is None:
            return
        service, exit_code, oom_killed = dead
        if event is not None and event.service == service:
            oom_killed = oom_killed or event.oom_killed or event.kind == "oom"
        if not oom_killed:
            threading.Event().wait(bounded.pause(self.settings.event_settle_seconds))
            again = self._dead(bounded)
            if again is not None and again[0] == service:
                _, exit_code, oom_killed = again
        raise ServerDiedError(service, exit_code=exit_code, oom_killed=oom_killed, log=self._log_tail(service))

    def _dead(self, deadline: Deadline) -> tuple[str, int | None, bool] | None:
        observed = self.engine.observe(self.deployment.project, deadline)
        for service in self.deployment.services:
            if service.role == "driver":
                continue
            state = observed.state(service.name)
            if state is None or state.status == "missing":
                return service.name, None if state is None else state.exit_code, False
            if state.status == "exited":
                return service.name, state.exit_code, state.oom_killed
        return None

    def _failed(self, report: HealthReport) -> HeadFailedError:
        details: list[str] = []
        for missing in (*report.waiting, *report.unreachable):
            why = f": {missing.detail}" if missing.detail else ""
            details.append(self.redact(f"{missing.name} ({missing.kind}) {missing.state} at {missing.url}{why}"))
            service = next((service.name for service in self.deployment.services if service.instance == missing.name), None)
            if missing.kind == "server" and service is not None:
                details.extend(f"  {line}" for line in self._listening(service))
                details.extend(f"  {line}" for line in self._log_tail(service))
        message = report.error or "servers or model endpoints did not become ready"
        return HeadFailedError(self.redact(message), where=f"project {self.deployment.project}", details=tuple(details))

    def _listening(self, service: str) -> tuple[str, ...]:
        """What a server that does not answer listens on, where it can be seen: containers have ports of their own, processes share ours."""
        if self.engine.name != "docker":
            return ()
        port = self.deployment.service(service).port
        deadline = Deadline.after(self.settings.docker_call_seconds, "the state of the services")
        state = self.engine.observe(self.deployment.project, deadline).state(service)
        said = listening_text(state.pid, port) if state is not None and state.pid is not None else None
        return (said,) if said is not None else ()

    def _too_late(self, last: HealthReport | None) -> HeadFailedError:
        missing = ", ".join(item.name for item in last.waiting) if last is not None else ""
        return HeadFailedError(
            "not ready in time" + (f", still waiting for {missing}" if missing else ""),
            where=f"project {self.deployment.project}",
            hint="Raise server_spinup_timeout_seconds or model_endpoint_readiness_timeout_seconds.",
        )

    def _log_tail(self, service: str) -> tuple[str, ...]:
        """The last lines of a service, secrets masked. Diagnostics never hide the error they belong to, so their own failure is a line."""
        try:
            lines = self.engine.logs(self.deployment.project, [service], follow=False, tail=self.settings.log_tail_lines)
            return tuple(self.redact(line.text) for line in _last(lines, self.settings.log_tail_lines))
        except Exception as error:  # noqa: BLE001
            return (self.redact(f"(its log cannot be read: {error})"),)


def _last(lines: Iterator[LogLine], count: int) -> list[LogLine]:
    kept: list[LogLine] = []
    for line in lines:
        kept.append(line)
        if len(kept) > count:
            kept.pop(0)
    return kept


def ready_deadline(deployment: Deployment, settings: Settings) -> Deadline:
    """How long the wait for the head may take from now, derived from the config (contract-config 4.6).

    The head applies both timeouts itself and says who is missing, so this is only what remains when the head hangs:
    head start + servers + endpoints + one round of probes. A server timeout of 0 or less has no bound, and so has the sum.
    """
    head = deployment.head
    if head.server_spinup_timeout_seconds <= 0:
        return Deadline.after(None, "the servers to become ready")
    endpoints = max(0.0, head.model_endpoint_readiness_timeout_seconds) if head.endpoints else 0.0
    seconds = settings.head_start_seconds + head.server_spinup_timeout_seconds + endpoints + 2 * settings.probe_timeout_seconds
    return Deadline.after(seconds, "the servers to become ready")
