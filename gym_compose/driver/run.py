"""One run from request to summary (contract-data 1.7, in an order that destroys nothing before everything is checked)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from gym_compose.driver.aggregate import aggregate
from gym_compose.driver.budget import DispatchBudget, Window, check_budget
from gym_compose.driver.call import Caller
from gym_compose.driver.counting import Counted, Counting
from gym_compose.driver.dispatch import Sender, in_window
from gym_compose.driver.errors import OutputFailedError
from gym_compose.driver.head import Head, ask_head
from gym_compose.driver.inputs import InputStage, Job, jobs
from gym_compose.driver.journal import Journal, SyncPolicy, run_line, sync_policy
from gym_compose.driver.limits import raise_file_limit
from gym_compose.driver.lock import LockHolder, OutputLock
from gym_compose.driver.manifest import RunManifest, row_fields, server_fields
from gym_compose.driver.output import LineFile, OutputPaths, write_document, write_first_line
from gym_compose.driver.policy import FailurePolicy, RetryPolicy
from gym_compose.driver.progress import OnEvent, Tally
from gym_compose.driver.record import Outcome, drained
from gym_compose.driver.resume import Survey, survey
from gym_compose.driver.routing import EnvironmentServer, Router
from gym_compose.driver.summary import Ending, beside, check_counts, nothing_completed, summarize
from gym_compose.driver.watch import ServerWatch
from gym_compose.serving.client import HttpClient, PoolOptions
from gym_compose.wire.deadline import Clock
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.names import HEAD_ALIAS, driver_container
from gym_compose.wire.run import RunRequest, RunSummary, RunWarning
from gym_compose.wire.settings import Settings

OnOutcome = Callable[[Outcome], None]
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
    on_outcome: OnOutcome | None = None,
) -> RunSummary:
    """Collect the rollouts of one request. Its events are given to ``on_event``, the summary last; it is returned too. ``on_outcome`` is
    given what comes of each row of this run, once it is stored.

    Setting ``stop`` ends the run early: nothing more is sent, what is in flight is cancelled, what has come back stays. Whatever is
    wrong before the first request is raised as a GymComposeError, and no file of an earlier run has been changed then. Afterwards an
    error ends up in the summary (``error``, ``exit_code``), since there are results to account for.
    """
    environ = os.environ if environ is None else environ
    settings = Settings.from_environ(environ) if settings is None else settings
    policy = sync_policy(settings)
    check_budget(request)
    raise_file_limit()
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
    overwrite = request.overwrite or request.strict_compatibility
    paths.check(overwrite=overwrite, resume=request.resume_from_cache)
    paths.make_directory()
    start = _Start(request, router, head, paths, policy, environ, clock, now)
    with OutputLock(paths.lock, _holder(request, head)):
        paths.check(
            overwrite=overwrite, resume=request.resume_from_cache
        )  # again: another driver may have written before the lock was ours
        if request.resume_from_cache and paths.resumable():
            work = start.resumed(await survey(request, router, head.config, paths, environ, clock))
        else:
            work = await start.fresh()
        for text in work.notes:
            on_event(RunWarning(text=text, level="note"))
        for text in (*work.warnings, *_unbounded(request, work)):
            on_event(RunWarning(text=text))
        async with HttpClient(PoolOptions.from_config(head.config, settings)) as http:
            run = _Run(request, router, paths, work, http, settings, policy, on_event, stop, clock, now, on_outcome)
            return await run.finish(await run.dispatch())


@dataclass(frozen=True)
class _Work:
    """What a run has to do once its rows are laid down and its journal begun. ``tally`` counts what an earlier run has done."""

    tally: Tally
    to_send: int
    servers: tuple[EnvironmentServer, ...]
    mean_bytes: float
    jobs: Callable[[], Iterator[Job]]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Start:
    """The two ways in which a run begins. From here on files are changed, and whenever this is killed, what is there is a run that can be
    gone on with, or none."""

    request: RunRequest
    router: Router
    head: Head
    paths: OutputPaths
    policy: SyncPolicy
    environ: Mapping[str, str]
    clock: Clock
    now: Callable[[], float]

    async def fresh(self) -> _Work:
        """Lay the rows down; only then what an earlier run left is removed, its journal last."""
        request, paths, sync = self.request, self.paths, self.policy != "never"
        with InputStage(request, self.router, paths.materialized) as stage:
            staged = await stage.lay()
            manifest = RunManifest(
                rows=row_fields(request, self.router.routes),
                servers=server_fields(self.head.config, (server.name for server in staged.servers)),
                input=staged.input,
                materialized=staged.materialized,
            )
            for path in paths.results():
                _remove(path)
            stage.commit(sync=sync)
        write_first_line(paths.journal, run_line(request.run_id, staged.requested, request, manifest, self.now()), sync=sync)
        return _Work(
            tally=Tally(staged.requested, self.clock),
            to_send=staged.requested,
            servers=staged.servers,
            mean_bytes=staged.mean_bytes,
            jobs=lambda: jobs(paths.materialized, self.router),
            notes=("there is nothing to go on with; all rows are run",) if request.resume_from_cache else (),
            warnings=staged.warnings,
        )

    def resumed(self, found: Survey) -> _Work:
        """Repair what an earlier run left, and note in its journal that it is gone on with."""
        request, paths = self.request, self.paths
        found.apply()
        line = run_line(request.run_id, found.tally.requested, request, found.manifest, self.now())
        if paths.journal.exists():
            journal = LineFile(paths.journal)
            try:
                journal.append(line)
            finally:
                journal.close()
        else:
            write_first_line(paths.journal, line, sync=self.policy != "never")
        return _Work(
            tally=found.tally,
            to_send=found.to_send,
            servers=found.servers,
            mean_bytes=found.mean_bytes,
            jobs=found.jobs,
            notes=found.notes,
            warnings=found.warnings,
        )


@dataclass
class _Run:
    """A run whose rows are laid down: from here on every way out leads through the summary."""

    request: RunRequest
    router: Router
    paths: OutputPaths
    work: _Work
    http: HttpClient
    settings: Settings
    policy: SyncPolicy
    on_event: OnEvent
    stop: asyncio.Event
    clock: Clock
    now: Callable[[], float]
    on_outcome: OnOutcome | None = None

    def __post_init__(self) -> None:
        self.tally = self.work.tally
        self.budget = DispatchBudget.of(self.request, self.tally.latencies, self.clock)

    async def dispatch(self) -> Ending:
        """Send all rows."""
        journal = Journal(self.paths.journal, self.request.run_id, self.policy, self.now)
        rollouts, failures = LineFile(self.paths.rollouts), LineFile(self.paths.failures)
        request, strict, requested = self.request, self.request.strict_compatibility, self.tally.requested
        watch = ServerWatch(
            self.work.servers,
            request.head_url,
            self.settings,
            self.clock,
            on_death=request.on_server_death,
            strict=strict,
            tell=lambda text: self.on_event(RunWarning(text=text)),
        )
        retries = RetryPolicy(self.settings, strict=strict)
        caller = Caller(self.http, watch, retries, self.settings, self.clock, request.rollout_timeout_s, strict)
        sender = Sender(caller, journal, rollouts, failures, self.tally, FailurePolicy.of(request, requested), self.on_outcome)
        error: GymComposeError | None = None
        active = Window.of(request.num_samples_in_parallel, request.max_resident_rollout_tasks).active
        window = min(active or self.work.to_send, self.work.to_send)
        rows = self.work.jobs()
        before = (self.tally.completed, self.tally.failed)
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(watch.run()),
                    group.create_task(self._report()),
                    group.create_task(journal.keep_synced((rollouts, failures), self.settings.journal_fsync_seconds)),
                ]
                await in_window(rows, window, sender.handle, self.stop, self.budget)
                for task in beside:
                    task.cancel()
        except* GymComposeError as errors:
            error = _first(errors)
        finally:
            counted = (before[0] + rollouts.lines, before[1] + failures.lines)
            unsynced = self._close(journal, rollouts, failures)
        error = error or unsynced
        if self.budget.spent and error is None and self.on_outcome is not None:
            for job in rows:
                self.on_outcome(Outcome("dropped", drained(job.row, job.server.name, job.server.implementation), "cancelled"))
        return Ending(self.stop.is_set(), error or check_counts(self.tally, *counted), self.budget.spent)

    def _close(self, journal: Journal, *results: LineFile) -> OutputFailedError | None:
        """Sync and close all files; the first error of a disk that says only now that it could not take what it was given."""
        failed: OutputFailedError | None = None
        for file in results:
            try:
                if self.policy != "never":
                    file.sync()
            except OutputFailedError as error:
                failed = failed or error
            finally:
                file.close()
        try:
            journal.close()
        except OutputFailedError as error:
            failed = failed or error
        return failed

    async def finish(self, ending: Ending) -> RunSummary:
        """Aggregate and sum up. An interrupted or broken run is not aggregated."""
        self.on_event(self.tally.snapshot())
        if not ending.interrupted and ending.error is None:
            ending = replace(ending, error=nothing_completed(self.tally) if self.work.to_send and not self._counts_zeros() else None)
        if not ending.interrupted and ending.error is None and not self.request.disable_aggregation:
            try:
                interrupted = not await self._aggregated()
                ending = replace(ending, interrupted=interrupted)
            except GymComposeError as error:
                ending = replace(ending, error=error)
        summary = summarize(self.request.run_id, self.tally, self.paths, ending)
        try:
            write_document(self.paths.summary, beside(summary).model_dump(mode="json"))
        except OutputFailedError as error:
            # The disk that ended the run may be full for this too; the event still carries the summary.
            ending = replace(ending, error=ending.error or error)
            summary = summarize(self.request.run_id, self.tally, self.paths, ending, written=False)
        self.on_event(summary)
        return summary

    async def _aggregated(self) -> bool:
        """Ask for the metrics; False when the run was asked to stop meanwhile. Raises AggregationError, OutputFailedError."""
        asking = aggregate([self.paths], self.paths.aggregate, self.router.servers, self.settings, self._counting(), self._told)
        working, stopped = asyncio.ensure_future(asking), asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            return working.done()
        finally:
            for task in (working, stopped):
                task.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)

    def _counting(self) -> Counting:
        return Counting(tuple(self.request.count_failure_classes_as_zero), self.request.count_missing_rollouts_as_zero)

    def _counts_zeros(self) -> bool:
        """Whether what did not complete gives a score all the same (contract-data 1.7 step 8)."""
        counting = self._counting()
        return (counting.missing and not self.request.disable_aggregation) or any(name in self.tally.failures for name in counting.classes)

    def _told(self, counted: Counted) -> None:
        for text in counted.warnings:
            self.on_event(RunWarning(text=text))
        if counted.failed or counted.missing:
            text = f"{counted.failed} failed and {counted.missing} missing rollouts count as zeros in the metrics"
            self.on_event(RunWarning(text=text, level="note"))

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


def _holder(request: RunRequest, head: Head) -> LockHolder:
    """Who holds the lock: the container, when the head was reached by the name that it has inside its network."""
    if head.identity is None or urlsplit(request.head_url).hostname != HEAD_ALIAS:
        return LockHolder.of_this_process(request.run_id)
    project = head.identity.project
    return LockHolder.of_this_process(request.run_id, container=driver_container(project, request.run_id), project=project)


def _unbounded(request: RunRequest, work: _Work) -> tuple[str, ...]:
    if Window.of(request.num_samples_in_parallel, request.max_resident_rollout_tasks).active is not None or work.to_send <= _MANY:
        return ()
    megabytes = work.to_send * (work.mean_bytes + _BYTES_IN_FLIGHT) / 1e6
    return (f"all {work.to_send} rollouts will be in flight at once, about {megabytes:.0f} MB here; --concurrency bounds them",)
