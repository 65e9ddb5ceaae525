"""How long the command line itself takes: whole processes, as a user waits for them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from bench.figure import Figure
from bench.gym import QUICKSTART, Gym

RUNS = 7


def figures(gym: Gym) -> Iterator[Figure]:
    """Medians of several runs; the first one, which may read cold files, is not counted."""
    seen = [*QUICKSTART]
    yield _timed("gym --help", lambda _: gym.run("--help"), at_most=0.3)
    yield _timed("gym compose plan", lambda _: gym.run("compose", "plan", *seen), at_most=0.7)
    yield _timed(
        "gym compose plan, unseen override", lambda run: gym.run("compose", "plan", *seen, f"++quickstart_bench_{run}={run}"), at_most=0.7
    )
    yield _timed("gym env resolve", lambda _: gym.run("env", "resolve", *seen), peer=5.7, note="peer: 5.7 to 13.1 s (two files)")


def _timed(name: str, call: Callable[[int], float], *, at_most: float | None = None, peer: float | None = None, note: str = "") -> Figure:
    call(0)
    return Figure(name, statistics.median(call(run) for run in range(1, RUNS + 1)), "s", at_most, peer, note)
