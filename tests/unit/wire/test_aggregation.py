"""Aggregation beyond the golden cases: the contract's check values, hooks, faults, statistics."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.wire import statistics as own
from gym_compose.wire.aggregation import AggregateHooks, aggregate_metrics, empty_metrics, is_primary
from gym_compose.wire.perf import perf_columns, perf_summary


def records(rewards: dict[tuple[int, int], float], **extra: Any) -> list[dict[str, Any]]:
    return [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, **extra} for (task, rollout), reward in rewards.items()
    ]


CHECK = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 1.0, (1, 1): 1.0, (2, 0): 0.0}


def test_the_contracts_check_values() -> None:
    metrics = aggregate_metrics(records(CHECK))
    agent = metrics["agent_metrics"]
    assert agent["mean/reward"] == pytest.approx(0.6, abs=1e-12)
    assert agent["std/reward"] == pytest.approx(0.5477225575051662, abs=1e-12)
    assert agent["num_repeats"] == 2
    assert agent["mean_across_repeats/mean/reward"] == pytest.approx(0.5833333333333333, abs=1e-12)
    assert agent["se_across_repeats/mean/reward"] == pytest.approx(0.0833333333333333, abs=1e-12)
    assert [entry["missing_count"] for entry in metrics["repeat_level_metrics"]] == [0, 1]


def test_nothing_gives_nothing() -> None:
    assert aggregate_metrics([]) == empty_metrics()


@pytest.mark.parametrize(
    "rows",
    [
        [{"reward": 1.0}, {"reward": 0.0}],
        [*records({(0, 0): 1.0}), *records({(0, 0): 0.0})],
        [*records({(0, 0): 1.0}), *records({(0, 0): 0.0}, mask_sample=True)],
    ],
)
def test_one_rollout_twice_is_an_error(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="_ng_task_index"):
        aggregate_metrics(rows)


def test_masked_records_leave_the_means_and_are_counted() -> None:
    metrics = aggregate_metrics([*records({(0, 0): 1.0}), *records({(0, 1): 0.0, (1, 0): 0.0}, mask_sample=True)])
    assert metrics["agent_metrics"]["mean/reward"] == 1.0
    assert metrics["key_metrics"]["coverage/masked_rollouts"] == 2
    assert metrics["key_metrics"]["coverage/fully_masked_tasks"] == 1
    assert metrics["agent_metrics"]["num_repeats"] == 2
    assert [group["_ng_task_index"] for group in metrics["group_level_metrics"]] == [0]


def test_of_one_masked_and_one_scored_record_the_coverage_says_so() -> None:
    """Edge case 36."""
    metrics = aggregate_metrics([*records({(0, 0): 1.0}), *records({(1, 0): 0.0}, mask_sample=True)])
    coverage = {
        "coverage/measured_rollouts": 1,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 1,
        "coverage/fully_masked_tasks": 1,
    }
    for level in ("agent_metrics", "key_metrics"):
        assert {key: value for key, value in metrics[level].items() if key.startswith("coverage/")} == coverage
        assert metrics[level]["mean/reward"] == 1.0
    assert [group["_ng_task_index"] for group in metrics["group_level_metrics"]] == [0]


def test_only_numbers_on_top_and_in_usage_are_columns() -> None:
    row = {
        "reward": 1,
        "_hidden": 5,
        "text": "x",
        "list": [1],
        "nested": {"a": 1},
        "flag": True,
        "response": {"usage": {"t": 3, "d": {"x": 1}}},
    }
    agent = aggregate_metrics([row])["agent_metrics"]
    assert {name for name in agent if name.startswith("mean/")} == {"mean/reward", "mean/flag", "mean/t"}
    assert agent["mean/flag"] == 1.0


def test_not_a_number_counts_as_missing() -> None:
    agent = aggregate_metrics(records({(0, 0): math.nan, (1, 0): 1.0}))["agent_metrics"]
    assert agent["mean/reward"] == 1.0


def test_hooks() -> None:
    def metrics(tasks: list[Any]) -> dict[str, Any]:
        return {
            "pass": float(len(tasks)),
            "per_task_metrics": [{"_ng_task_index": 1, "note": "x"}],
        }

    hooks = AggregateHooks(
        metrics=metrics,
        key_metrics=lambda agent: {"pass": agent["pass"]},
        repeat_metrics=lambda tasks: {"pass": float(len(tasks)), "mean/reward": 7.0, "broken": math.inf},
    )
    done = aggregate_metrics(records(CHECK), hooks)
    assert done["key_metrics"] == {"pass": 3.0}
    assert [group.get("note") for group in done["group_level_metrics"]] == [None, "x", None]
    assert [entry["pass"] for entry in done["repeat_level_metrics"]] == [3.0, 2.0]
    assert [entry["mean/reward"] for entry in done["repeat_level_metrics"]] == [7.0, 7.0]
    assert all("broken" not in entry for entry in done["repeat_level_metrics"])
    assert done["agent_metrics"]["mean_across_repeats/mean/reward"] == 7.0
    assert done["agent_metrics"]["mean_across_repeats/pass"] == 2.5
    assert done["agent_metrics"]["mean/reward"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("name", "primary"),
    [
        ("mean/reward", True),
        ("pass@2/accuracy", True),
        ("max/reward", False),
        ("ci_low_95/reward", False),
        ("mean/reward/p95", False),
        ("pass@1[avg-of-4]/accuracy/std_dev_across_runs", False),
        ("num_repeats", False),
        ("_ng_task_index", False),
        ("mean_across_repeats/mean/reward", False),
        ("mean/x_ci_lower", False),
    ],
)
def test_which_metrics_are_point_estimates(name: str, primary: bool) -> None:
    assert is_primary(name) is primary


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_statistics_agree_with_the_standard_library(values: list[float]) -> None:
    ordered = sorted(values)
    assert own.mean(values) == pytest.approx(statistics.fmean(values), rel=1e-12, abs=1e-9)
    assert own.median(ordered) == pytest.approx(statistics.median(values))
    assert own.sample_std(values) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-6)
    assert own.population_std(values) == pytest.approx(statistics.pstdev(values), rel=1e-9, abs=1e-6)
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    assert [own.quantile(ordered, share) for share in (0.25, 0.5, 0.75)] == pytest.approx(quartiles, rel=1e-9, abs=1e-6)


def test_one_value() -> None:
    assert math.isnan(own.sample_std([1.0]))
    assert own.quantile([3.0], 0.99) == 3.0
    assert own.interval(1.0, 0.5, 1) is None
    assert own.interval(1.0, 0.0, 5) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    # Solved with mpmath at 30 digits from the incomplete beta function; 1 and 2 degrees of freedom have closed forms.
    [
        (1, math.tan(0.475 * math.pi)),
        (2, 0.95 * math.sqrt(2 / (1 - 0.95**2))),
        (3, 3.18244630528370959),
        (4, 2.77644510519779435),
        (5, 2.57058183563631551),
        (10, 2.22813885198627474),
        (30, 2.04227245630123831),
        (100, 1.98397151852355229),
        (499, 1.96472939098768907),
        (501, 1.96471032217548319),
        (1000, 1.96233908082640849),
        (100_000, 1.95998770753460964),
    ],
)
def test_t_quantiles(freedom: int, expected: float) -> None:
    assert own.t_quantile(freedom) == pytest.approx(expected, rel=1e-13)


def test_the_two_ways_to_the_t_quantile_meet() -> None:
    for freedom in (501, 800):
        series = own.t_quantile(freedom)
        assert own._two_sided(series, freedom) == pytest.approx(0.95, abs=1e-13)
    assert own.t_quantile(10**9) == pytest.approx(1.959963984540054, rel=1e-8)


def test_perf_of_no_rollout_is_absent() -> None:
    assert perf_summary(perf_columns([]), 5) is None
    assert perf_summary(perf_columns([{"num_turns": 1}]), 0) is None


def test_perf_fields_that_nobody_reports_are_absent() -> None:
    columns = perf_columns([{"num_turns": 2, "completion_tokens": 10, "token_observability_coverage": 0.5}, {"num_turns": 0}])
    summary = perf_summary(columns, 4)
    assert summary is not None
    assert summary["overall_observability_coverage"] == 0.5
    assert summary["token_observability_coverage"] == 0.25
    assert summary["mean_tokens_per_turn"] == 5.0
    assert "mean_prompt_tokens" not in summary
    assert "total_latency_p50_ms" not in summary
