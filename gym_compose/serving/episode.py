"""One episode at an environment server: identity, deadline, cleanup on every path (contract-data 2.4); counts of a server's episodes."""

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

_RESERVED = 0.1
"""Share of the cleanup's budget that each callback leaves to every one after it."""
_log = logging.getLogger(__name__)


class HandledEpisodeError(Exception):
    """A failure that belongs into the answer of the episode, raised from ``EnvironmentServer.run``."""

    def __init__(self, failure: EpisodeFailure) -> None:
        super().__init__(failure.failure_reason)
        self.failure = failure


@dataclass
class EpisodeCounts:
    """Episodes of one process since its start, as ``GET /episodes`` shows them.

    ``running`` includes those in their cleanup. Every episode that was admitted ends in exactly one of ``results``, ``failures``,
    ``timed_out`` and ``cancelled``.
    """

    waiting: int = 0
    running: int = 0
    results: int = 0
    failures: int = 0
    timed_out: int = 0
    cancelled: int = 0
    not_admitted: int = 0
    late_answers: int = 0
    """Calls that were still open when their episode's time was over, and results that came after it: dropped, whatever they hold."""
    cleanups_registered: int = 0
    cleanups_done: int = 0
    """Equal to ``cleanups_registered`` when nothing runs and no close failed for good."""
    cleanups_failed: int = 0
    """Attempts that raised; one of them may have been tried again with success."""
    cleanups_left_open: int = 0
    """Not tried, or not through, when ``cleanup_timeout_seconds`` was over."""


@dataclass
class CleanupHandle:
    """One registered cleanup. ``close`` runs it now; once it has succeeded it is not run again. ``tries``: how often the end of the episode
    runs it while it fails."""

    name: str
    callback: Cleanup
    seconds: float
    counts: EpisodeCounts
    done: bool = False
    tries: int = 1
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
                self.counts.cleanups_done += 1


@dataclass
class Episode(Generic[InputT]):
    """What ``EnvironmentServer.run`` gets. Register a cleanup *before* the call whose effect it undoes: an answer that is lost on the way
    has still begun a session at the other end."""

    id: EpisodeId
    task_id: TaskId
    task_input: InputT
    deadline: Deadline
    cleanup_seconds: float
    counts: EpisodeCounts = field(default_factory=EpisodeCounts)
    given_up: list[str] = field(default_factory=list)
    """Calls to participants that were cancelled before their answer was there: ``<instance> <path>``."""
    _cleanups: list[CleanupHandle] = field(default_factory=list)

    def on_exit(self, name: str, callback: Cleanup) -> CleanupHandle:
        """Run ``callback`` when the episode is over, in reverse order of registration, whatever ends it. ``name`` is for the log."""
        handle = CleanupHandle(name, callback, self.cleanup_seconds, self.counts)
        self._cleanups.append(handle)
        self.counts.cleanups_registered += 1
        return handle

    async def clean_up(self) -> None:
        """Run what was registered, last first, within one budget of ``cleanup_seconds``. Failures are logged and end nothing.

        One that hangs is given up while there is time left for those after it: an agent that is gone must not keep a sandbox open.
        """
        pending = list(reversed(self._cleanups))
        budget = Deadline.after(self.cleanup_seconds)
        left_open: list[str] = []
        while pending:
            left = budget.remaining() or 0.0
            others = len(pending) - 1
            try:
                async with asyncio.timeout(max(left / len(pending), left - others * _RESERVED * self.cleanup_seconds)):
                    await self._close(pending[0])
            except TimeoutError:
                left_open.append(pending[0].name)
            del pending[0]
        if left_open:
            self.counts.cleanups_left_open += len(left_open)
            names = ", ".join(left_open)
            _log.error("episode %s: cleanup took longer than %g s; left open: %s", self.id.capture_key, self.cleanup_seconds, names)

    async def _close(self, handle: CleanupHandle) -> None:
        for _ in range(handle.tries):
            try:
                await handle.run()
            except Exception:  # noqa: BLE001 - one participant that cannot be closed must not keep the others open
                self.counts.cleanups_failed += 1
                _log.exception("episode %s: cleanup of %s failed", self.id.capture_key, handle.name)
            else:
                return
