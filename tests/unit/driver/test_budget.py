"""How many rows are held, how long they are started (contract-data 1.8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.driver.budget import DispatchBudget, Window, check_budget
from gym_compose.driver.latency import Latencies
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.run import RunRequest


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("parallel", "resident", "expected"),
    [(None, None, Window(None, None)), (2, None, Window(2, 8)), (None, 3, Window(3, 3)), (5, 2, Window(2, 2)), (2, 5, Window(2, 5))],
)
def test_the_lower_bound_wins_and_four_times_as_many_rows_are_held(parallel: int | None, resident: int | None, expected: Window) -> None:
    assert Window.of(parallel, resident) == expected


def budget(seconds: float | None, margin: float | None = None, took: tuple[float, ...] = ()) -> tuple[DispatchBudget, Clock]:
    clock, latencies = Clock(), Latencies()
    for one in took:
        latencies.add(one)
    made = DispatchBudget(seconds, margin, latencies, clock)
    made.begin()
    return made, clock


def test_without_a_budget_rows_are_always_started() -> None:
    made, clock = budget(None, 5.0)
    clock.now += 1e9
    assert made.allows()
    assert not made.spent


def test_a_budget_of_nothing_starts_nothing() -> None:
    made, _ = budget(0.0)
    assert not made.allows()
    assert made.spent


def test_rows_are_started_until_the_margin_is_reached_and_none_after_that() -> None:
    made, clock = budget(10.0, 3.0)
    clock.now += 7.0
    assert made.allows(), "exactly the margin is left"
    clock.now += 0.01
    assert not made.allows()
    clock.now -= 5.0
    assert not made.allows(), "spent is spent"


def test_four_completions_say_nothing_five_make_a_margin_of_what_three_quarters_took() -> None:
    made, clock = budget(10.0, None, (1.0, 1.0, 4.0, 4.0))
    clock.now += 9.5
    assert made.allows()
    made, clock = budget(10.0, None, (1.0, 2.0, 3.0, 4.0, 9.0))
    assert made.margin == pytest.approx(4.0, rel=0.011)
    clock.now += 5.9
    assert made.allows()
    clock.now += 0.2
    assert not made.allows()


def test_a_budget_needs_a_bound_on_what_is_in_flight() -> None:
    fields = {"run_id": "r", "head_url": "u", "input_jsonl_fpath": "i", "output_jsonl_fpath": "o", "dispatch_budget_s": 1}
    with pytest.raises(InvalidInputError, match="--concurrency"):
        check_budget(RunRequest.model_validate(fields))
    check_budget(RunRequest.model_validate({**fields, "num_samples_in_parallel": 1}))


@given(st.lists(st.floats(1e-3, 1e5), min_size=1, max_size=60), st.floats(0.0, 1.0))
def test_quantiles_are_right_to_one_percent(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    for one in seconds:
        latencies.add(one)
    ordered = sorted(seconds)
    exact = next(value for number, value in enumerate(ordered, 1) if number >= share * len(ordered))
    found = latencies.quantile(share)
    assert found is not None
    assert found == pytest.approx(exact, rel=0.0102)
    summary = latencies.summary()
    assert summary is not None
    assert summary.longest == pytest.approx(max(seconds), abs=1e-4)


def test_before_the_first_rollout_there_are_no_latencies() -> None:
    assert Latencies().quantile(0.5) is None
    assert Latencies().summary() is None
