"""Rollouts sent to an environment server by a bare loop: what a deployment can do, whoever drives it.

``python -m bench.load URL ROWS ROLLOUTS CONCURRENCY [SECONDS [episodes]]`` prints a ``Load`` as JSON; ``episodes`` sends each row as an
episode with an id of its own. It is a process of its own, as every other part of the chain is: no side shares its interpreter with what
measures it. Needs aiohttp and orjson alone, so that it runs inside a server's image too.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import orjson


@dataclass(frozen=True)
class Load:
    """What came of it. ``rate``: rollouts a second from the first completion to the last. Latencies in seconds."""

    sent: int
    succeeded: int
    rate: float
    p50: float
    p99: float
    slowest: float
    first_failure: str = ""


async def drive(
    url: str, rows: list[bytes], rollouts: int, concurrency: int, reply_seconds: float = 120.0, *, episodes: bool = False
) -> Load:
    """``POST url`` with the rows in turn, ``concurrency`` at a time, no retries. A rollout succeeds when its reply has reward 1.0."""
    numbers = iter(range(rollouts))
    ends: list[float] = []
    took: list[float] = []
    failures: list[str] = []

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            row = rows[number % len(rows)]
            started = time.perf_counter()
            failure = await _one(session, url, episode(row, number) if episodes else row)
            ended = time.perf_counter()
            ends.append(ended)
            took.append(ended - started)
            if failure:
                failures.append(failure)

    timeout = aiohttp.ClientTimeout(total=reply_seconds)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(work(session) for _ in range(min(concurrency, rollouts))))
    ends.sort()
    cuts = statistics.quantiles(took, n=100)
    return Load(
        sent=rollouts,
        succeeded=rollouts - len(failures),
        rate=(len(ends) - 1) / (ends[-1] - ends[0]),
        p50=cuts[49],
        p99=cuts[98],
        slowest=max(took),
        first_failure=failures[0] if failures else "",
    )


def episode(row: bytes, number: int) -> bytes:
    """A row as the body that ``/run`` of a typed environment server takes."""
    task = {"task_id": {"taskset": "bench", "task_id": str(number)}, "task_input": {**orjson.loads(row), "task_data": {}}}
    return orjson.dumps({"episode_id": {"rollout_id": f"bench-{number}", "attempt": 0}, "task": task})


async def _one(session: aiohttp.ClientSession, url: str, row: bytes) -> str:
    """Why this rollout failed; empty when it did not."""
    try:
        async with session.post(url, data=row, headers={"content-type": "application/json"}) as reply:
            body = await reply.read()
            if reply.status != 200:
                return f"{reply.status}: {body[:200]!r}"
            answer = orjson.loads(body)
            result = answer.get("result", answer)
            return "" if isinstance(result, dict) and result.get("reward") == 1.0 else f"no reward: {body[:200]!r}"
    except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
        return f"{type(error).__name__}: {error}"


def main(argv: list[str]) -> int:
    url, rows, rollouts, concurrency, *more = argv
    seconds, shape = [*more, *("120", "")[len(more) :]]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    lines = [line for line in Path(rows).read_bytes().splitlines() if line.strip()]
    load = asyncio.run(drive(url, lines, int(rollouts), int(concurrency), float(seconds), episodes=shape == "episodes"))
    print(orjson.dumps(asdict(load)).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
