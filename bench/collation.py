"""Collation of a million rows of a taskset, in a process of its own: seconds and resident memory. ``python -m bench.collation DIR`` is that
process; the rows are made before, by its caller."""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from bench.figure import Figure
from bench.gym import COMMAND_SECONDS
from gym_compose.engine.command import run_command
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor

ROWS = 1_000_000
SEED = 1
_FILE = "rows.jsonl"
CONFIG = {
    "math": {"resources_servers": {"math": {"datasets": [{"name": "math", "type": "train", "jsonl_fpath": _FILE, "taskset": "math"}]}}},
    "solver": {"responses_api_agents": {"simple_agent": {"resources_server": {"name": "math"}}}},
    "episodes": {"environment_servers": {"turn": {"agent_server": {"name": "solver"}, "resources_server": {"name": "math"}}}},
    "environment_server_routes": {"math": "episodes"},
}


def write_rows(path: Path, count: int) -> None:
    """Rows without ids, 250 bytes each: a prompt, a text that is always another, one of few labels, numbers, a list."""
    draw = random.Random(SEED)
    with path.open("wb") as file:
        for number in range(count):
            asked = f"What is {number} times {draw.randrange(10**6)}? Think it over and answer with the number."
            row = {
                "responses_create_params": {"input": [{"role": "user", "content": asked}], "temperature": 0.7},
                "question": f"{number} times",
                "expected_answer": str(draw.randrange(10**9)),
                "difficulty": draw.choice(("easy", "hard")),
                "level": draw.randrange(5),
                "tags": ["arithmetic", "text"],
            }
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="gym-compose-bench-collation-") as directory:
        write_rows(Path(directory) / _FILE, ROWS)
        result = run_command(
            [sys.executable, "-m", "bench.collation", directory],
            cwd=None,
            environ=os.environ,
            deadline=Deadline.after(COMMAND_SECONDS, "the collation bench"),
            redactor=Redactor(()),
        )
    if not result.ok:
        raise result.error("the collation bench failed")
    measured = json.loads(result.stdout)
    note = f"ids by content, checked to be unique; {measured['processor']:.0f} s of CPU"
    yield Figure(f"collation of {ROWS:,} rows", measured["seconds"], "s", note=note)
    yield Figure("resident memory of that", measured["megabytes"], "MB", 500.0)


def measure(directory: Path, rows: int) -> dict[str, float]:
    """Collate the file in ``directory``. Raises AssertionError when not every row came out."""
    from gym_compose.tasks.collate import CollationOptions, collate
    from gym_compose.tasks.task_code import RowCheckAnswer, RowCheckRequest
    from gym_compose.tasks.type_collation import Tools

    def check(request: RowCheckRequest, label: str) -> RowCheckAnswer:
        raise AssertionError(f"{label} has no code of a server: {request}")

    started, processor = time.perf_counter(), time.process_time()
    tools = Tools(check, lambda line: print(line, file=sys.stderr), 30.0)
    made = collate(CONFIG, CollationOptions(directory / "collated", ("train",)), [directory], tools).file("train")
    if made.rows != rows:
        raise AssertionError(f"{made.rows} rows of {rows}")
    return {
        "seconds": time.perf_counter() - started,
        "processor": time.process_time() - processor,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), ROWS)))
