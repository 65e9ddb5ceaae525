"""What a driver does beside runs: one of the jobs of ``wire.jobs``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from gym_compose.wire.jobs import AggregateJob, Job
from gym_compose.wire.run import RunProgress, RunSummary, RunWarning
from gym_compose.wire.settings import Settings


async def do_job(
    job: Job,
    on_event: Callable[[RunProgress | RunWarning | RunSummary], None],
    stop: asyncio.Event | None = None,
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> RunSummary:
    """Do it and return its summary, which is also its last event. Setting ``stop`` ends it early. Raises GymComposeError."""
    environ = os.environ if environ is None else environ
    settings = Settings.from_environ(environ) if settings is None else settings
    stop = asyncio.Event() if stop is None else stop
    if isinstance(job, AggregateJob):
        from gym_compose.driver.shards import aggregate_shards

        return await aggregate_shards(job, on_event, stop, settings=settings, environ=environ)
    from gym_compose.driver.reverify import reverify

    return await reverify(job, on_event, stop, settings=settings, environ=environ)
