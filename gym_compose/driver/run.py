"""One run from request to summary (contract-data 1.7, in an order that destroys nothing before everything is checked)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gym_compose.driver.aggregate import aggregate
from gym_compose.driver.dispatch import Sender, in_window
from gym_compose.driver.errors import OutputFailedError
from gym_compose.driver.head import ask_head
from gym_compose.driver.inputs import InputStage, Staged, jobs
from gym_compose.driver.journal import Journal, SyncPolicy, sync_policy
from gym_compose.driver.output import LineFile, OutputLock, OutputPaths, write_document
from gym_compose.driver.progress import Tally
from gym_compose.driver.routing import Router
from gym_compose.driver.summary import Ending, beside, check_counts, nothing_completed, summarize
from gym_compose.driver.watch import watch_servers
from gym_compose.serving.client import HttpClient, PoolOptions
from gym_compose.wire.deadline import Clock
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.run import RunProgress, RunRequest, RunSummary, RunWarning
from gym_compose.wire.settings import Settings

Event = RunProgress | RunWarning | RunSummary
OnEvent = Callable[[Event], None]
# From this many rows on, a run without a bound on what is in flight is told what that means.
_MANY = 64
# A row in flight holds its body, a task, a connection with its buffers and a reply while it is parsed.
_BYTES_IN_FLIGHT = 64 * 1024


async def collect(
    request: RunRequest,
    on_event: OnEvent,
    stop: asyncio.Event | None = None,
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock = time.monotonic,
    now: Callable[[], float] = time.time,
) -> RunSummary:
    """Collect the rollouts of one request. Its events are given to ``on_event``, the summary last; it is returned too.

    Setting ``stop`` ends the run early: nothing more is sent, what is in flight is cancelled, what has come back stays. Whatever is
    wrong before the first request is raised as a GymComposeError, and no file of an earlier run has been changed then. Afterwards an
    error ends up in the summary (``error``, ``exit_code``), since there are results to account for.
    """
    environ = os.environ if environ is None else environ
    settings = Settings.from_environ(environ) if settings is None else settings
    policy = sync_policy(settings)
    stop = asyncio.Event() if stop is None else stop
    async with HttpClient() as http:
        head = await ask_head(http, request.head_url, settings)
    router = Router(
        head.config,
        mode=request.environment_routing_mode,
        server_name=request.environment_server_name,
        routes=request.environment_server_routes,
        environ=environ,
    )
    paths = OutputPaths(Path(request.output_jsonl_fpath))
    paths.check(request.overwrite)
    paths.make_directory()
    with OutputLock(paths.lock, request.run_id):
        paths.check(request.overwrite)  # again: another driver may have written before the lock was ours
        with InputStage(request, router, paths.materialized) as stage:
            staged = await stage.lay()
            for path in paths.results():
                _remove(path)
            stage.commit()
        for text in (*staged.warnings, *_unbounded(request, staged)):
            on_event(RunWarning(text=text))
        async with HttpClient(PoolOptions.from_config(head.config, settings)) as http:
            run = _Run(request, router, paths, staged, http, settings, policy, on_event, stop, clock, now)
            return await run.finish(await run.dispatch())


@dataclass
class _Run:
    """A run whose rows are laid down: from here on every way out leads through the summary."""

    request: RunRequest
    router: Router
    paths: OutputPaths
    staged: Staged
    http: HttpClient
    settings: Settings
    policy: SyncPolicy
    on_event: OnEvent
    stop: asyncio.Event
    clock: Clock
    now: Callable[[], float]

    def __post_init__(self) -> None:
        self.tally = Tally(self.staged.requested, self.clock)

    async def dispatch(self) -> Ending:
        """Send all rows."""
        journal = Journal(self.paths.journal, self.request.run_id, self.policy, self.now)
        rollouts, failures = LineFile(self.paths.rollouts), LineFile(self.paths.failures)
        sender = Sender(self.http, journal, rollouts, failures, self.tally, self.settings)
        error: GymComposeError | None = None
        window = min(self.request.num_samples_in_parallel or self.staged.requested, self.staged.requested)
        try:
            journal.begin(self.staged.requested, self.request.model_dump(mode="json"))
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(watch_servers(self.http, self.staged.servers, self.settings, self.clock)),
                    group.create_task(self._report()),
                    group.create_task(journal.keep_synced((rollouts, failures), self.settings.journal_fsync_seconds)),
                ]
                await in_window(jobs(self.paths.materialized, self.router), window, sender.handle, self.stop)
                for task in beside:
                    task.cancel()
        except* GymComposeError as errors:
            error = _first(errors)
        finally:
            counted = (rollouts.lines, failures.lines)
            self._close(journal, rollouts, failures)
        return Ending(self.stop.is_set(), error or check_counts(self.tally, *counted))

    def _close(self, journal: Journal, *results: LineFile) -> None:
        for file in results:
            if self.policy != "never":
                file.sync()
            file.close()
        journal.close()

    async def finish(self, ending: Ending) -> RunSummary:
        """Aggregate and sum up. An interrupted or broken run is not aggregated."""
        self.on_event(self.tally.snapshot())
        if not ending.interrupted and ending.error is None:
            ending = Ending(error=nothing_completed(self.tally))
        if not ending.interrupted and ending.error is None and not self.request.disable_aggregation:
            try:
                await aggregate(self.http, self.paths.rollouts, self.paths.aggregate, self.router.servers, self.settings)
            except GymComposeError as error:
                ending = Ending(error=error)
        summary = summarize(self.request.run_id, self.tally, self.paths, ending)
        try:
            write_document(self.paths.summary, beside(summary).model_dump(mode="json"))
        except OutputFailedError as error:
            # The disk that ended the run may be full for this too; the event still carries the summary.
            if ending.error is None:
                summary = summarize(self.request.run_id, self.tally, self.paths, Ending(ending.interrupted, error))
        self.on_event(summary)
        return summary

    async def _report(self) -> None:
        while True:
            self.on_event(self.tally.snapshot())
            await asyncio.sleep(self.settings.progress_interval_seconds)


def _first(errors: ExceptionGroup[GymComposeError]) -> GymComposeError:
    for error in errors.exceptions:
        return _first(error) if isinstance(error, ExceptionGroup) else error
    raise AssertionError("an exception group holds an exception")


def _remove(path: Path) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    except OSError as error:
        raise OutputFailedError(f"cannot be replaced: {error.strerror}", where=str(path)) from None


def _unbounded(request: RunRequest, staged: Staged) -> tuple[str, ...]:
    if request.num_samples_in_parallel is not None or staged.requested <= _MANY:
        return ()
    megabytes = staged.requested * (staged.mean_bytes + _BYTES_IN_FLIGHT) / 1e6
    return (f"all {staged.requested} rollouts will be in flight at once, about {megabytes:.0f} MB here; --concurrency bounds them",)
