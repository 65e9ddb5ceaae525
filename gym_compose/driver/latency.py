"""How long the rollouts of a run took, in memory that does not grow with their number (contract-data 1.8, 1.14)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from gym_compose.wire.run import LatencySummary

_STEPS = 50
"""Buckets to a factor of e: each is 2 % wide, so a quantile is right to 1 %."""
_SHORTEST = 1e-4


@dataclass
class Latencies:
    """A histogram of seconds with buckets of equal ratio. ``longest`` and ``total`` are exact."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    _buckets: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        """A rollout came back after ``seconds``."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self._buckets[math.floor(math.log(max(seconds, _SHORTEST)) * _STEPS)] += 1

    def quantile(self, share: float) -> float | None:
        """Seconds within which ``share`` of the rollouts came back; None before the first."""
        if self.count == 0:
            return None
        wanted = max(1, math.ceil(share * self.count))
        reached = 0
        for bucket in sorted(self._buckets):
            reached += self._buckets[bucket]
            if reached >= wanted:
                return min(math.exp((bucket + 0.5) / _STEPS), self.longest)
        raise AssertionError("the buckets hold every rollout")

    def summary(self) -> LatencySummary | None:
        """None before the first."""
        if self.count == 0:
            return None
        p50, p90, p99 = (round(self.quantile(share) or 0.0, 4) for share in (0.5, 0.9, 0.99))
        return LatencySummary(p50=p50, p90=p90, p99=p99, longest=round(self.longest, 4), rollout_hours=round(self.total / 3600, 6))
