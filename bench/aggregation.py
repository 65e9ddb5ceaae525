"""Metrics of a million records, in a process of their own: seconds and resident memory. ``python -m bench.aggregation`` is that process."""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.figure import Figure
from bench.gym import COMMAND_SECONDS
from gym_compose.engine.command import run_command
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor

RECORDS = 1_000_000
REPEATS = 4
SEED = 1


def records(count: int) -> Iterator[dict[str, Any]]:
    """Records of the golden shape: 8 numeric keys, 4 repeats of each task."""
    draw = random.Random(SEED)
    for number in range(count):
        spent, said = draw.randrange(1000), draw.randrange(500)
        yield {
            "reward": float(draw.random() < 0.5),
            "response": {"usage": {"input_tokens": spent, "output_tokens": said, "total_tokens": spent + said}},
            "mask_sample": False,
            "_ng_task_index": number // REPEATS,
            "_ng_rollout_index": number % REPEATS,
            "num_steps": draw.randrange(10),
            "solved": draw.random() < 0.5,
            "note": "text",
            "latency_s": round(draw.random() * 10, 4),
            "cost": draw.random(),
        }


def figures() -> Iterator[Figure]:
    result = run_command(
        [sys.executable, "-m", "bench.aggregation"],
        cwd=None,
        environ=os.environ,
        deadline=Deadline.after(COMMAND_SECONDS, "the aggregation bench"),
        redactor=Redactor(()),
    )
    if not result.ok:
        raise result.error("the aggregation bench failed")
    measured = json.loads(result.stdout)
    note = f"{RECORDS // REPEATS} groups read; making the records takes {measured['making']:.0f} s more"
    yield Figure(f"aggregation of {RECORDS:,} records", measured["seconds"], "s", 60.0, note=note)
    yield Figure("resident memory of that", measured["megabytes"], "MB", 500.0)


def _measure() -> dict[str, float]:
    from gym_compose import aggregate_metrics

    started = time.perf_counter()
    for _ in records(RECORDS):
        pass
    making = time.perf_counter() - started
    started = time.perf_counter()
    metrics = aggregate_metrics(records(RECORDS))
    groups = sum(1 for _ in metrics["group_level_metrics"])
    seconds = time.perf_counter() - started - making
    if groups != RECORDS // REPEATS:
        raise AssertionError(f"{groups} groups of {RECORDS} records")
    return {"seconds": seconds, "making": making, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


if __name__ == "__main__":
    print(json.dumps(_measure()))
