"""Which rollouts of a run can be looked at one by one: few, spread over all of it, the same ones each time."""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass, field
from pathlib import Path

from gym_compose.rollouts.reader import Line

ROLLOUTS = 150
FAILURES = 50


@dataclass(frozen=True, order=True)
class SampledLine:
    """A line that was chosen, by task and rollout."""

    task: int
    rollout: int
    offset: int
    path: Path
    failed: bool


@dataclass
class Sample:
    """Keeps the lines with the least digests of their keys: a draw that no order of lines changes, and that needs no more than it keeps.

    Where there are no more than asked for, all are kept.
    """

    rollouts: int = ROLLOUTS
    failures: int = FAILURES
    _heaps: dict[bool, list[tuple[int, SampledLine]]] = field(default_factory=lambda: {False: [], True: []})

    def offer(self, line: Line, *, failed: bool) -> None:
        """A line that may be chosen. Raises RolloutFileError when it has no indices."""
        task, rollout = line.key
        digest = hashlib.blake2b(f"{task}:{rollout}:{line.number if failed else 0}".encode(), digest_size=8).digest()
        entry = (-int.from_bytes(digest, "big"), SampledLine(task, rollout, line.offset, line.path, failed))
        heap, most = self._heaps[failed], self.failures if failed else self.rollouts
        if len(heap) < most:
            heapq.heappush(heap, entry)
        elif most:
            heapq.heappushpop(heap, entry)

    def chosen(self) -> tuple[SampledLine, ...]:
        """Failures first, each kind by task and rollout."""
        return tuple(line for failed in (True, False) for line in sorted(line for _, line in self._heaps[failed]))
