"""One row to its environment server and back: held while that is dead, sent again only where nothing was sent or a replay is safe."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from gym_compose.driver.inputs import Job
from gym_compose.driver.policy import RetryPolicy
from gym_compose.driver.record import Outcome, outcome_of_error, outcome_of_reply
from gym_compose.driver.watch import ServerWatch
from gym_compose.serving.client import HttpClient, LocalResourceError, PeerError, PeerUnreachable, Reply
from gym_compose.wire.deadline import Clock
from gym_compose.wire.settings import Settings

_HEADERS = {"content-type": "application/json"}


class Attempts(Protocol):
    """Is told of each sending of one row."""

    async def leaves(self) -> None:
        """Right before the request leaves; it leaves when this returns."""

    def retried(self) -> None:
        """Nothing came of it, and it leaves once more."""


@dataclass(frozen=True)
class Caller:
    """Calls ``POST /run``. A row has no time limit of its own (contract-data 1.8) unless ``timeout_seconds`` gives one, which counts from
    its connection to the end of its answer.

    A connection that is refused is tried again for as long as the watch lets the run go on, since nothing was sent. Once a request has
    left it is sent again only as ``retries`` says.
    """

    http: HttpClient
    watch: ServerWatch
    retries: RetryPolicy
    settings: Settings
    clock: Clock
    timeout_seconds: float | None = None
    strict: bool = False

    async def call(self, job: Job, attempts: Attempts) -> tuple[Outcome, float]:
        """What came of the row, and how many seconds its last request took. Raises nothing for what a server does."""
        server, row = job.server, job.row
        state = self.watch.state(server)
        retried, left = 0, False
        self.retries.row()
        while True:
            if not state.admits.is_set():
                await state.admits.wait()
            if not left:
                await attempts.leaves()
                left = True
            begun = self.clock()
            came: Reply | PeerError
            try:
                came = await self.http.request(
                    "POST",
                    f"{server.url}/run",
                    data=job.body,
                    headers=_HEADERS,
                    answer_seconds=self.timeout_seconds,
                    retry_refused=False,
                )
            except LocalResourceError:
                # Out of file descriptors, say: nothing was sent, and other requests will give theirs back.
                await asyncio.sleep(self.settings.connect_retry_seconds)
                continue
            except PeerUnreachable:
                self.watch.suspect(server)
                await asyncio.sleep(self.settings.connect_retry_seconds)
                continue
            except PeerError as error:
                came = error
            seconds = self.clock() - begun
            if isinstance(came, PeerError) or came.status >= 400:
                pause = self.retries.pause(server, retried, came)
                if pause is not None:
                    attempts.retried()
                    retried, left = retried + 1, False
                    await asyncio.sleep(pause)
                    continue
            if isinstance(came, PeerError):
                return outcome_of_error(row, came, server.name, server.implementation, strict=self.strict), seconds
            return outcome_of_reply(row, came, server.name, server.implementation, strict=self.strict), seconds
