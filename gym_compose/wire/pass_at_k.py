"""pass@k, averages of k and majority votes over a benchmark's tasks (contract-data 4.4): what metric hooks of servers and reports call.

All values are percentages, in the order of the contract's keys.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from gym_compose.wire import statistics as stat

Record = Mapping[str, Any]
Scores = dict[str, float]
Score = Callable[[Record], Mapping[str, float | bool]]
NO_ANSWER = "no_answer"


def reward_as_accuracy(record: Record) -> Mapping[str, float | bool]:
    """The default score."""
    return {"accuracy": record["reward"]}


def estimate(values: Sequence[float], k: int) -> float:
    """pass@k of one task from at least ``k`` values: the chance that k of them, drawn without putting back, hold a right one, where all are
    0 or 1; else the best of the first k."""
    if any(value not in (0, 1) for value in values):
        return max(values[:k])
    wrong = sum(not value for value in values)
    return 1.0 - math.comb(wrong, k) / math.comb(len(values), k)


def pass_at_k(
    tasks: Sequence[Sequence[Record]],
    score: Score = reward_as_accuracy,
    *,
    answer_key: str | None = None,
    sample_std: bool = False,
) -> dict[str, Any]:
    """Metrics of ``tasks`` (each its rollouts) for each k up to the largest number of rollouts and each score: ``pass@k/<score>``,
    ``pass@1[avg-of-k]/<score>``, ``majority@k/<score>`` with ``answer_key``, ``per_sample_aggregate`` and the spread of
    ``pass@1[avg-of-k]`` across rollout indices; with ``sample_std`` the mean spread within a task too.
    """
    if not tasks:
        return {}
    scores = [[_scores(record, score, answer_key) for record in task] for task in tasks]
    answers = [[record.get(answer_key) for record in task] for task in tasks] if answer_key is not None else None
    names = sorted({name for task in scores for found in task for name in found})
    largest = max(map(len, tasks))
    metrics: dict[str, Any] = {}
    for k in range(1, largest + 1):
        for name in names:
            by_task = [[found[name] for found in task if name in found] for task in scores]
            _percent(metrics, f"pass@{k}/{name}", [estimate(values, k) for values in by_task if len(values) >= k])
            first = [[found[name] for found in task[:k] if name in found] for task in scores]
            _percent(metrics, f"pass@1[avg-of-{k}]/{name}", [sum(values) / len(values) for values in first if values])
            if answers is not None:
                votes = [_majority(given[:k], task[:k], name) for given, task in zip(answers, scores, strict=True)]
                _percent(metrics, f"majority@{k}/{name}", votes)
    runs = _runs(scores, names, largest)
    metrics["per_sample_aggregate"] = runs
    for k in range(2, largest + 1):
        for name in names:
            averages = runs.get(name, [])[:k]
            if len(averages) > 1:
                spread = stat.sample_std(averages)
                metrics[f"pass@1[avg-of-{k}]/{name}/std_dev_across_runs"] = spread
                metrics[f"pass@1[avg-of-{k}]/{name}/std_err_across_runs"] = spread / math.sqrt(len(averages))
    if sample_std:
        _add_sample_std(metrics, scores, names, largest)
    return metrics


def subset_pass_at_k(
    tasks: Sequence[Sequence[Record]], subset_key: str, score: Score = reward_as_accuracy, *, answer_key: str | None = None
) -> dict[str, Any]:
    """``<subset>/<metric>`` for each subset of tasks: a task's is the first truthy ``subset_key`` of its rollouts, and one without is in
    none."""
    subsets: dict[Hashable, list[Sequence[Record]]] = {}
    for task in tasks:
        subset = next((record[subset_key] for record in task if record.get(subset_key)), None)
        if subset is not None:
            subsets.setdefault(subset, []).append(task)
    return {
        f"{subset}/{name}": value
        for subset, members in subsets.items()
        for name, value in pass_at_k(members, score, answer_key=answer_key).items()
        if name != "per_sample_aggregate"
    }


def _scores(record: Record, score: Score, answer_key: str | None) -> Scores:
    found: Scores = {name: int(value) if isinstance(value, bool) else value for name, value in score(record).items()}
    if answer_key is not None:
        found[NO_ANSWER] = int(record.get(answer_key) is None)
    return found


def _percent(metrics: dict[str, Any], name: str, values: Sequence[float]) -> None:
    if values:
        metrics[name] = 100.0 * sum(values) / len(values)


def _majority(answers: Sequence[Any], scores: Sequence[Scores], name: str) -> float:
    """The mean score of the most common pairs of answer and score; 0 where nobody answered."""
    votes = Counter((answer, found[name]) for answer, found in zip(answers, scores, strict=True) if answer is not None and name in found)
    if not votes:
        return 0.0
    most = max(votes.values())
    tied = [value for (_, value), count in votes.items() if count == most]
    return sum(tied) / len(tied)


def _runs(scores: Sequence[Sequence[Scores]], names: Sequence[str], largest: int) -> dict[str, list[float]]:
    """For each score, its mean over the first rollouts of all tasks, over the second ones, and so on."""
    runs: dict[str, list[float]] = {}
    for place in range(largest):
        for name in names:
            values = [task[place][name] for task in scores if place < len(task) and name in task[place]]
            if values:
                runs.setdefault(name, []).append(100.0 * sum(values) / len(values))
    return {name: runs[name] for name in names if name in runs}


def _add_sample_std(metrics: dict[str, Any], scores: Sequence[Sequence[Scores]], names: Sequence[str], largest: int) -> None:
    for k in range(2, largest + 1):
        for name in names:
            first = [[found[name] for found in task[:k] if name in found] for task in scores]
            spreads = [stat.sample_std(values) for values in first if len(values) > 1]
            if spreads:
                metrics[f"pass@1[avg-of-{k}]/{name}/avg_sample_std_dev"] = sum(spreads) / len(spreads)
