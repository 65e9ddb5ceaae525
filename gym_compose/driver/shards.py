"""``gym eval aggregate``: shards of a run's rollouts to one file and one set of metrics (contract-data 4.6)."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gym_compose.driver.aggregate import Aggregated, aggregate
from gym_compose.driver.counting import Counted, Counting
from gym_compose.driver.errors import OutputExistsError, OutputFailedError
from gym_compose.driver.head import ask_head
from gym_compose.driver.metrics_request import read_records
from gym_compose.driver.output import OutputPaths, full_or
from gym_compose.driver.progress import OnEvent
from gym_compose.driver.routing import Router
from gym_compose.serving.client import HttpClient
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX
from gym_compose.wire.deadline import Clock
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.jobs import AggregateJob
from gym_compose.wire.run import GroupSummary, RunCounts, RunSummary, RunWarning
from gym_compose.wire.settings import Settings


async def aggregate_shards(
    job: AggregateJob,
    on_event: OnEvent,
    stop: asyncio.Event,
    *,
    settings: Settings,
    environ: Mapping[str, str],
    clock: Clock = time.monotonic,
) -> RunSummary:
    """Merge the shards (sorted by task and rollout) unless told not to, and ask the running servers for metrics.

    All shards are read and checked before a file is written. Raises OutputExistsError for a merged file that is there, AggregationError,
    HeadError, OutputFailedError.
    """
    started = clock()
    output = OutputPaths(Path(job.output_jsonl_fpath))
    shards = [OutputPaths(Path(path)) for path in job.shards]
    merges = job.merge_shards and [output.rollouts] != [shard.rollouts for shard in shards]
    _check(job, shards, output, merges=merges)
    output.make_directory()
    async with HttpClient() as http:
        head = await ask_head(http, job.head_url, settings)
    servers = Router(head.config, environ=environ).servers
    for shard in shards:
        on_event(RunWarning(text=f"shard: {shard.rollouts}", level="note"))

    def before(counted: Counted) -> None:
        for text in counted.warnings:
            on_event(RunWarning(text=text))
        if counted.failed or counted.missing:
            text = f"{counted.failed} failed and {counted.missing} missing rollouts count as zeros in the metrics"
            on_event(RunWarning(text=text, level="note"))
        if merges:
            merge([shard.rollouts for shard in shards], output.rollouts)

    counting = Counting(job.count_failure_classes_as_zero, job.count_missing_rollouts_as_zero)
    working = asyncio.ensure_future(aggregate(shards, output.aggregate, servers, settings, counting, before))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise asyncio.CancelledError
    summary = _summary(job, await working, output, merged=merges, seconds=clock() - started)
    on_event(summary)
    return summary


def merge(files: Sequence[Path], target: Path) -> None:
    """All lines of ``files`` in the order of task and rollout, as they stand. Raises OutputFailedError; then ``target`` is as it was."""
    numbers, offsets, keys = array("H"), array("Q"), []
    for number, file in enumerate(files):
        for offset, record in read_records(file):
            numbers.append(number)
            offsets.append(offset)
            keys.append((record[TASK_INDEX], record[ROLLOUT_INDEX]))
    part = target.with_name(target.name + ".part")
    opened = [file.open("rb") for file in files]
    try:
        with part.open("wb") as out:
            for place in sorted(range(len(keys)), key=keys.__getitem__):
                lines = opened[numbers[place]]
                lines.seek(offsets[place])
                out.write(lines.readline().rstrip(b"\n") + b"\n")
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputFailedError(f"cannot be written: {full_or(error)}", where=str(target)) from None
    finally:
        for lines in opened:
            lines.close()


def _check(job: AggregateJob, shards: Sequence[OutputPaths], output: OutputPaths, *, merges: bool) -> None:
    if not merges:
        return
    output.check_kind()
    if output.rollouts.resolve() in [shard.rollouts.resolve() for shard in shards]:
        raise InvalidInputError(
            "the merged file is one of the shards", where=str(output.rollouts), hint="Give another --output, or +merge_shards=false."
        )
    if not job.overwrite and output.rollouts.exists() and output.rollouts.stat().st_size:
        raise OutputExistsError(
            "the merged file is there already", where=str(output.rollouts), hint="Give --overwrite, or another --output."
        )


def _summary(job: AggregateJob, done: Aggregated, output: OutputPaths, *, merged: bool, seconds: float) -> RunSummary:
    records = sum(done.records.values())
    files = {"aggregate_metrics": str(output.aggregate)} if done.entries else {}
    if merged:
        files["rollouts"] = str(output.rollouts)
    groups = tuple(_group(entry, done.records) for entry in done.entries)
    return RunSummary(
        run_id=job.run_id,
        counts=RunCounts(requested=records, completed=records),
        elapsed_seconds=round(seconds, 3),
        rate=round(records / seconds, 3) if seconds > 0 else 0.0,
        mean_reward=groups[0].mean_reward if len(groups) == 1 else None,
        groups=groups,
        files=files,
    )


def _group(entry: Mapping[str, Any], records: Mapping[str, int]) -> GroupSummary:
    reward = (entry.get("agent_metrics") or {}).get("mean/reward")
    server = str(entry[ENVIRONMENT_SERVER])
    return GroupSummary(
        environment_server=server,
        agent=entry["agent_ref"]["name"],
        rollouts=records[server],
        failed=0,
        mean_reward=float(reward) if isinstance(reward, int | float) else None,
    )
