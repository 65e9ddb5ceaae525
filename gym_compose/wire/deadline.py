"""One deadline, handed down: nobody below the settings invents a timeout of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    """A point on a monotonic clock, or no bound at all.

    ``at`` is in seconds of ``clock``; ``None`` never expires. ``purpose`` names what is waited for, so that the error of
    whoever runs out of time can say it.
    """

    at: float | None
    purpose: str = ""
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, purpose: str = "", clock: Clock = time.monotonic) -> Deadline:
        """A deadline ``seconds`` from now; ``None`` for no bound."""
        return cls(None if seconds is None else clock() + seconds, purpose, clock)

    def remaining(self) -> float | None:
        """Seconds that are left, never below zero; ``None`` when unbounded."""
        return None if self.at is None else max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        return self.at is not None and self.clock() >= self.at

    def within(self, seconds: float | None, purpose: str = "") -> Deadline:
        """The earlier of this deadline and one ``seconds`` from now."""
        other = Deadline.after(seconds, purpose or self.purpose, self.clock)
        if other.at is None:
            return Deadline(self.at, purpose or self.purpose, self.clock)
        if self.at is None or other.at < self.at:
            return other
        return Deadline(self.at, purpose or self.purpose, self.clock)

    def pause(self, seconds: float) -> float:
        """How long to sleep for a poll interval of ``seconds``: less when the deadline is nearer."""
        left = self.remaining()
        return seconds if left is None else min(seconds, left)
