"""pass@k and its relatives: the contract's check values, ties, holes, subsets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.wire.pass_at_k import estimate, pass_at_k, subset_pass_at_k

REWARDS = ((1, 0, 0), (0, 1, 1))
ANSWERS = (("a", "b", None), ("c", "d", "d"))


def tasks(**extra: Any) -> list[list[dict[str, Any]]]:
    return [
        [{"reward": reward, "answer": answer, **extra} for reward, answer in zip(rewards, answers, strict=True)]
        for rewards, answers in zip(REWARDS, ANSWERS, strict=True)
    ]


def test_the_contracts_check_values() -> None:
    metrics = pass_at_k(tasks(), answer_key="answer")
    assert metrics["pass@1/accuracy"] == 50
    assert metrics["pass@2/accuracy"] == pytest.approx(83.33333333333333)
    assert metrics["pass@3/accuracy"] == 100
    assert metrics["majority@2/accuracy"] == 50
    assert metrics["majority@3/accuracy"] == 75
    assert metrics["pass@1/no_answer"] == pytest.approx(100 / 6)
    assert metrics["per_sample_aggregate"]["accuracy"] == [50, 50, 50]
    assert metrics["pass@1[avg-of-3]/accuracy/std_dev_across_runs"] == 0


def test_keys_come_in_the_contracts_order() -> None:
    assert list(pass_at_k([[{"reward": 1}, {"reward": 0}]], sample_std=True)) == [
        "pass@1/accuracy",
        "pass@1[avg-of-1]/accuracy",
        "pass@2/accuracy",
        "pass@1[avg-of-2]/accuracy",
        "per_sample_aggregate",
        "pass@1[avg-of-2]/accuracy/std_dev_across_runs",
        "pass@1[avg-of-2]/accuracy/std_err_across_runs",
        "pass@1[avg-of-2]/accuracy/avg_sample_std_dev",
    ]


def test_continuous_scores_take_the_best_of_the_first_k() -> None:
    metrics = pass_at_k([[{"reward": 0.2}, {"reward": 0.9}, {"reward": 0.5}]])
    assert [metrics[f"pass@{k}/accuracy"] for k in (1, 2, 3)] == [20, 90, 90]


def test_tasks_with_fewer_rollouts_leave_the_larger_k() -> None:
    metrics = pass_at_k([[{"reward": True}], [{"reward": False}, {"reward": False}]])
    assert metrics["pass@1/accuracy"] == 50
    assert metrics["pass@2/accuracy"] == 0


def test_without_an_answer_a_vote_counts_zero() -> None:
    assert pass_at_k([[{"reward": 1, "answer": None}]], answer_key="answer")["majority@1/accuracy"] == 0


def test_subsets() -> None:
    both: list[list[dict[str, Any]]] = [*tasks(level="easy"), [{"reward": 0}, {"reward": 0, "level": "hard"}], [{"reward": 1}]]
    metrics = subset_pass_at_k(both, "level")
    assert metrics["easy/pass@1/accuracy"] == 50
    assert metrics["hard/pass@2/accuracy"] == 0
    assert {name.split("/")[0] for name in metrics} == {"easy", "hard"}


def test_no_tasks_give_nothing() -> None:
    assert pass_at_k([]) == {}


@given(st.lists(st.integers(0, 1), min_size=1, max_size=7), st.data())
def test_the_estimate_is_the_share_of_draws_with_a_right_one(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    draws = list(itertools.combinations(values, k))
    assert estimate(values, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))
