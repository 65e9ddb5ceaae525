"""The scripted model over the demo's tasks: is its accuracy what was asked, do repeats differ, are records the same at any concurrency?"""

from __future__ import annotations

import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from bench.figure import Figure
from bench.gym import COMMAND_SECONDS, QUICKSTART, Gym
from gym_compose.engine.command import run_command
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor

ACCURACY = 0.7
REPEATS = 20
CONCURRENCIES = (1, 64)
PREPARE = "servers/resources_servers/reasoning_gym/prepare.py"
Record = dict[str, Any]


def figures(gym: Gym, root: Path) -> Iterator[Figure]:
    """2,000 rollouts (100 tasks, 20 repeats) on the process engine, once one by one and once 64 at a time."""
    _prepare(root)
    one, many = (_records(gym, concurrency) for concurrency in CONCURRENCIES)
    rewards = [record["reward"] for record in many.values()]
    sigma = math.sqrt(ACCURACY * (1 - ACCURACY) / len(rewards))
    yield Figure(
        f"accuracy of the scripted model, {len(rewards):,} draws: off by",
        abs(sum(rewards) / len(rewards) - ACCURACY) / sigma,
        "sigma",
        3.0,
        note=f"{sum(rewards) / len(rewards):.4f} for {ACCURACY}",
    )
    outcomes: dict[int, set[float]] = defaultdict(set)
    for (task, _), record in many.items():
        outcomes[task].add(record["reward"])
    same = sum(len(found) == 1 for found in outcomes.values())
    yield Figure("tasks whose 20 repeats all end alike", same, "of 100", 10, note="0.7 ** 20 + 0.3 ** 20 a task: none is expected")
    differing = sum(one[key] != many[key] for key in one) + len(one.keys() ^ many.keys())
    yield Figure("records that differ between concurrency 1 and 64", differing, "of 2000", 0)


def _prepare(root: Path) -> None:
    result = run_command(
        [sys.executable, str(root / PREPARE), "--demo"],
        environ=os.environ,
        cwd=root,
        deadline=Deadline.after(COMMAND_SECONDS, "the demo's datasets"),
        redactor=Redactor(()),
    )
    if not result.ok:
        raise result.error("the demo's datasets could not be made")


def _records(gym: Gym, concurrency: int) -> dict[tuple[int, int], Record]:
    """What the run stored, by (task, rollout)."""
    output = gym.cwd / f"scripted-{concurrency}.jsonl"
    arguments = ["eval", "run", "--engine", "process", *QUICKSTART, "--split", "train", "--num-repeats", str(REPEATS)]
    gym.run(*arguments, "--concurrency", str(concurrency), "--output", str(output))
    records = [orjson.loads(line) for line in output.read_bytes().splitlines()]
    return {(record["_ng_task_index"], record["_ng_rollout_index"]): record for record in records}
