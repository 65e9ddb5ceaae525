"""Sending rows: a bounded window of requests, each noted before it leaves, each answer stored as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from gym_compose.driver.inputs import Job
from gym_compose.driver.journal import Journal
from gym_compose.driver.output import LineFile
from gym_compose.driver.progress import Tally
from gym_compose.driver.record import Outcome, outcome_of_error, outcome_of_reply
from gym_compose.serving.client import HttpClient, LocalResourceError, PeerError
from gym_compose.wire.settings import Settings


async def in_window(jobs: Iterator[Job], window: int, handle: Callable[[Job], Awaitable[None]], stop: asyncio.Event) -> None:
    """Handle every job, at most ``window`` at once, begun in their order; as many tasks as the window, however many jobs.

    Returns when all are handled, or ``stop`` is set: then what is in flight is cancelled and waited for. The first exception of ``handle``
    or of the iterator cancels the rest and is raised.
    """

    async def work() -> None:
        for job in jobs:  # one iterator for all: each takes what is next
            await handle(job)
            if stop.is_set():
                return

    if stop.is_set():
        return  # asked to stop while the rows were prepared: nothing leaves
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


@dataclass(frozen=True)
class Sender:
    """Handles one job: journal, ``POST /run``, record. ``replies`` have no time limit of their own (contract-data 1.8).

    A connection that is refused is tried again for as long as the run goes on, since nothing was sent; once a request has left it is
    never sent again.
    """

    http: HttpClient
    journal: Journal
    rollouts: LineFile
    failures: LineFile
    tally: Tally
    settings: Settings

    async def handle(self, job: Job) -> None:
        """Send and store. Raises OutputFailedError when the record cannot be written; CancelledError passes, noted in the journal."""
        self.tally.began()
        attempt_id = None
        try:
            attempt_id = await self.journal.sent(job.task, job.rollout, job.attempt, job.server.name)
            outcome = await self._run(job)
        except asyncio.CancelledError:
            if attempt_id is not None:
                self.journal.ended(attempt_id, "cancelled")
            raise
        finally:
            self.tally.left()
        if outcome.kind == "completed":
            self.rollouts.append(outcome.record)
        elif outcome.kind == "failed":
            self.failures.append(outcome.record)
        self.tally.ended(outcome)
        self.journal.ended(attempt_id, outcome.kind)

    async def _run(self, job: Job) -> Outcome:
        server = job.server
        while True:
            try:
                reply = await self.http.request("POST", f"{server.url}/run", data=job.body, headers={"content-type": "application/json"})
            except LocalResourceError:
                # Out of file descriptors, say: nothing was sent, and other requests will give theirs back.
                await asyncio.sleep(self.settings.connect_retry_seconds)
            except PeerError as error:
                return outcome_of_error(job.row, error, server.name, server.implementation)
            else:
                return outcome_of_reply(job.row, reply, server.name, server.implementation)
