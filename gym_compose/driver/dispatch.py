"""Sending the rows of a run: a bounded window of requests, each noted before it leaves, each answer stored as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import orjson

from gym_compose.driver.budget import DispatchBudget
from gym_compose.driver.call import Caller
from gym_compose.driver.inputs import Job
from gym_compose.driver.journal import Ended, Journal
from gym_compose.driver.output import LineFile
from gym_compose.driver.policy import FailurePolicy
from gym_compose.driver.progress import Tally
from gym_compose.driver.record import Outcome, outcome_unwritable

_Item = TypeVar("_Item")


async def in_window(
    jobs: Iterator[_Item], window: int, handle: Callable[[_Item], Awaitable[None]], stop: asyncio.Event, budget: DispatchBudget
) -> None:
    """Handle every job, at most ``window`` at once, begun in their order; as many tasks as the window, however many jobs.

    Returns when all are handled or the ``budget`` is spent and what was begun is handled, or ``stop`` is set: then what is in flight is
    cancelled and waited for. The first exception of ``handle`` or of the iterator cancels the rest and is raised.
    """

    async def work() -> None:
        while budget.allows():
            job = next(jobs, None)  # one iterator for all: each takes what is next
            if job is None:
                return
            await handle(job)
            if stop.is_set():
                return

    if stop.is_set():
        return  # asked to stop while the rows were prepared: nothing leaves
    budget.begin()
    workers = [asyncio.create_task(work()) for _ in range(window)]
    finished = asyncio.gather(*workers)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((finished, stopping), return_when=asyncio.FIRST_COMPLETED)
        if finished.done():
            finished.result()
    finally:
        for task in (*workers, stopping):
            task.cancel()
        await asyncio.gather(*workers, finished, stopping, return_exceptions=True)


class _Journaled:
    """The attempts of one row in the journal. ``id`` is that of the one under way."""

    __slots__ = ("_job", "_journal", "id")

    def __init__(self, journal: Journal, job: Job) -> None:
        self._journal = journal
        self._job = job
        self.id: str | None = None

    async def leaves(self) -> None:
        job = self._job
        self.id = await self._journal.sent(job.task, job.rollout, job.attempt, job.server.name)

    def retried(self) -> None:
        self.ended("retried")

    def ended(self, outcome: Ended) -> None:
        if self.id is not None:
            self._journal.ended(self.id, outcome)
            self.id = None


@dataclass(frozen=True)
class Sender:
    """Handles one job: journal, ``POST /run``, record. ``on_outcome`` is given each stored or dropped outcome, for who takes results."""

    caller: Caller
    journal: Journal
    rollouts: LineFile
    failures: LineFile
    tally: Tally
    policy: FailurePolicy
    on_outcome: Callable[[Outcome], None] | None = None

    async def handle(self, job: Job) -> None:
        """Send and store. Raises OutputFailedError when the record cannot be written, what the policy says; CancelledError passes, noted
        in the journal."""
        tally = self.tally
        tally.began()
        attempts = _Journaled(self.journal, job)
        try:
            outcome, seconds = await self.caller.call(job, attempts)
        except asyncio.CancelledError:
            attempts.ended("cancelled")
            raise
        finally:
            tally.left()
        outcome = self._store(job, outcome)
        tally.ended(outcome)
        tally.latencies.add(seconds)
        attempts.ended(outcome.kind)
        if outcome.kind == "failed":
            self.policy.check_tally(tally)
        if self.on_outcome is not None:
            self.on_outcome(outcome)

    def _store(self, job: Job, outcome: Outcome) -> Outcome:
        """Write its line, if it has one. What cannot be written is a failure instead; the outcome that counts is returned."""
        self.policy.check_outcome(outcome)
        try:
            if outcome.kind == "completed":
                self.rollouts.append(outcome.record)
            elif outcome.kind == "failed":
                self.failures.append(outcome.record)
        except orjson.JSONEncodeError:
            return self._store(job, outcome_unwritable(job.row, job.server.name, job.server.implementation))
        return outcome
