"""Statistics of dataset metrics: the figures, the weights, what is sent between processes."""

from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.tasks.running_statistics import CategoryCounts, NumberStatistics, restored, rounded

NUMBERS = st.lists(st.floats(-1e6, 1e6) | st.integers(-1000, 1000), min_size=1, max_size=30)


def of(values: list[float], times: int = 1) -> NumberStatistics:
    made = NumberStatistics()
    for value in values:
        made.observe(value, times)
    return made


@given(NUMBERS, st.integers(1, 4))
def test_figures_are_those_of_the_repeated_numbers(values: list[float], times: int) -> None:
    found = of(values, times)
    repeated = [float(value) for value in values for _ in range(times)]
    assert (found.count, found.least, found.most) == (len(repeated), min(repeated), max(repeated))
    assert found.mean == pytest.approx(statistics.fmean(repeated), abs=1e-6)
    if len(repeated) > 1:
        assert (found.squares / (found.count - 1)) ** 0.5 == pytest.approx(statistics.stdev(repeated), rel=1e-6, abs=1e-5)


@given(NUMBERS, NUMBERS)
def test_two_halves_make_the_whole_also_after_a_journey_between_processes(left: list[float], right: list[float]) -> None:
    found = restored(json.loads(json.dumps(of(left).state())))
    found.add(of(right))
    assert isinstance(found, NumberStatistics)
    assert found.count == len(left) + len(right)
    assert found.mean == pytest.approx(of([*left, *right]).mean, abs=1e-6)
    assert found.squares == pytest.approx(of([*left, *right]).squares, rel=1e-6, abs=1e-4)


def test_of_nothing_and_of_one() -> None:
    assert set(NumberStatistics().summary().values()) == {0}
    assert of([3]).summary() == {"Total # non-null values": 1, "Average": 3.0, "Min": 3.0, "Max": 3.0, "Standard deviation": 0.0}


@pytest.mark.parametrize(("value", "expected"), [(1.2345, 1.23), (-1.2345, -1.23), (0.12345, 0.123), (-0.9999, -1.0), (1.0, 1.0)])
def test_rounding(value: float, expected: float) -> None:
    assert rounded(value) == expected


def test_a_category_counts_a_hundred_labels_apart() -> None:
    found = CategoryCounts()
    for number in range(103):
        found.observe(f"l{number:03}", 2)
    found.observe("l000")
    summary = found.summary()
    assert (summary["unique_count"], summary["total_count"]) == (101, 207)
    assert (summary["counts"]["l000"], summary["counts"]["Other"]) == (3, 6)


def test_a_label_that_is_called_other_keeps_its_name() -> None:
    found = CategoryCounts()
    for label in ("Other", *map(str, range(100))):
        found.observe(label)
    assert (found.summary()["counts"]["Other"], found.summary()["counts"]["Other (overflow)"]) == (1, 1)


def test_categories_add_up() -> None:
    one, two = CategoryCounts(), CategoryCounts()
    one.observe("a")
    two.observe("a", 2)
    for number in range(101):
        two.observe(str(number))
    one.add(restored(two.state()))
    assert (one.total, sum(one.summary()["counts"].values()), one.counts["a"]) == (104, 104, 3)


def test_numbers_and_labels_do_not_add_up() -> None:
    for one, two in ((NumberStatistics(), CategoryCounts()), (CategoryCounts(), NumberStatistics())):
        with pytest.raises(TypeError):
            one.add(two)
