"""The figures of a run's rollouts: what ``gym eval view`` shows, as data. One pass over each file; a few numbers are kept of a rollout."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import BaseModel, ConfigDict, ValidationError

from gym_compose.driver.output import OutputPaths
from gym_compose.rollouts.distribution import Distribution, distribution
from gym_compose.rollouts.reader import Line, read_lines
from gym_compose.rollouts.sample import Sample, SampledLine
from gym_compose.wire import statistics as stat
from gym_compose.wire.pass_at_k import estimate
from gym_compose.wire.run import RunSummary
from gym_compose.wire.run_body import AGENT_REF, ENVIRONMENT_SERVER, FAILURE_CLASS, FAILURE_STAGE, MASK_SAMPLE, PERF, TASK_ID_KEY

_TOKENS = ("input_tokens", "output_tokens", "total_tokens")
_EVERY_K = 16
"""pass@k is given for each k up to here, then for powers of two and the largest."""
_LARGEST = 1e100
"""A number beyond it is none: the squares of such have no sum in a float."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PassAtK(_Data):
    """pass@k in percent over the tasks with k scored rollouts and more; a 95 % t interval over tasks, None for one task."""

    k: int
    percent: float
    low: float | None
    high: float | None
    tasks: int


class Failures(_Data):
    """Failed attempts of one class at one stage."""

    failure_class: str
    stage: str | None
    count: int


class Part(_Data):
    """The rollouts of one environment server and taskset or agent."""

    environment_server: str | None
    taskset_or_agent: str | None
    rollouts: int
    failed: int
    mean_reward: float | None


class Figures(_Data):
    """All of it. ``scored`` rollouts have a reward and are not masked; ``failed`` counts lines of the failures file.

    ``mean_reward`` is over scored rollouts, its 95 % interval counts each task as a cluster. ``latency_from``: the journal of the run, or
    the field of the records that said it. Lengths are tokens, ``calls`` tool calls of a rollout, latency is in seconds.
    """

    file: str
    run: dict[str, Any] | None
    rollouts: int
    scored: int
    masked: int
    failed: int
    tasks: int
    repeats: int
    mean_reward: float | None
    mean_reward_low: float | None
    mean_reward_high: float | None
    rewards: Distribution | None
    task_means: Distribution | None
    pass_at_k: tuple[PassAtK, ...]
    binary: bool
    tokens: dict[str, Distribution]
    calls: Distribution | None
    latency: Distribution | None
    latency_from: str | None
    failures: tuple[Failures, ...]
    parts: tuple[Part, ...]


@dataclass
class _Part:
    rollouts: int = 0
    failed: int = 0
    rewards: int = 0
    total: float = 0.0


def _numbers() -> array[float]:
    return array("d")


@dataclass
class _Gathered:
    rollouts: int = 0
    masked: int = 0
    failed: int = 0
    repeats: int = 0
    tasks: dict[tuple[str | None, int], array[float]] = field(default_factory=dict)
    tokens: dict[str, array[float]] = field(default_factory=lambda: defaultdict(_numbers))
    calls: array[float] = field(default_factory=_numbers)
    latency: dict[str, array[float]] = field(default_factory=lambda: defaultdict(_numbers))
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    parts: dict[tuple[str, str], _Part] = field(default_factory=lambda: defaultdict(_Part))

    def rollout(self, line: Line) -> None:
        record = line.record
        task, rollout = line.key
        server = _text(record.get(ENVIRONMENT_SERVER))
        self.rollouts += 1
        self.repeats = max(self.repeats, rollout + 1)
        part = self.parts[_part_of(record)]
        part.rollouts += 1
        response = record.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        for name in _TOKENS:
            value = usage.get(name) if isinstance(usage, dict) else None
            if _is_number(value):
                self.tokens[name].append(float(value))
        output = response.get("output") if isinstance(response, dict) else None
        if isinstance(output, list):
            self.calls.append(sum(isinstance(item, dict) and item.get("type") == "function_call" for item in output))
        self._latency(record, response)
        # (rollout, reward) pairs in one array: the order of a task's repeats counts where rewards are not 0 or 1.
        rewards = self.tasks.setdefault((server, task), array("d"))
        reward = record.get("reward")
        if record.get(MASK_SAMPLE):
            self.masked += 1
        elif _is_number(reward):
            rewards.extend((rollout, float(reward)))
            part.rewards += 1
            part.total += reward

    def failure(self, record: Mapping[str, Any]) -> None:
        self.failed += 1
        self.parts[_part_of(record)].failed += 1
        self.failures[str(record.get(FAILURE_CLASS)), _text(record.get(FAILURE_STAGE)) or ""] += 1

    def _latency(self, record: Mapping[str, Any], response: Any) -> None:
        perf = record.get(PERF)
        metadata = response.get("metadata") if isinstance(response, dict) else None
        elapsed = record.get("elapsed_seconds", metadata.get("elapsed_seconds") if isinstance(metadata, dict) else None)
        milliseconds = perf.get("total_latency_ms") if isinstance(perf, dict) else None
        if _is_number(milliseconds):
            self.latency["ng_perf.total_latency_ms"].append(milliseconds / 1000)
        if _is_number(elapsed):
            self.latency["elapsed_seconds"].append(float(elapsed))


def gather(rollouts: Path, sample: Sample) -> tuple[Figures, tuple[SampledLine, ...]]:
    """The figures of a rollouts file and the files beside it, and which of its rollouts and failures are to be looked at.

    Raises RolloutFileError.
    """
    found = _Gathered()
    paths = OutputPaths(rollouts)
    for line in read_lines(rollouts):
        found.rollout(line)
        sample.offer(line, failed=False)
    for line in read_lines(paths.failures, missing=True):
        found.failure(line.record)
        if line.named:  # NeMo Gym writes some that name no row
            sample.offer(line, failed=True)
    for seconds in _journal(paths.journal):
        found.latency["the journal"].append(seconds)
    return _figures(rollouts, _run(paths.summary), found), sample.chosen()


def _figures(rollouts: Path, run: dict[str, Any] | None, found: _Gathered) -> Figures:
    rewards = [_in_order(pairs) for pairs in found.tasks.values()]
    scored = [values for values in rewards if values]
    flat = [value for values in scored for value in values]
    mean, bounds = _clustered(scored)
    source = next((name for name in ("the journal", "ng_perf.total_latency_ms", "elapsed_seconds") if found.latency.get(name)), None)
    return Figures(
        file=str(rollouts),
        run=run,
        rollouts=found.rollouts,
        scored=len(flat),
        masked=found.masked,
        failed=found.failed,
        tasks=len(found.tasks),
        repeats=found.repeats,
        mean_reward=mean,
        mean_reward_low=bounds and bounds[0],
        mean_reward_high=bounds and bounds[1],
        rewards=distribution(flat),
        task_means=distribution(stat.mean(values) for values in scored),
        pass_at_k=tuple(_pass(scored, k) for k in _wanted(max(map(len, scored), default=0))),
        binary=all(value in (0, 1) for value in flat),
        tokens={name: spread for name in _TOKENS if (spread := distribution(found.tokens.get(name, ()))) is not None},
        calls=distribution(found.calls),
        latency=distribution(found.latency[source]) if source is not None else None,
        latency_from=source,
        failures=tuple(
            Failures(failure_class=name, stage=stage or None, count=count)
            for (name, stage), count in sorted(found.failures.items(), key=lambda item: (-item[1], item[0]))
        ),
        parts=tuple(
            Part(
                environment_server=server or None,
                taskset_or_agent=name or None,
                rollouts=part.rollouts,
                failed=part.failed,
                mean_reward=part.total / part.rewards if part.rewards else None,
            )
            for (server, name), part in sorted(found.parts.items())
        ),
    )


def _in_order(pairs: array[float]) -> list[float]:
    return [reward for _, reward in sorted(zip(pairs[::2], pairs[1::2], strict=True))]


def _clustered(tasks: list[list[float]]) -> tuple[float | None, tuple[float, float] | None]:
    """Mean over all rollouts and its 95 % interval; rollouts of one task are alike, so tasks are what is drawn."""
    count = sum(map(len, tasks))
    if not count:
        return None, None
    centre = math.fsum(value for values in tasks for value in values) / count
    if len(tasks) < 2:
        return centre, None
    squares = math.fsum((math.fsum(values) - len(values) * centre) ** 2 for values in tasks)
    error = math.sqrt(squares * len(tasks) / (len(tasks) - 1)) / count
    return centre, stat.interval(centre, error, len(tasks))


def _wanted(largest: int) -> list[int]:
    doubled = [2**power for power in range(largest.bit_length()) if 2**power > _EVERY_K]
    return sorted({*range(1, min(largest, _EVERY_K) + 1), *doubled, *([largest] if largest else [])})


def _pass(tasks: Iterable[list[float]], k: int) -> PassAtK:
    values = [100 * estimate(rewards, k) for rewards in tasks if len(rewards) >= k]
    centre = stat.mean(values)
    bounds = stat.interval(centre, stat.sample_std(values) / math.sqrt(len(values)), len(values)) if len(values) > 1 else None
    clipped = (max(0.0, bounds[0]), bounds[1]) if bounds is not None else None
    return PassAtK(k=k, percent=centre, low=clipped and clipped[0], high=clipped and min(100.0, clipped[1]), tasks=len(values))


def _part_of(record: Mapping[str, Any]) -> tuple[str, str]:
    task = record.get(TASK_ID_KEY)
    taskset = task.get("taskset") if isinstance(task, dict) else None
    agent = record.get(AGENT_REF)
    name = taskset if isinstance(taskset, str) else agent.get("name") if isinstance(agent, dict) else None
    return _text(record.get(ENVIRONMENT_SERVER)) or "", _text(name) or ""


def _journal(path: Path) -> Iterable[float]:
    """Seconds of each attempt that became a rollout, as our driver's journal has them."""
    sent: dict[str, float] = {}
    for line in read_lines(path, missing=True):
        event, attempt, at = (line.record.get(name) for name in ("event", "attempt_id", "at"))
        if not isinstance(attempt, str) or not _is_number(at):
            continue
        if event == "sent":
            sent[attempt] = at
        elif event == "ended":
            began = sent.pop(attempt, None)
            if began is not None and line.record.get("outcome") == "completed":
                yield at - began


def _run(path: Path) -> dict[str, Any] | None:
    """What the summary beside the rollouts says of the run; None without one of ours."""
    try:
        summary = RunSummary.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return summary.model_dump(mode="json", include={"run_id", "counts", "elapsed_seconds", "rate", "error", "interrupted"})


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
