"""Rollouts for a training framework: rows in, results out as they come, nothing on disk. ``gym_compose.collect_rollouts``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gym_compose.driver.budget import DispatchBudget, Window
from gym_compose.driver.call import Caller
from gym_compose.driver.head import ask_head
from gym_compose.driver.inputs import Job
from gym_compose.driver.latency import Latencies
from gym_compose.driver.limits import raise_file_limit
from gym_compose.driver.policy import OnServerDeath, RetryPolicy
from gym_compose.driver.record import Kind, attempt_of, identity_of, request_body
from gym_compose.driver.routing import Router, RoutingMode
from gym_compose.driver.watch import ServerWatch, Tell
from gym_compose.serving.client import HttpClient, PoolOptions
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, PARAMS, ROLLOUT_INDEX, TASK_INDEX, taskset_of
from gym_compose.wire.deadline import Clock
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.settings import Settings

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rollout:
    """What came of one row.

    ``index`` counts the rows from 0 in the order in which they were given. ``record`` is what ``gym eval run`` would store: in the output
    (``completed``), in the failures file (``failed``), or nowhere because the server asked for that (``dropped``). ``seconds`` are those
    of its request.
    """

    index: int
    row: Row
    kind: Kind
    record: dict[str, Any]
    failure_class: str | None
    seconds: float


async def collect_rollouts(
    rows: Iterable[Row] | AsyncIterable[Row],
    *,
    head_url: str,
    num_samples_in_parallel: int | None = None,
    max_resident_rollout_tasks: int | None = None,
    dispatch_budget_s: float | None = None,
    drain_margin_s: float | None = None,
    rollout_timeout_s: float | None = None,
    on_server_death: OnServerDeath = "fail",
    environment_routing_mode: RoutingMode = "agent",
    environment_server_name: str | None = None,
    environment_server_routes: Mapping[str, str] | None = None,
    tell: Tell = lambda _: None,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock = time.monotonic,
) -> AsyncGenerator[Rollout, None]:
    """The results of ``rows`` in the order in which they come back, each as soon as it is there.

    ``rows`` are flat or materialized (contract-data 1.3) and may be endless: one is taken when there is room for it. At most
    ``num_samples_in_parallel`` requests are under way, and four times as many rows (or ``max_resident_rollout_tasks``) are under way or
    wait to be taken, so a slow consumer holds the rows back. Without either bound all rows are started at once.

    Rows are sent as they are, once each; the options have the meaning of ``gym eval run``'s, ``tell`` is given its warnings.
    ``_ng_task_index`` is the row's index and ``_ng_rollout_index`` 0 where it says nothing else. A failed rollout is a result like any
    other. Closing the iterator (``contextlib.aclosing``) cancels what is under way, at the servers too.

    Raises HeadError; InvalidInputError and RoutingError for a row that cannot be sent, with its index; ServerDeadError and
    ServerSilentError; whatever ``rows`` raises. Then what is under way is cancelled.
    """
    environ = os.environ if environ is None else environ
    settings = Settings.from_environ(environ) if settings is None else settings
    raise_file_limit()
    async with HttpClient() as http:
        head = await ask_head(http, head_url, settings)
    router = Router(head.config, environment_routing_mode, environment_server_name, environment_server_routes, environ)
    latencies = Latencies()
    budget = DispatchBudget(dispatch_budget_s, drain_margin_s, latencies, clock)
    watch = ServerWatch((), head.url, settings, clock, on_death=on_server_death, tell=tell)
    async with HttpClient(PoolOptions.from_config(head.config, settings)) as http:
        caller = Caller(http, watch, RetryPolicy(settings, strict=False), settings, clock, rollout_timeout_s)
        stream = _Stream(caller, router, budget, latencies, Window.of(num_samples_in_parallel, max_resident_rollout_tasks))
        producing = asyncio.create_task(stream.produce(rows))
        try:
            while (result := await stream.results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                stream.taken()
                yield result
        finally:
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)


class _Sent:
    """Nothing is noted of a row that is sent from memory."""

    async def leaves(self) -> None:
        return None

    def retried(self) -> None:
        return None


class _Stream:
    """The producing side. ``results`` ends with None or the error that ended it."""

    def __init__(self, caller: Caller, router: Router, budget: DispatchBudget, latencies: Latencies, window: Window) -> None:
        self.results: asyncio.Queue[Rollout | BaseException | None] = asyncio.Queue()
        self._caller = caller
        self._router = router
        self._budget = budget
        self._latencies = latencies
        self._active = None if window.active is None else asyncio.Semaphore(window.active)
        self._resident = None if window.resident is None else asyncio.Semaphore(window.resident)

    def taken(self) -> None:
        """A result has gone to the consumer."""
        if self._resident is not None:
            self._resident.release()

    async def produce(self, rows: Iterable[Row] | AsyncIterable[Row]) -> None:
        """Send the rows, put their results."""
        end: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as beside:
                watching = beside.create_task(self._caller.watch.run())
                async with asyncio.TaskGroup() as sending:
                    await self._feed(_each(rows), sending)
                watching.cancel()
        except BaseExceptionGroup as group:
            end = _first(group)
        self.results.put_nowait(end)

    async def _feed(self, rows: AsyncIterator[Row], sending: asyncio.TaskGroup) -> None:
        index = 0
        self._budget.begin()
        while True:
            for slot in (self._resident, self._active):
                if slot is not None:
                    await slot.acquire()
            if not self._budget.allows():
                return
            try:
                row = await anext(rows)
            except StopAsyncIteration:
                return
            job = self._job(index, row)
            self._caller.watch.add(job.server)
            sending.create_task(self._one(index, row, job))
            index += 1
            await asyncio.sleep(0)  # rows that are at hand leave as they are taken, not all after the last

    def _job(self, index: int, given: Row) -> Job:
        row = {**given, TASK_INDEX: given.get(TASK_INDEX, index), ROLLOUT_INDEX: given.get(ROLLOUT_INDEX, 0)}
        try:
            if taskset_of(row) is None and not isinstance(row.get(PARAMS), Mapping):
                raise ValueError(f"{PARAMS} is missing")
            chosen = self._router.choose(row)
            if chosen is not None:
                row[ENVIRONMENT_SERVER] = chosen
            server = self._router.place(row, index)
            body = request_body(row, b"" if taskset_of(row) is not None else orjson.dumps(row))
            attempt = attempt_of(row)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(str(error), where=f"row {index}") from None
        if server is None:
            self._router.raise_problems()
            raise AssertionError("a row without a server has a problem")
        return Job(identity_of(row), body, server, row[TASK_INDEX], row[ROLLOUT_INDEX], attempt)

    async def _one(self, index: int, row: Row, job: Job) -> None:
        outcome, seconds = await self._caller.call(job, _Sent())
        if self._active is not None:
            self._active.release()
        self._latencies.add(seconds)
        self.results.put_nowait(Rollout(index, row, outcome.kind, outcome.record, outcome.failure_class, seconds))


async def _each(rows: Iterable[Row] | AsyncIterable[Row]) -> AsyncIterator[Row]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
