"""How long rows may be started, and how many of them are held at a time (contract-data 1.8)."""

from __future__ import annotations

from dataclasses import dataclass

from gym_compose.driver.latency import Latencies
from gym_compose.wire.deadline import Clock
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.run import RunRequest

_ENOUGH = 5
_RESIDENT = 4


@dataclass(frozen=True)
class Window:
    """Bounds on rows; None is no bound. ``active``: requests under way. ``resident``: those and the answers that nobody took yet."""

    active: int | None = None
    resident: int | None = None

    @classmethod
    def of(cls, num_samples_in_parallel: int | None, max_resident_rollout_tasks: int | None) -> Window:
        """Of both the lower one wins; with the first alone four times as many are resident."""
        bounds = [bound for bound in (num_samples_in_parallel, max_resident_rollout_tasks) if bound is not None]
        resident = max_resident_rollout_tasks
        if resident is None and num_samples_in_parallel is not None:
            resident = _RESIDENT * num_samples_in_parallel
        return cls(min(bounds, default=None), resident)


class DispatchBudget:
    """Whether a row may still be started: ``seconds`` after ``begin`` none is, and none for which fewer than ``margin`` are left.

    ``margin`` None: what three quarters of this run's rollouts took, once five have come back. ``spent`` turns True at the first row that
    was held back, and stays so.
    """

    def __init__(self, seconds: float | None, margin: float | None, latencies: Latencies, clock: Clock) -> None:
        self.seconds = seconds
        self.spent = False
        self._margin = margin
        self._latencies = latencies
        self._clock = clock
        self._ends: float | None = None

    @classmethod
    def of(cls, request: RunRequest, latencies: Latencies, clock: Clock) -> DispatchBudget:
        """That of a run."""
        return cls(request.dispatch_budget_s, request.drain_margin_s, latencies, clock)

    def begin(self) -> None:
        """Dispatch begins now."""
        if self.seconds is not None:
            self._ends = self._clock() + self.seconds

    def allows(self) -> bool:
        """Whether one more row may be started now."""
        if self._ends is None:
            return True
        left = self._ends - self._clock()
        margin = self.margin
        if left <= 0 or (margin is not None and left < margin):
            self.spent = True
        return not self.spent

    @property
    def margin(self) -> float | None:
        """Seconds that have to be left."""
        if self._margin is not None:
            return self._margin
        return self._latencies.quantile(0.75) if self._latencies.count >= _ENOUGH else None


def check_budget(request: RunRequest) -> None:
    """Raises InvalidInputError for a budget of a run without bound: all of its rows are started at once (contract-data 1.2)."""
    if request.dispatch_budget_s is not None and request.num_samples_in_parallel is None:
        raise InvalidInputError(
            "a budget needs a bound on what is in flight: without one all rows are started at once",
            where="dispatch_budget_s",
            hint="Give --concurrency N (num_samples_in_parallel).",
        )
