"""The least a collector can do: read a row, write a line before it leaves, send it, parse the answer, write it. No checks, no accounts.

``python -m bench.bare_loop URL ROWS ROLLOUTS CONCURRENCY DIRECTORY`` prints, as JSON, its rate (rollouts a second, first to last
completion) and the CPU seconds of a rollout between the two.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import orjson


def rows(path: Path, rollouts: int) -> Iterator[bytes]:
    """The lines of ``path``, from its start again when they are used up."""
    sent = 0
    while sent < rollouts:
        with path.open("rb") as lines:
            for line in lines:
                if sent == rollouts:
                    return
                sent += 1
                yield line


async def loop(url: str, path: Path, rollouts: int, concurrency: int, directory: Path) -> tuple[float, float]:
    """Rate and CPU seconds."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    journal, output = (os.open(directory / name, flags) for name in ("bare_journal.jsonl", "bare_rollouts.jsonl"))
    source = enumerate(rows(path, rollouts))
    first = last = before = 0.0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal first, last, before
        for number, line in source:
            row = orjson.loads(line)
            os.write(journal, orjson.dumps({"event": "sent", "task": number, "at": time.time()}, option=orjson.OPT_APPEND_NEWLINE))
            async with session.post(url, data=orjson.dumps(row), headers={"content-type": "application/json"}) as reply:
                record = orjson.loads(await reply.read())
            record["_ng_task_index"] = number
            os.write(output, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
            last = time.perf_counter()
            if not first:
                first, before = last, time.process_time()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(work(session) for _ in range(concurrency)))
        cpu = time.process_time() - before
    return (rollouts - 1) / (last - first), cpu / (rollouts - 1)


def main(argv: list[str]) -> int:
    url, path, rollouts, concurrency, directory = argv
    rate, cpu = asyncio.run(loop(url, Path(path), int(rollouts), int(concurrency), Path(directory)))
    print(orjson.dumps({"rate": rate, "cpu": cpu}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
