"""The driver is killed at any moment, and the disk fills up; then ``--resume``: no row twice in the output, none missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

REPOSITORY = Path(__file__).resolve().parents[3]
ROWS = 30


async def start(stubs: Any, rows: Any, *, limit_bytes: int | None = None, **changes: Any) -> asyncio.subprocess.Process:
    path = stubs.directory / "request.json"
    path.write_text(stubs.request(rows, **changes).model_dump_json())

    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gym_compose.driver", "--request", str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)},
        preexec_fn=limit,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, list[dict[str, Any]]]:
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, [orjson.loads(line) for line in out.splitlines()]


def assert_whole(stubs: Any, code: int, events: list[dict[str, Any]], requested: int) -> None:
    summary = events[-1]
    assert (code, summary["event"]) == (0, "finished"), summary
    assert summary["counts"] == {"requested": requested, "completed": requested, "failed": 0, "unresolved": 0}
    done = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in stubs.read(stubs.output)]
    assert len(done) == len(set(done)) == requested
    assert set(done) == {
        (row["_ng_task_index"], row["_ng_rollout_index"]) for row in stubs.read(stubs.beside("_materialized_inputs.jsonl"))
    }
    assert not Path(f"{stubs.output}.lock").exists()


def at_request(stubs: Any, number: int, act: Callable[[], Any]) -> None:
    """Call ``act`` when the request of this number has arrived, and never answer it."""
    seen = iter(range(1, 10_000))
    good = stubs.reward()

    async def answer(body: dict[str, Any]) -> web.StreamResponse:
        if next(seen) == number:
            act()
            await asyncio.sleep(300)
        await asyncio.sleep(0.002)
        reply: web.StreamResponse = await good(body)
        return reply

    stubs.servers["a_env"].answer = answer


@pytest.mark.parametrize("number", [1, 2, 7, 19, ROWS])
async def test_killed_while_rows_are_sent(stubs: Any, number: int) -> None:
    rows = [stubs.flat("a", n=n) for n in range(ROWS)]
    process = await start(stubs, rows)
    at_request(stubs, number, process.kill)
    await ended(process)
    stubs.servers["a_env"].answer = stubs.reward()
    assert_whole(stubs, *await ended(await start(stubs, rows, resume_from_cache=True, run_id="run2")), ROWS)


async def test_killed_again_and_again(stubs: Any) -> None:
    rows = [stubs.flat("a", n=n) for n in range(2 * ROWS)]
    for number in (3, 11, 1, 17):
        process = await start(stubs, rows, resume_from_cache=True, run_id=f"run{number}")
        at_request(stubs, number, process.kill)
        await ended(process)
    stubs.servers["a_env"].answer = stubs.reward()
    assert_whole(stubs, *await ended(await start(stubs, rows, resume_from_cache=True, run_id="last")), 2 * ROWS)


KILLED_AT = """
import os, signal, sys
from gym_compose.driver import __main__ as driver

real, left = getattr(os, sys.argv[1]), int(sys.argv[2])

def counted(*args, **kwargs):
    global left
    left -= 1
    if left == 0 and sys.argv[3] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args, **kwargs)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(os, sys.argv[1], counted)
sys.exit(driver.main(["--request", sys.argv[4]]))
"""


@pytest.mark.parametrize(
    ("call", "number", "side"),
    [
        *[("replace", number, side) for number in (1, 2) for side in ("before", "after")],  # rows, then journal, are put in place
        *[("unlink", number, "after") for number in (1, 2, 3, 4, 5)],  # what the older run left
    ],
)
async def test_killed_while_a_run_replaces_an_older_one(stubs: Any, call: str, number: int, side: str) -> None:
    """Between any two steps of the start: what is there then is the old run, the new one, or none, and each can be gone on with."""
    await stubs.run([stubs.flat("a", old=n) for n in range(2)])
    rows = [stubs.flat("a", n=n) for n in range(3)]
    path = stubs.directory / "request.json"
    path.write_text(stubs.request(rows, overwrite=True, run_id="run2").model_dump_json())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED_AT, call, str(number), side, str(path)),
        env={"PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await ended(process)
    assert process.returncode == -9
    code, events = await ended(await start(stubs, rows, resume_from_cache=True, run_id="run3"))
    if code == 3:  # the old run was found: its input is another one
        assert "is not what it was when the run began" in events[-1]["message"]
        code, events = await ended(await start(stubs, rows, overwrite=True, run_id="run4"))
    assert_whole(stubs, code, events, 3)
    assert {row["agent_ref"]["name"] for row in stubs.read(stubs.output)} == {"a"}
    assert all("n" in row for row in stubs.read(stubs.beside("_materialized_inputs.jsonl")))


async def test_killed_in_the_middle_of_a_line(stubs: Any) -> None:
    """A big record is written in part: the process that wrote it dies, as does its machine in fact."""
    rows = [stubs.flat("a", n=n) for n in range(6)]
    process = await start(stubs, rows, num_samples_in_parallel=1)
    at_request(stubs, 5, process.kill)
    await ended(process)
    content = stubs.output.read_bytes()
    stubs.output.write_bytes(content[:-30])
    stubs.servers["a_env"].answer = stubs.reward()
    code, events = await ended(await start(stubs, rows, resume_from_cache=True, run_id="run2"))
    assert_whole(stubs, code, events, 6)
    assert any("torn" in event.get("text", "") for event in events)


async def test_a_second_driver_is_told_who_is_at_work(stubs: Any) -> None:
    rows = [stubs.flat("a", n=n) for n in range(3)]
    first = await start(stubs, rows)
    arrived = asyncio.Event()
    at_request(stubs, 2, arrived.set)
    await asyncio.wait_for(arrived.wait(), 120)
    code, events = await ended(await start(stubs, rows, resume_from_cache=True, run_id="run2"))
    assert code == 4
    assert "run run1 is still going on" in events[-1]["message"]
    assert f"process {first.pid}" in events[-1]["message"]
    first.kill()
    await ended(first)
    stubs.servers["a_env"].answer = stubs.reward()
    assert_whole(stubs, *await ended(await start(stubs, rows, resume_from_cache=True, run_id="run3")), 3)


class TestAFullDisk:
    """A limit on the size of files stands for it where nothing can be mounted: the kernel fails the same write."""

    async def test_ends_the_run_in_order_and_it_can_be_gone_on_with(self, stubs: Any) -> None:
        rows = [stubs.flat("a", n=n) for n in range(ROWS)]
        stubs.servers["a_env"].answer = lambda _body: web.json_response({"reward": 1.0, "text": "y" * 5000})
        code, events = await ended(await start(stubs, rows, limit_bytes=64 * 1024, num_samples_in_parallel=2))
        assert code == 4
        assert "disk is full" in events[-1]["error"]
        counts = events[-1]["counts"]
        assert 0 < counts["completed"] == len(stubs.read(stubs.output)) < ROWS
        assert counts["completed"] + counts["failed"] + counts["unresolved"] == ROWS
        assert_whole(stubs, *await ended(await start(stubs, rows, resume_from_cache=True, run_id="run2")), ROWS)

    async def test_while_rows_are_laid_down_leaves_nothing(self, stubs: Any) -> None:
        rows = [stubs.flat("a", text="y" * 5000) for _ in range(ROWS)]
        code, events = await ended(await start(stubs, rows, limit_bytes=64 * 1024))
        assert code == 4
        assert "disk is full" in events[-1]["message"]
        assert list(stubs.output.parent.iterdir()) == []

    async def test_of_its_own(self, stubs: Any) -> None:
        with mounted_tmpfs(stubs.output.parent, "256k"):
            rows = [stubs.flat("a", n=n) for n in range(ROWS)]
            stubs.servers["a_env"].answer = lambda _body: web.json_response({"reward": 1.0, "text": "y" * 20_000})
            code, events = await ended(await start(stubs, rows, num_samples_in_parallel=2))
            assert code == 4
            assert "disk is full" in events[-1]["error"]
            assert 0 < events[-1]["counts"]["completed"] == len(stubs.read(stubs.output)) < ROWS
            subprocess.run(["mount", "-o", "remount,size=16m", str(stubs.output.parent)], check=True)
            assert_whole(stubs, *await ended(await start(stubs, rows, resume_from_cache=True, run_id="run2")), ROWS)


@contextlib.contextmanager
def mounted_tmpfs(directory: Path, size: str) -> Iterator[None]:
    directory.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "gym-test", str(directory)], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_directory_that_is_not_writable_is_named(stubs: Any) -> None:
    stubs.output.parent.mkdir(mode=0o555)
    code, events = await ended(await start(stubs, [stubs.flat("a")]))
    assert code == 4
    assert str(stubs.output.parent) in events[-1]["message"]
    assert "not writable" in events[-1]["message"]
