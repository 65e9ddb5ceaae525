"""Log lines of a project's containers, dead ones included, merged by time (``docker compose logs`` does not merge: field-notes B39).

Each followed container has an SDK client and a thread of its own. A stream that breaks off is opened again from its last line; a container
that is recreated meanwhile is found within a second and followed from its first line.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gym_compose.engine.docker.api import COMPOSE_PROJECT, DockerApi, NotFoundInDockerError
from gym_compose.engine.docker.observe import epoch, service_of
from gym_compose.engine.interface import LogLine
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.redaction import Redactor


@dataclass(frozen=True)
class StampedLine:
    """A line with the engine's time stamp as text (fixed width up to the zone, so it sorts) and as epoch seconds."""

    stamp: str
    at: float | None
    text: str


Take = Callable[[StampedLine], None]


class LineAssembler:
    """Frames of a log with time stamps to whole lines.

    The engine cuts a line of more than 16 KiB into several messages; each bears a stamp, only the last one a newline.
    """

    def __init__(self) -> None:
        self._stamp = ""
        self._parts: list[str] = []

    def feed(self, frame: bytes) -> Iterator[StampedLine]:
        stamp, _, rest = frame.decode("utf-8", errors="replace").partition(" ")
        if not self._parts:
            self._stamp = stamp
        self._parts.append(rest.rstrip("\r\n"))
        if rest.endswith("\n"):
            yield from self.flush()

    def flush(self) -> Iterator[StampedLine]:
        """The line that has no end yet."""
        if self._parts:
            text, self._parts = "".join(self._parts), []
            yield StampedLine(self._stamp, epoch(self._stamp), text)


def lines_of(frames: Iterable[bytes]) -> list[StampedLine]:
    assembler = LineAssembler()
    lines = [line for frame in frames for line in assembler.feed(frame)]
    return [*lines, *assembler.flush()]


def project_logs(
    api: DockerApi,
    project: str,
    services: Sequence[str],
    redactor: Redactor,
    *,
    follow: bool,
    tail: int | None,
    stop: threading.Event | None,
) -> Iterator[LogLine]:
    """Lines by time, secrets masked.

    ``follow``: until ``stop`` is set, or nothing of the project has run for ``log_idle_seconds``; without ``stop`` until all have ended.
    """
    if follow:
        yield from _followed(api, project, frozenset(services), redactor, tail, stop)
        return
    deadline = Deadline.after(api.settings.docker_call_seconds, "logs")
    parts: list[list[tuple[str, int, LogLine]]] = []
    for number, (container, service) in enumerate(_containers(api, project, frozenset(services), deadline)):
        with contextlib.suppress(NotFoundInDockerError):
            lines = lines_of(api.log(container, deadline, tail=tail))
            parts.append([(line.stamp, number, LogLine(service, redactor.text(line.text), line.at)) for line in lines])
    for _, _, line in heapq.merge(*parts, key=lambda item: (item[0], item[1])):
        yield line


def _containers(api: DockerApi, project: str, services: frozenset[str], deadline: Deadline) -> list[tuple[str, str]]:
    found = [
        (str(summary["Id"]), service_of(summary.get("Labels") or {}))
        for summary in api.containers([f"{COMPOSE_PROJECT}={project}"], deadline)
    ]
    return sorted(((container, service) for container, service in found if not services or service in services), key=lambda item: item[1])


class Follower:
    """Follows one container in a thread and hands its lines to ``take``, from the beginning or the last ``tail`` lines, until it ends.

    ``stdout`` and ``stderr`` choose what is read. ``ended`` is set at the container's end (or when it is gone).
    """

    def __init__(
        self, api: DockerApi, container: str, take: Take, *, tail: int | None = None, stdout: bool = True, stderr: bool = True
    ) -> None:
        self.ended = threading.Event()
        self.error: GymComposeError | None = None
        self._api = api
        self._container = container
        self._take = take
        self._tail: int | str = "all" if tail is None else tail
        self._outputs = {"stdout": stdout, "stderr": stderr}
        self._closed = threading.Event()
        self._last = ""
        self._client: Any = None
        self._stream: Any = None
        self._thread = threading.Thread(target=self._run, name=f"docker log {container[:12]}", daemon=True)

    def start(self) -> Follower:
        self._thread.start()
        return self

    def close(self) -> None:
        self._closed.set()
        self._shut()
        self._thread.join(self._api.settings.kill_grace_seconds)

    def _shut(self) -> None:
        # A stream that its reader has just closed answers with one of these, depending on urllib3's version.
        for closing in (self._stream, self._client):
            if closing is not None:
                with contextlib.suppress(OSError, AttributeError, ValueError):
                    closing.close()

    def _run(self) -> None:
        until: Deadline | None = None
        try:
            while not self._closed.is_set():
                try:
                    if self._read():
                        until = None
                    if not self._running():
                        return
                except NotFoundInDockerError:
                    return
                except GymComposeError as error:
                    until = until or Deadline.after(self._api.settings.docker_call_seconds, "the log stream")
                    if until.expired:
                        self.error = error
                        return
                self._closed.wait(self._api.settings.event_reconnect_seconds)
        finally:
            self._shut()
            self.ended.set()

    def _read(self) -> bool:
        """One stream to its end; whether it gave a new line."""
        self._client = self._api.stream_client(Deadline.after(self._api.settings.docker_call_seconds, "the log stream"))
        since = None if not self._last else max(0.0, (epoch(self._last) or 0.0) - 0.001)
        options = {**self._outputs, "stream": True, "follow": True, "timestamps": True, "since": since, "tail": self._tail}
        self._stream = self._api.mapped(lambda: self._client.logs(self._container, **options), f"follow container {self._container[:12]}")
        assembler = LineAssembler()
        new = False
        try:
            for frame in self._stream:
                for line in assembler.feed(frame):
                    new = self._tell(line) or new
        except (OSError, ValueError, AttributeError):
            if not self._closed.is_set():
                return new  # broken off: the caller looks whether the container runs, and opens it again
        for line in assembler.flush():
            new = self._tell(line) or new
        return new

    def _tell(self, line: StampedLine) -> bool:
        if line.stamp <= self._last:
            return False  # seen before the stream broke off
        self._last = line.stamp
        self._tail = "all"  # from here on `since` says where to go on
        self._take(line)
        return True

    def _running(self) -> bool:
        facts = self._api.inspect(self._container, Deadline.after(self._api.settings.docker_call_seconds, "a container's state"))
        return bool((facts.get("State") or {}).get("Running"))


def _followed(
    api: DockerApi, project: str, services: frozenset[str], redactor: Redactor, tail: int | None, stop: threading.Event | None
) -> Iterator[LogLine]:
    arrived: queue.Queue[tuple[str, StampedLine]] = queue.Queue()
    followers: dict[str, Follower] = {}
    held: list[tuple[str, int, float, LogLine]] = []
    number = 0
    look_at = 0.0
    idle_since: float | None = None
    patience = 0.0 if stop is None else api.settings.log_idle_seconds
    try:
        while stop is None or not stop.is_set():
            now = time.monotonic()
            if now >= look_at:
                deadline = Deadline.after(api.settings.docker_call_seconds, "logs")
                for container, service in _containers(api, project, services, deadline):
                    if container not in followers:
                        first = not look_at
                        followers[container] = Follower(api, container, _put(arrived, service), tail=tail if first else None).start()
                look_at = now + api.settings.probe_interval_seconds
            with contextlib.suppress(queue.Empty):
                service, line = arrived.get(timeout=api.settings.event_poll_seconds)
                while True:
                    number += 1
                    heapq.heappush(held, (line.stamp, number, time.monotonic(), LogLine(service, redactor.text(line.text), line.at)))
                    service, line = arrived.get_nowait()
            ended = all(follower.ended.is_set() for follower in followers.values()) and arrived.empty()
            # A line is held for a moment, so that one of another service that was written before it can go first.
            settled = time.monotonic() - api.settings.log_merge_seconds
            while held and (ended or held[0][2] <= settled):
                yield heapq.heappop(held)[3]
            if not ended:
                idle_since = None
            elif idle_since is None:
                idle_since = now
            if idle_since is not None and now - idle_since >= patience and not held:
                for follower in followers.values():
                    if follower.error is not None:
                        raise follower.error
                return
    finally:
        for follower in followers.values():
            follower.close()


def _put(arrived: queue.Queue[tuple[str, StampedLine]], service: str) -> Take:
    return lambda line: arrived.put((service, line))
