"""The engine's event stream of one project: who started, who died with which exit code, who ran out of memory.

The stream is opened by ``project_events`` itself, before its iterator is asked for the first event, with ``since`` set to a moment before:
the engine sends the answer's header before it subscribes, so without ``since`` a death in between would be lost. A stream that breaks off
(daemon restart, network hiccup) is opened again from where it ended; events are known by container, action and time, and come once.

A ``die`` may come before its ``oom`` (moby/moby#15621), so one with exit code 137 is held back for ``event_settle_seconds``, and the
container is asked for its flag. 137 without the flag is "killed", not "out of memory" (field-notes B33).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from gym_compose.engine.docker.api import COMPOSE_PROJECT, COMPOSE_SERVICE, DockerApi, Json
from gym_compose.engine.interface import EngineEvent
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError

_LOG = logging.getLogger(__name__)

KILLED = 137
_ACTIONS = ("start", "die", "oom")
_REMEMBERED = 4096


def project_events(api: DockerApi, project: str, stop: threading.Event) -> Iterator[EngineEvent]:
    """Events from now on until ``stop`` is set. Subscribed when this returns.

    Raises DockerUnavailableError when the stream cannot be opened in the first place, or not again within ``docker_call_seconds``.
    """
    reader = _Reader(api, project, time.time())
    reader.start()
    return _settled(
        reader, stop, lambda container: _flag(api, container), api.settings.event_poll_seconds, api.settings.event_settle_seconds
    )


class _Reader:
    """Reads the stream in a thread, since a read of a quiet stream blocks. ``items`` get decoded events; an exception is the end."""

    def __init__(self, api: DockerApi, project: str, since: float) -> None:
        self.items: queue.Queue[Json | GymComposeError] = queue.Queue()
        self._api = api
        self._project = project
        self._since = since
        self._seen: OrderedDict[tuple[str, str, int], None] = OrderedDict()
        self._closed = threading.Event()
        self._stream: Any = None
        self._client: Any = None
        self._thread = threading.Thread(target=self._run, name=f"docker events {project}", daemon=True)

    def start(self) -> None:
        self._open()
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._shut()
        self._thread.join(self._api.settings.kill_grace_seconds)

    def _open(self) -> None:
        self._client = self._api.stream_client(Deadline.after(self._api.settings.docker_call_seconds, "the event stream"))
        filters = {"type": ["container"], "label": [f"{COMPOSE_PROJECT}={self._project}"], "event": list(_ACTIONS)}
        self._stream = self._client.events(since=f"{self._since:.9f}", filters=filters, decode=False)

    def _shut(self) -> None:
        # Closing from another thread is what wakes the reader. It may find the stream closed already, in ways that depend on urllib3.
        for closing in (self._stream, self._client):
            if closing is not None:
                with contextlib.suppress(OSError, AttributeError, ValueError):
                    closing.close()

    def _run(self) -> None:
        until: Deadline | None = None
        while not self._closed.is_set():
            try:
                for chunk in self._stream:
                    until = None
                    self._take(chunk)
            except (OSError, AttributeError) as error:
                # What a stream raises that was closed under its reader. A break is no error yet: whether the next open works tells.
                _LOG.debug("event stream of %s broke off: %s", self._project, error)
            if self._closed.wait(self._api.settings.event_reconnect_seconds):
                return
            until = until or Deadline.after(self._api.settings.docker_call_seconds, "the event stream")
            self._shut()
            try:
                self._open()
            except GymComposeError as error:
                if until.expired:
                    self.items.put(error)
                    return

    def _take(self, chunk: bytes) -> None:
        for line in chunk.splitlines():
            if not line.strip():
                continue
            event: Json = orjson.loads(line)
            nanoseconds = int(event.get("timeNano") or 0)
            key = (str(event.get("id")), str(event.get("Action") or event.get("status")), nanoseconds)
            if key in self._seen:
                continue
            self._seen[key] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            # A little overlap at a reconnect: what comes twice is known by its key.
            self._since = max(self._since, nanoseconds / 1e9 - self._api.settings.event_reconnect_seconds)
            self.items.put(event)


@dataclass
class _Deaths:
    """Deaths by kill that wait for an OOM flag: container to (event, when to tell it)."""

    waiting: dict[str, tuple[EngineEvent, float]] = field(default_factory=dict)

    def due(self, now: float) -> list[tuple[str, EngineEvent]]:
        ready = [(container, event) for container, (event, at) in self.waiting.items() if at <= now]
        for container, _ in ready:
            del self.waiting[container]
        return ready


def _settled(
    reader: _Reader, stop: threading.Event, oom_flag: Callable[[str], bool], poll_seconds: float, settle_seconds: float
) -> Iterator[EngineEvent]:
    deaths = _Deaths()
    out_of_memory: set[str] = set()
    try:
        while not stop.is_set():
            item: Json | GymComposeError | None = None
            with contextlib.suppress(queue.Empty):
                item = reader.items.get(timeout=poll_seconds)
            if isinstance(item, GymComposeError):
                raise item
            if item is not None:
                container, event = translate(item)
                if event.kind == "oom":
                    out_of_memory.add(container)
                    yield event
                    if container in deaths.waiting:
                        death, _ = deaths.waiting.pop(container)
                        yield replace(death, oom_killed=True)
                elif event.kind == "start":
                    out_of_memory.discard(container)
                    yield event
                elif container in out_of_memory:
                    yield replace(event, oom_killed=True)
                elif event.exit_code == KILLED:
                    deaths.waiting[container] = (event, time.monotonic() + settle_seconds)
                else:
                    yield event
            for container, death in deaths.due(time.monotonic()):
                yield replace(death, oom_killed=oom_flag(container))
    finally:
        reader.close()


def translate(event: Json) -> tuple[str, EngineEvent]:
    """Container id and our event out of one of Docker's."""
    actor: Mapping[str, Any] = event.get("Actor") or {}
    attributes: Mapping[str, str] = actor.get("Attributes") or {}
    action = str(event.get("Action") or event.get("status"))
    code = attributes.get("exitCode")
    return str(actor.get("ID") or event.get("id")), EngineEvent(
        service=attributes.get(COMPOSE_SERVICE, ""),
        kind="oom" if action == "oom" else "die" if action == "die" else "start",
        exit_code=int(code) if code is not None and action == "die" else None,
        oom_killed=action == "oom",
        at=int(event.get("timeNano") or 0) / 1e9,
    )


def _flag(api: DockerApi, container: str) -> bool:
    """Whether the engine says that it ran out of memory; a container that was removed since says nothing."""
    try:
        facts = api.inspect(container, Deadline.after(api.settings.docker_call_seconds, "a dead container's state"))
    except GymComposeError:
        return False
    return bool((facts.get("State") or {}).get("OOMKilled"))
