"""Counting a run while it goes on: rates, rewards, failures by class, groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gym_compose.driver.latency import Latencies
from gym_compose.driver.record import Outcome
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, agent_of
from gym_compose.wire.deadline import Clock
from gym_compose.wire.run import GroupSummary, RunCounts, RunProgress, RunSummary, RunWarning

Event = RunProgress | RunWarning | RunSummary
OnEvent = Callable[[Event], None]


@dataclass
class _Group:
    rollouts: int = 0
    failed: int = 0
    rewards: int = 0
    total: float = 0.0


@dataclass
class Tally:
    """What happened to the rows so far. ``completed + failed + unresolved = requested`` holds at any moment: unresolved are the rows not
    yet sent, those in flight, those cancelled and those that a server asked not to store."""

    requested: int
    clock: Clock
    completed: int = 0
    failed: int = 0
    dropped: int = 0
    taken: int = 0
    in_flight: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    _rewards: int = 0
    _total: float = 0.0
    _started: float | None = None
    _groups: dict[tuple[str, str | None, str | None], _Group] = field(default_factory=dict)
    carried: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def carry(self, outcome: Outcome) -> None:
        """A row that an earlier run of the same output has settled: it counts, except for rate and ETA."""
        self.carried += 1
        self.taken += 1
        self.ended(outcome)

    def began(self) -> None:
        """A row was taken."""
        if self._started is None:
            self._started = self.clock()
        self.taken += 1
        self.in_flight += 1

    def left(self) -> None:
        """Its request is over, whatever came of it."""
        self.in_flight -= 1

    def ended(self, outcome: Outcome) -> None:
        """Its record is stored."""
        record = outcome.record
        task = record.get("_ng_task_id")
        taskset = task.get("taskset") if isinstance(task, dict) else None
        key = (str(record[ENVIRONMENT_SERVER]), taskset if isinstance(taskset, str) else None, agent_of(record))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        if outcome.kind == "completed":
            self.completed += 1
            group.rollouts += 1
        elif outcome.kind == "failed":
            self.failed += 1
            group.failed += 1
        else:
            self.dropped += 1
        if outcome.failure_class is not None:
            self.failures[outcome.failure_class] += 1
        reward = outcome.reward
        if reward is not None:
            self._rewards += 1
            self._total += reward
            group.rewards += 1
            group.total += reward

    @property
    def elapsed(self) -> float:
        """Seconds since the first row was taken."""
        return 0.0 if self._started is None else self.clock() - self._started

    @property
    def rate(self) -> float:
        """Rollouts that came back per second since the first request."""
        seconds = self.elapsed
        return (self.completed + self.failed + self.dropped - self.carried) / seconds if seconds > 0 else 0.0

    @property
    def mean_reward(self) -> float | None:
        return self._total / self._rewards if self._rewards else None

    @property
    def waiting(self) -> int:
        """Rows that no one has taken."""
        return self.requested - self.taken

    @property
    def unstored(self) -> int:
        """Rows that were taken and have no outcome: in flight, or cancelled."""
        return self.taken - self.completed - self.failed - self.dropped

    def counts(self) -> RunCounts:
        """``unresolved`` is counted from its parts, not as the rest, so that the sum is a check."""
        unresolved = self.waiting + self.unstored + self.dropped
        return RunCounts(requested=self.requested, completed=self.completed, failed=self.failed, unresolved=unresolved)

    def snapshot(self) -> RunProgress:
        """A progress event."""
        rate = self.rate
        back = self.completed + self.failed + self.dropped
        return RunProgress(
            counts=self.counts(),
            in_flight=self.in_flight,
            elapsed_seconds=round(self.elapsed, 3),
            rate=round(rate, 3),
            eta_seconds=round((self.requested - back) / rate, 1) if rate > 0 else None,
            mean_reward=self.mean_reward,
            failures=dict(sorted(self.failures.items())),
        )

    def groups(self) -> tuple[GroupSummary, ...]:
        """One line for each environment server, taskset and agent, in their order."""
        return tuple(
            GroupSummary(
                environment_server=server,
                taskset=taskset,
                agent=agent,
                rollouts=group.rollouts,
                failed=group.failed,
                mean_reward=group.total / group.rewards if group.rewards else None,
            )
            for (server, taskset, agent), group in sorted(self._groups.items(), key=lambda item: tuple(part or "" for part in item[0]))
        )
