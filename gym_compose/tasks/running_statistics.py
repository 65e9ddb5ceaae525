"""Running statistics of dataset metrics: numbers and categories, in constant memory (contract-data 3.4, "Metrics per row")."""

from __future__ import annotations

import math
from typing import Any

MAX_LABELS = 100
"""Labels of a category that are counted apart; the rest counts as one."""
_OTHER = ("Other", "Other (overflow)")


class NumberStatistics:
    """Count, mean, extremes and sample standard deviation of numbers, by Welford's method; ``times`` weighs an observation."""

    __slots__ = ("count", "least", "mean", "most", "squares")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0
        self.least = math.inf
        self.most = -math.inf

    def observe(self, value: Any, times: int = 1) -> None:
        """Take a number in ``times`` times over."""
        number = float(value)
        count = self.count
        self.count = total = count + times
        away = number - self.mean
        self.mean += away * times / total
        self.squares += away * away * count * times / total
        if number < self.least:
            self.least = number
        if number > self.most:
            self.most = number

    def add(self, other: Statistics) -> None:
        """Take in all that ``other`` has observed. Raises TypeError for counts of labels."""
        if not isinstance(other, NumberStatistics):
            raise TypeError("numbers and labels do not add up")
        if other.count == 0:
            return
        total = self.count + other.count
        away = other.mean - self.mean
        self.mean += away * other.count / total
        self.squares += other.squares + away * away * self.count * other.count / total
        self.count = total
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)

    def summary(self) -> dict[str, float | int]:
        """The five figures by the names that a metrics file has, rounded as there: 2 digits from 1 on, 3 below."""
        empty = self.count == 0
        return {
            "Total # non-null values": self.count,
            "Average": rounded(self.mean),
            "Min": 0.0 if empty else rounded(self.least),
            "Max": 0.0 if empty else rounded(self.most),
            "Standard deviation": rounded(math.sqrt(self.squares / (self.count - 1))) if self.count > 1 else 0.0,
        }

    def state(self) -> dict[str, Any]:
        """What ``restored`` makes the same object of, in another process."""
        return {"kind": "number", **{name: getattr(self, name) for name in self.__slots__}}


class CategoryCounts:
    """How often each label occurred; from the 101st label on they count as one."""

    __slots__ = ("counts", "other", "total")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.other = 0
        self.total = 0

    def observe(self, label: Any, times: int = 1) -> None:
        """Count the text ``label`` ``times`` times."""
        self.total += times
        if label in self.counts or len(self.counts) < MAX_LABELS:
            self.counts[label] = self.counts.get(label, 0) + times
        else:
            self.other += times

    def add(self, other: Statistics) -> None:
        """Take in all that ``other`` has counted. Raises TypeError for numbers."""
        if not isinstance(other, CategoryCounts):
            raise TypeError("labels and numbers do not add up")
        for label, times in other.counts.items():
            self.observe(label, times)
        self.other += other.other
        self.total += other.other

    def summary(self) -> dict[str, Any]:
        """``{counts, unique_count, total_count}``, labels sorted."""
        counts = dict(sorted(self.counts.items()))
        if self.other:
            counts[_OTHER[_OTHER[0] in counts]] = self.other
        return {"counts": counts, "unique_count": len(counts), "total_count": self.total}

    def state(self) -> dict[str, Any]:
        """What ``restored`` makes the same object of, in another process."""
        return {"kind": "category", "counts": self.counts, "other": self.other, "total": self.total}


Statistics = NumberStatistics | CategoryCounts


def restored(state: dict[str, Any]) -> Statistics:
    """The object whose ``state()`` this is."""
    made: Statistics = NumberStatistics() if state["kind"] == "number" else CategoryCounts()
    for name in made.__slots__:
        setattr(made, name, state[name])
    return made


def rounded(value: float) -> float:
    """Two digits when the number is 1 or more in size, else three."""
    return round(value, 2 if abs(value) >= 1 else 3)
