"""``python -m gym_compose.driver`` as a process: events on stdout, signals, exit codes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web


async def start(request: Any, directory: Path, **environ: str) -> asyncio.subprocess.Process:
    path = directory / "request.json"
    path.write_text(request if isinstance(request, str) else request.model_dump_json())
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gym_compose.driver", "--request", str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # no HOME, no user: as in a container with any uid
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).resolve().parents[3]), **environ},
        cwd="/",
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, list[dict[str, Any]], str]:
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, [orjson.loads(line) for line in out.splitlines()], err.decode()


async def test_a_run_prints_events_and_exits_0(stubs: Any, tmp_path: Path) -> None:
    code, events, err = await ended(await start(stubs.request([stubs.flat("a"), stubs.mat("ts", "1")]), tmp_path))
    assert (code, err) == (0, "")
    assert events[-1]["event"] == "finished"
    assert events[-1]["counts"] == {"requested": 2, "completed": 2, "failed": 0, "unresolved": 0}
    assert {event["event"] for event in events} <= {"progress", "warning", "finished"}
    assert set(events[-1]["files"]) == {"rollouts", "failures", "materialized_inputs", "aggregate_metrics", "journal", "summary"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_in_order_with_130(stubs: Any, tmp_path: Path, number: signal.Signals) -> None:
    async def answer(body: dict[str, Any]) -> web.Response:
        if body["_ng_task_index"] > 0:
            await asyncio.sleep(60)
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    process = await start(stubs.request([stubs.flat("a", n=n) for n in range(5)], num_samples_in_parallel=2), tmp_path)
    for _ in range(200):
        if len(stubs.servers["a_env"].seen) >= 3:
            break
        await asyncio.sleep(0.05)
    process.send_signal(number)
    code, events, err = await ended(process)
    assert (code, err) == (130, "")
    assert events[-1]["interrupted"]
    assert events[-1]["counts"] == {"requested": 5, "completed": 1, "failed": 0, "unresolved": 4}
    assert len(stubs.read(stubs.output)) == 1


async def test_a_reader_that_goes_away_does_not_end_the_run(stubs: Any, tmp_path: Path) -> None:
    async def answer(_body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.1)
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    rows = [stubs.flat("a", n=n) for n in range(10)]
    process = await start(stubs.request(rows, num_samples_in_parallel=1), tmp_path, GYM_COMPOSE_PROGRESS_INTERVAL_SECONDS="0.05")
    assert process.stdout is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]  # the read end of the pipe
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert len(stubs.read(stubs.output)) == 10


async def test_a_killed_driver_leaves_a_journal_of_what_was_in_flight(stubs: Any, tmp_path: Path) -> None:
    async def answer(body: dict[str, Any]) -> web.Response:
        if body["_ng_task_index"] > 1:
            await asyncio.sleep(60)
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    process = await start(stubs.request([stubs.flat("a", n=n) for n in range(5)], num_samples_in_parallel=2), tmp_path)
    for _ in range(200):
        if len(stubs.servers["a_env"].seen) >= 4:
            break
        await asyncio.sleep(0.05)
    process.kill()
    await ended(process)
    lines = stubs.read(stubs.beside("_journal.jsonl"))
    sent = {line["attempt_id"]: line["task"] for line in lines if line["event"] == "sent"}
    done = {line["attempt_id"] for line in lines if line["event"] == "ended"}
    assert sorted(task for attempt, task in sent.items() if attempt not in done) == [2, 3]
    assert sorted(row["_ng_task_index"] for row in stubs.read(stubs.output)) == [0, 1]
    # the lock died with its holder
    code, _, _ = await ended(await start(stubs.request([stubs.flat("b")], overwrite=True), tmp_path))
    assert code == 0


@pytest.mark.parametrize(
    ("request_text", "code", "text"),
    [
        ("{", 3, "request.json"),
        ('{"run_id": "r"}', 3, "head_url"),
        ('{"format": 2, "run_id": "r", "head_url": "x", "input_jsonl_fpath": "i", "output_jsonl_fpath": "o"}', 3, "format 2 is not 1"),
    ],
)
async def test_a_request_that_is_none(tmp_path: Path, request_text: str, code: int, text: str) -> None:
    got, events, err = await ended(await start(request_text, tmp_path))
    assert (got, err) == (code, "")
    assert events[-1]["event"] == "error"
    assert events[-1]["exit_code"] == code
    assert text in events[-1]["message"]


async def test_a_run_that_cannot_start_says_why_in_one_event(stubs: Any, tmp_path: Path) -> None:
    code, events, err = await ended(await start(stubs.request([stubs.flat("nobody")]), tmp_path))
    assert (code, err) == (3, "")
    assert [event["event"] for event in events] == ["error"]
    assert "'nobody'" in events[0]["message"]


async def test_the_driver_needs_no_heavy_package() -> None:
    heavy = ("omegaconf", "hydra", "rich", "httpx", "docker", "fastapi", "uvicorn", "gym_compose.config")
    code = f"import sys, gym_compose.driver.run, gym_compose.tasks.collate; print([m for m in {heavy} if m in sys.modules])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.strip() == b"[]"
