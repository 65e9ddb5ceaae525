"""The driver alone: many rows through an environment server that costs nothing, beside a bare loop over the same server; its memory.

Server and sender are processes of their own, each with one core to itself where there are two.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from bench.figure import Figure
from gym_compose.wire.run import RunRequest

TASKS = 200
ROLLOUTS = 200_000
EARLY = 10_000
BARE_ROLLOUTS = 20_000
CONCURRENCY = 64
REPLY_BYTES = 2_900
"""A stored rollout of the peer's example (golden/peer_run)."""
MEGABYTE = 1_000_000.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """The driver while it runs. ``rss`` in bytes, ``cpu`` in seconds since its start."""

    completed: int
    elapsed: float
    rss: int
    cpu: float


def figures(directory: Path, rollouts: int = ROLLOUTS) -> Iterator[Figure]:
    """``directory`` gets the files: some 1.3 GB, removed when they are measured."""
    directory.mkdir(parents=True, exist_ok=True)
    rows, reply = directory / "rows.jsonl", directory / "reply.json"
    rows.write_bytes(b"".join(orjson.dumps(_row(number)) + b"\n" for number in range(TASKS)))
    reply.write_bytes(_reply())
    with _stub(reply) as url:
        bare = [_bare_loop(url, rows, directory)]
        samples = _driver(url, rows, directory, rollouts)
        bare.append(_bare_loop(url, rows, directory))
    early = next(sample for sample in samples if sample.completed >= EARLY)
    late = samples[-1]
    rate = (late.completed - early.completed) / (late.elapsed - early.elapsed)
    cpu = (late.cpu - early.cpu) / (late.completed - early.completed)
    bare_rate = sum(found["rate"] for found in bare) / len(bare)
    bare_cpu = sum(found["cpu"] for found in bare) / len(bare)
    yield Figure(f"driver, {rollouts:,} rows of {REPLY_BYTES} bytes", rate, "rows/s")
    yield Figure("bare loop of aiohttp, orjson and two writes", bare_rate, "rows/s", note="mean of one run before and one after")
    yield Figure("driver's rate over that of the bare loop", rate / bare_rate, "x", at_least=0.6)
    yield Figure(
        "driver's CPU for a row over that of the bare loop", cpu / bare_cpu, "x", note=f"{cpu * 1e6:.0f} and {bare_cpu * 1e6:.0f} us"
    )
    yield Figure(f"driver's memory at {EARLY:,} rows", early.rss / MEGABYTE, "MB", note="resident set")
    most = max(sample.rss for sample in samples)
    yield Figure(f"its most until {rollouts:,} rows, over that", most / early.rss, "x", 1.10)


def _row(number: int) -> dict[str, Any]:
    user = {"role": "user", "content": f"Do I need an umbrella in city {number} today?"}
    developer = {"role": "developer", "content": "Answer briefly; look facts up. " * 8}
    return {"responses_create_params": {"input": [developer, user]}, "verifier_metadata": {"id": number}, "agent_ref": {"name": "agent"}}


def _reply() -> bytes:
    """A verify answer of REPLY_BYTES: a response with a text, usage, the contract's base fields."""
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "", "annotations": []}]}
    usage = {"input_tokens": 120, "output_tokens": 64, "total_tokens": 184}
    answer: dict[str, Any] = {
        "responses_create_params": _row(0)["responses_create_params"],
        "response": {"id": "resp_1", "object": "response", "output": [message], "usage": usage},
        "reward": 1.0,
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }
    message["content"] = [{"type": "output_text", "text": "w" * (REPLY_BYTES - len(orjson.dumps(answer))), "annotations": []}]
    return orjson.dumps(answer)


def _start(core: int, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """A module of this interpreter on one of the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    chosen = {cores[core % len(cores)]} if len(cores) > 1 else set(cores)
    return subprocess.Popen([sys.executable, "-m", *arguments], preexec_fn=lambda: os.sched_setaffinity(0, chosen), **pipes)


@contextmanager
def _stub(reply: Path) -> Iterator[str]:
    process = _start(1, "bench.stub_environment", str(reply), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield _pipe(process.stdout).readline().decode().strip()
    finally:
        _pipe(process.stdin).close()
        process.wait()


def _bare_loop(url: str, rows: Path, directory: Path) -> dict[str, float]:
    arguments = (f"{url}/run", str(rows), str(BARE_ROLLOUTS), str(CONCURRENCY), str(directory))
    process = _start(0, "bench.bare_loop", *arguments, stdout=subprocess.PIPE)
    out, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError("the bare loop failed")
    for name in ("bare_journal.jsonl", "bare_rollouts.jsonl"):
        (directory / name).unlink()
    found: dict[str, float] = orjson.loads(out)
    return found


def _driver(url: str, rows: Path, directory: Path, rollouts: int) -> list[Sample]:
    output = directory / "driver" / "rollouts.jsonl"
    request = RunRequest(
        run_id="bench",
        head_url=url,
        input_jsonl_fpath=str(rows),
        output_jsonl_fpath=str(output),
        num_repeats=rollouts // TASKS,
        num_samples_in_parallel=CONCURRENCY,
        disable_aggregation=True,
        overwrite=True,
    )
    path = directory / "request.json"
    path.write_text(request.model_dump_json(), encoding="utf-8")
    process = _start(0, "gym_compose.driver", "--request", str(path), stdout=subprocess.PIPE)
    samples: list[Sample] = []
    event: dict[str, Any] = {}
    for line in _pipe(process.stdout):
        event = orjson.loads(line)
        if event["event"] == "progress" and process.poll() is None:
            samples.append(Sample(event["counts"]["completed"], event["elapsed_seconds"], *_used(process.pid)))
    if process.wait() != 0 or event["counts"]["completed"] != rollouts:
        raise RuntimeError(f"the driver's run failed: {event}")
    for file in output.parent.iterdir():
        file.unlink()
    return samples


def _used(pid: int) -> tuple[int, float]:
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return pages * os.sysconf("SC_PAGE_SIZE"), (int(fields[11]) + int(fields[12])) / _TICKS


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
