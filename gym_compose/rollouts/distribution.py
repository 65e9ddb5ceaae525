"""A column of numbers as a reader sees it: centre, spread, quantiles, a histogram."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from gym_compose.wire import statistics as stat

_BINS = 24
_DISTINCT = 12
"""Up to so many different values each has a bar of its own."""


class Bar(BaseModel):
    """``count`` values from ``low`` to below ``high`` (the last bar's included); one value where both are equal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float
    high: float
    count: int


class Distribution(BaseModel):
    """Of finite values; quantiles are linear, ``std`` is a sample's (None below two values)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int
    mean: float
    std: float | None
    minimum: float
    p25: float
    median: float
    p75: float
    p90: float
    p99: float
    maximum: float
    histogram: tuple[Bar, ...]


def distribution(values: Iterable[float]) -> Distribution | None:
    """None without a finite value."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return None
    std = stat.sample_std(ordered)
    p25, p75, p90, p99 = (stat.quantile(ordered, share) for share in (0.25, 0.75, 0.9, 0.99))
    return Distribution(
        count=len(ordered),
        mean=stat.mean(ordered),
        std=None if math.isnan(std) else std,
        minimum=ordered[0],
        p25=p25,
        median=stat.median(ordered),
        p75=p75,
        p90=p90,
        p99=p99,
        maximum=ordered[-1],
        histogram=_histogram(ordered),
    )


def _histogram(ordered: Sequence[float]) -> tuple[Bar, ...]:
    distinct = Counter(ordered)
    if len(distinct) <= _DISTINCT:
        return tuple(Bar(low=value, high=value, count=count) for value, count in sorted(distinct.items()))
    low, width = ordered[0], (ordered[-1] - ordered[0]) / _BINS
    counts = Counter(min(int((value - low) / width), _BINS - 1) for value in ordered)
    return tuple(Bar(low=low + place * width, high=low + (place + 1) * width, count=counts[place]) for place in range(_BINS))
