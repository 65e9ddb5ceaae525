"""One episode at an environment server: identity, deadline, cleanup on every path (contract-data 2.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gym_compose.wire.deadline import Deadline
from gym_compose.wire.episodes import EpisodeFailure
from gym_compose.wire.ids import EpisodeId, TaskId

InputT = TypeVar("InputT")
Cleanup = Callable[[], Awaitable[None]]

_log = logging.getLogger(__name__)


class HandledEpisodeError(Exception):
    """A failure that belongs into the answer of the episode, raised from ``EnvironmentServer.run``."""

    def __init__(self, failure: EpisodeFailure) -> None:
        super().__init__(failure.failure_reason)
        self.failure = failure


@dataclass
class CleanupHandle:
    """One registered cleanup. ``close`` runs it now; once it has succeeded it is not run again."""

    name: str
    callback: Cleanup
    seconds: float
    done: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def close(self) -> None:
        """Run the cleanup unless it has succeeded before. Raises what it raises, TimeoutError after ``cleanup_timeout_seconds``."""
        async with asyncio.timeout(self.seconds):
            await self.run()

    async def run(self) -> None:
        async with self._lock:
            if not self.done:
                await self.callback()
                self.done = True


@dataclass
class Episode(Generic[InputT]):
    """What ``EnvironmentServer.run`` gets. Register a cleanup *before* the call whose effect it undoes: an answer that is lost on the way
    has still begun a session at the other end."""

    id: EpisodeId
    task_id: TaskId
    task_input: InputT
    deadline: Deadline
    cleanup_seconds: float
    _cleanups: list[CleanupHandle] = field(default_factory=list)

    def on_exit(self, name: str, callback: Cleanup) -> CleanupHandle:
        """Run ``callback`` when the episode is over, in reverse order of registration, whatever ends it. ``name`` is for the log."""
        handle = CleanupHandle(name, callback, self.cleanup_seconds)
        self._cleanups.append(handle)
        return handle

    async def clean_up(self) -> None:
        """Run what was registered, last first, within one budget of ``cleanup_seconds``. Failures are logged and end nothing."""
        pending = list(reversed(self._cleanups))
        try:
            async with asyncio.timeout(self.cleanup_seconds):
                while pending:
                    try:
                        await pending[0].run()
                    except Exception:  # noqa: BLE001 - one participant that cannot be closed must not keep the others open
                        _log.exception("episode %s: cleanup of %s failed", self.id.capture_key, pending[0].name)
                    del pending[0]
        except TimeoutError:
            names = ", ".join(handle.name for handle in pending)
            _log.error("episode %s: cleanup took longer than %g s; left open: %s", self.id.capture_key, self.cleanup_seconds, names)
