"""The figures of a report: counted by hand on small runs."""

from __future__ import annotations

import math
import statistics
from typing import Any

import orjson
import pytest

from gym_compose.rollouts.distribution import distribution
from gym_compose.rollouts.figures import gather
from gym_compose.rollouts.sample import Sample
from tests.unit.rollouts.conftest import WriteRun, record


def test_rewards_and_pass_at_k(write_run: WriteRun) -> None:
    rewards = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 1.0, (1, 1): 1.0, (2, 0): 0.0, (2, 1): 0.0}
    figures, _ = gather(write_run([record(*key, reward) for key, reward in rewards.items()]), Sample())
    assert figures.mean_reward == 0.5
    assert (figures.rollouts, figures.tasks, figures.repeats, figures.scored) == (6, 3, 2, 6)
    assert [(point.k, point.percent, point.tasks) for point in figures.pass_at_k] == [(1, 50, 3), (2, pytest.approx(200 / 3), 3)]
    assert figures.binary
    # Tasks of equal size: the interval is that of a mean of three task means, 0.5 +- t(2) * 0.5 / sqrt(3).
    width = 4.302652729911275 * statistics.stdev([0.5, 1.0, 0.0]) / math.sqrt(3)
    assert figures.mean_reward_high == pytest.approx(0.5 + width)
    assert figures.mean_reward_low == pytest.approx(0.5 - width)
    assert all(0 <= (point.low or 0) <= point.percent <= (point.high or 100) <= 100 for point in figures.pass_at_k)


def test_masked_and_unscored_rollouts_count_in_no_mean(write_run: WriteRun) -> None:
    figures, _ = gather(write_run([record(0, 0, 1.0), record(0, 1, 0.0, mask_sample=True), record(0, 2)]), Sample())
    assert (figures.rollouts, figures.scored, figures.masked, figures.mean_reward) == (3, 1, 1, 1.0)
    assert figures.mean_reward_low is None


def test_the_best_of_the_first_k_where_rewards_are_not_binary(write_run: WriteRun) -> None:
    figures, _ = gather(write_run([record(0, 2, 0.9), record(0, 0, 0.2), record(0, 1, 0.5)]), Sample())
    assert not figures.binary
    assert [point.percent for point in figures.pass_at_k] == [20, 50, 90]


def test_lengths_calls_and_latency(write_run: WriteRun) -> None:
    response = {"usage": {"input_tokens": 7, "output_tokens": 3}, "output": [{"type": "function_call"}, {"type": "message"}]}
    journal = [
        {"event": "run"},
        {"event": "sent", "attempt_id": "a", "at": 10.0},
        {"event": "sent", "attempt_id": "b", "at": 10.0},
        {"event": "ended", "attempt_id": "b", "outcome": "failed", "at": 11.0},
        {"event": "ended", "attempt_id": "a", "outcome": "completed", "at": 12.5},
    ]
    figures, _ = gather(write_run([record(0, 0, 1.0, response=response, elapsed_seconds=99)], journal=journal), Sample())
    assert figures.tokens["input_tokens"].mean == 7
    assert figures.calls is not None
    assert figures.calls.mean == 1
    assert figures.latency is not None
    assert (figures.latency.mean, figures.latency_from) == (2.5, "the journal")


def test_latency_of_a_peers_run_is_what_its_records_say(write_run: WriteRun) -> None:
    figures, _ = gather(write_run([record(0, 0, 1.0, ng_perf={"total_latency_ms": 1500})]), Sample())
    assert figures.latency is not None
    assert (figures.latency.mean, figures.latency_from) == (1.5, "ng_perf.total_latency_ms")


def test_failures_by_class_and_stage(write_run: WriteRun) -> None:
    failures: list[dict[str, Any]] = [
        {**record(1, 0), "_ng_failure_class": "x", "_ng_failure_stage": "seed"},
        {**record(2, 0), "_ng_failure_class": "y"},
        {**record(3, 0), "_ng_failure_class": "y"},
    ]
    figures, chosen = gather(write_run([record(0, 0, 1.0)], failures=failures), Sample())
    assert [(item.failure_class, item.stage, item.count) for item in figures.failures] == [("y", None, 2), ("x", "seed", 1)]
    assert [(line.task, line.failed) for line in chosen] == [(1, True), (2, True), (3, True), (0, False)]
    assert [(part.environment_server, part.taskset_or_agent, part.rollouts, part.failed) for part in figures.parts] == [("e", "a", 1, 3)]


def test_the_summary_of_a_run_is_told(write_run: WriteRun) -> None:
    path = write_run([record(0, 0, 1.0)])
    counts = {"requested": 2, "completed": 1, "failed": 0, "unresolved": 1}
    path.with_name("run_summary.json").write_bytes(orjson.dumps({"run_id": "r", "counts": counts, "elapsed_seconds": 1.0, "rate": 2.0}))
    figures, _ = gather(path, Sample())
    assert figures.run is not None
    assert figures.run["counts"] == counts


def test_nothing_gives_no_means(write_run: WriteRun) -> None:
    figures, chosen = gather(write_run([]), Sample())
    assert (figures.rollouts, figures.mean_reward, figures.rewards, figures.pass_at_k, chosen) == (0, None, None, (), ())


def test_the_sample_does_not_depend_on_the_order_of_lines(write_run: WriteRun) -> None:
    records = [record(task, 0, 1.0) for task in range(500)]
    _, one = gather(write_run(records, name="one"), Sample(rollouts=20))
    _, two = gather(write_run(records[::-1], name="two"), Sample(rollouts=20))
    assert [line.task for line in one] == [line.task for line in two]
    assert len(one) == 20


def test_a_histogram_counts_every_value() -> None:
    many = distribution([float(value) for value in range(1000)])
    few = distribution([1.0, 2.0, 2.0, math.inf, math.nan])
    assert many is not None
    assert few is not None
    assert sum(bar.count for bar in many.histogram) == 1000
    assert [(bar.low, bar.count) for bar in few.histogram] == [(1.0, 1), (2.0, 2)]
    assert distribution([math.nan]) is None


def test_numbers_that_have_no_sum_count_as_none(write_run: WriteRun) -> None:
    huge = {"usage": {"input_tokens": 1e308}}
    figures, _ = gather(write_run([record(0, 0, 1e308, response=huge), record(0, 1, 1e308, response=huge), record(1, 0, 0.5)]), Sample())
    assert (figures.rollouts, figures.scored, figures.mean_reward, figures.tokens) == (3, 1, 0.5, {})


def test_failures_that_name_no_rollout_are_counted(write_run: WriteRun) -> None:
    figures, chosen = gather(write_run([record(0, 0, 1.0)], failures=[{"_ng_failure_class": "x"}]), Sample())
    assert figures.failed == 1
    assert [line.failed for line in chosen] == [False]


@pytest.mark.parametrize("summary", [b"", b"[]", b'{"counts": {"requested": "x"}, "elapsed_seconds": "soon"}'])
def test_a_summary_that_is_none_of_ours_says_nothing(write_run: WriteRun, summary: bytes) -> None:
    rollouts = write_run([record(0, 0, 1.0)])
    rollouts.with_name("run_summary.json").write_bytes(summary)
    assert gather(rollouts, Sample())[0].run is None
