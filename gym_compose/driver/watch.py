"""Whether the environment servers of a run still answer: a dead one is an error that names it, not a hang."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gym_compose.driver.errors import ServerSilentError
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.serving.client import HttpClient, PeerError
from gym_compose.wire.deadline import Clock, Deadline
from gym_compose.wire.settings import Settings


async def watch_servers(http: HttpClient, servers: Sequence[EnvironmentServer], settings: Settings, clock: Clock) -> None:
    """Ask each server's root once an interval, until cancelled. Any answer counts.

    Raises ServerSilentError for the first that gave none for ``run_silence_seconds``. A busy server answers late, so a probe may take
    that long itself.
    """
    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(_watch(http, server, settings, clock))


async def _watch(http: HttpClient, server: EnvironmentServer, settings: Settings, clock: Clock) -> None:
    silent_since: float | None = None
    while True:
        begun = clock()
        try:
            left = settings.run_silence_seconds - (0.0 if silent_since is None else begun - silent_since)
            await http.request("GET", f"{server.url}/", deadline=Deadline.after(max(left, 0.1), "asking whether it is alive", clock))
            silent_since = None
        except PeerError as error:
            silent_since = begun if silent_since is None else silent_since
            if clock() - silent_since >= settings.run_silence_seconds:
                raise ServerSilentError(
                    f"environment server {server.name!r} has not answered for {settings.run_silence_seconds:g} s: {error}",
                    where=server.url,
                    hint="Look at its log; the rows that got no answer are counted as unresolved.",
                ) from None
        await asyncio.sleep(settings.probe_interval_seconds)
