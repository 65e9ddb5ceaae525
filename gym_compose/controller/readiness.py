"""Who answers: readiness in two phases, then liveness (contract-config 4.6; design decision 9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gym_compose.controller.probe import Probe, ProbeResult
from gym_compose.wire.deadline import Clock, Deadline
from gym_compose.wire.head import HeadDocument, HealthReport, InstanceHealth
from gym_compose.wire.settings import Settings

Phase = Literal["servers", "model_endpoints", "ready", "failed"]
State = Literal["waiting", "ready", "unreachable", "skipped"]
_STATUS = {"servers": "starting", "model_endpoints": "starting", "ready": "ok", "failed": "failed"}


@dataclass
class _Target:
    name: str
    kind: Literal["server", "model_endpoint"]
    url: str
    state: State
    since: float
    detail: str | None = None
    answered: bool = False
    answered_at: float | None = None

    def move(self, state: State, detail: str | None, now: float) -> bool:
        changed = state != self.state
        if changed:
            self.since = now
        self.state, self.detail = state, detail
        return changed

    def health(self) -> InstanceHealth:
        return InstanceHealth(name=self.name, kind=self.kind, state=self.state, url=self.url, since=self.since, detail=self.detail)


class Readiness:
    """Probes every server once an interval, for as long as ``run`` runs, and keeps the verdict.

    A server that answered once counts as up for the first phase, as in the peer. When all have, the model endpoints are asked: one
    whose name does not resolve in the first round is warned about and skipped. ``ready`` never flips back; a server that stops
    answering is marked ``unreachable`` and recovers by answering. ``clock`` bounds, ``now`` (epoch seconds) stamps; ``log`` takes a line.
    """

    def __init__(
        self,
        document: HeadDocument,
        probe: Probe,
        settings: Settings,
        *,
        clock: Clock = time.monotonic,
        now: Callable[[], float] = time.time,
        log: Callable[[str], None] = print,
    ) -> None:
        self._probe = probe
        self._settings = settings
        self._clock = clock
        self._now = now
        self._log = log
        self._spinup_seconds = document.server_spinup_timeout_seconds
        self._endpoint_seconds = document.model_endpoint_readiness_timeout_seconds
        self._servers = [
            _Target(i.process_name, "server", i.url or f"http://{i.host}:{i.port}", "waiting", now()) for i in document.instances
        ]
        self._endpoints = [_Target(e.key, "model_endpoint", e.url, "waiting", now()) for e in document.endpoints]
        self._phase: Phase = "servers"
        self._started = clock()
        self._settled: float | None = None
        self._warnings: list[str] = []
        self._error: str | None = None
        self._progress = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self._phase == "ready"

    def unreachable(self) -> dict[str, float]:
        """Instance to epoch seconds since when it does not answer any more."""
        return {target.name: target.since for target in self._servers if target.state == "unreachable"}

    def report(self) -> HealthReport:
        """The verdict as of now. ``elapsed_seconds`` stops when it is reached."""
        missing: list[_Target] = []
        if self._phase in ("servers", "failed"):
            missing = [target for target in self._servers if not target.answered]
        if self._phase in ("model_endpoints", "failed") and not missing:
            missing = [target for target in self._endpoints if target.state == "waiting"]
        return HealthReport(
            status=_STATUS[self._phase],
            phase=self._phase,
            elapsed_seconds=round((self._clock() if self._settled is None else self._settled) - self._started, 3),
            waiting=tuple(target.health() for target in missing),
            unreachable=tuple(target.health() for target in self._servers if target.state == "unreachable"),
            warnings=tuple(self._warnings),
            error=self._error,
            answered={target.name: target.answered_at for target in self._servers if target.answered_at is not None},
        )

    async def run(self) -> None:
        """Probe until cancelled."""
        async with asyncio.TaskGroup() as group:
            for server in self._servers:
                group.create_task(self._watch(server))
            group.create_task(self._judge())

    async def _judge(self) -> None:
        spinup = Deadline.after(self._spinup_seconds if self._spinup_seconds > 0 else None, "the servers", self._clock)
        while missing := [target for target in self._servers if not target.answered]:
            if spinup.expired:
                self._fail(
                    f"{len(missing)} of {len(self._servers)} servers did not answer within {self._spinup_seconds:g} s: {_names(missing)}. "
                    "Look at their logs; server_spinup_timeout_seconds gives them more time."
                )
                return
            self._progress.clear()
            try:
                async with asyncio.timeout(spinup.remaining()):
                    await self._progress.wait()
            except TimeoutError:
                continue
        if self._endpoints and self._endpoint_seconds > 0:
            self._phase = "model_endpoints"
            self._log(f"all {len(self._servers)} servers answer; asking {len(self._endpoints)} model endpoints")
            if not await self._await_endpoints():
                return
        self._settle("ready")
        self._log(f"ready after {self.report().elapsed_seconds:.1f} s: {len(self._servers)} servers answer")

    async def _await_endpoints(self) -> bool:
        deadline = Deadline.after(self._endpoint_seconds, "the model endpoints", self._clock)
        first = True
        while waiting := [target for target in self._endpoints if target.state == "waiting"]:
            if not first and deadline.expired:
                self._fail(
                    f"{len(waiting)} model endpoint(s) did not answer within {self._endpoint_seconds:g} s: "
                    + "; ".join(f"{target.url} (from {target.name}): {target.detail}" for target in waiting)
                    + ". Any HTTP answer counts; model_endpoint_readiness_timeout_seconds gives them more time, 0 does not wait."
                )
                return False
            if not first:
                await asyncio.sleep(deadline.pause(self._settings.probe_interval_seconds))
            seconds = deadline.pause(self._settings.probe_timeout_seconds)
            for target, result in zip(waiting, await asyncio.gather(*(self._probe(t.url, seconds) for t in waiting)), strict=True):
                self._take_endpoint(target, result, first)
            first = False
        return True

    def _take_endpoint(self, target: _Target, result: ProbeResult, first: bool) -> None:
        if result.answers_as_endpoint:
            target.move("ready", result.detail, self._now())
        elif first and result.outcome == "unresolvable":
            target.move("skipped", result.detail, self._now())
            warning = f"model endpoint {target.url} (from {target.name}) is not waited for: its name does not resolve here"
            self._warnings.append(warning)
            self._log(f"warning: {warning}")
        else:
            target.move("waiting", result.detail, self._now())

    async def _watch(self, server: _Target) -> None:
        while True:
            begun = self._clock()
            seconds = self._settings.liveness_timeout_seconds if server.answered else self._settings.probe_timeout_seconds
            self._take_server(server, await self._probe(server.url, seconds))
            await asyncio.sleep(max(0.0, self._settings.probe_interval_seconds - (self._clock() - begun)))

    def _take_server(self, server: _Target, result: ProbeResult) -> None:
        if result.answers_as_server:
            server.answered = True
            server.answered_at = self._now()
            if server.move("ready", None, self._now()):
                self._log(f"{server.name} answers at {server.url}")
                self._progress.set()
        elif server.answered:
            if server.move("unreachable", result.detail, self._now()):
                self._log(f"{server.name} at {server.url} is unreachable: {result.detail}")
        else:
            server.move("waiting", result.detail, self._now())

    def _settle(self, phase: Phase) -> None:
        self._phase = phase
        self._settled = self._clock()

    def _fail(self, error: str) -> None:
        self._error = error
        self._settle("failed")
        self._log(f"failed: {error}")


def _names(targets: Iterable[_Target]) -> str:
    return ", ".join(f"{target.name} ({target.detail})" if target.detail else target.name for target in targets)
