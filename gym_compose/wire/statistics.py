"""Statistics of one column as the field's aggregation has them: sample standard deviation, linear quantiles, 95 % t intervals.

Pure Python: servers aggregate, and a data frame library would be most of their memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

CONFIDENCE = 0.95
_NORMAL_975 = 1.959963984540054  # 97.5 % quantile of the normal distribution
_SERIES_LIMIT = 500  # degrees of freedom above which the expansion is exact to 1e-14


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of one value and more."""
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float]) -> float:
    """Standard deviation with n-1; NaN below two values."""
    if len(values) < 2:
        return math.nan
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def population_std(values: Sequence[float]) -> float:
    """Standard deviation with n."""
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of sorted values with linear interpolation between the two nearest."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(ordered: Sequence[float]) -> float:
    """Median of sorted values."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True)
class Summary:
    """One column's values in one group, missing ones left out. ``std`` is NaN below two values; the quartiles are linear."""

    count: int
    mean: float
    maximum: float
    minimum: float
    median: float
    std: float
    p25: float = math.nan
    p75: float = math.nan


def summarize(values: Sequence[float], *, quartiles: bool = False) -> Summary | None:
    """The summary of ``values`` in any order, NaN counting as missing; None when there is none."""
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return None
    summary = Summary(len(ordered), mean(ordered), ordered[-1], ordered[0], median(ordered), sample_std(ordered))
    if not quartiles:
        return summary
    return replace(summary, p25=quantile(ordered, 0.25), p75=quantile(ordered, 0.75))


def _two_sided(t: float, freedom: int) -> float:
    """P(|T| <= t) for Student's t with a whole number of degrees of freedom: the finite trigonometric series (Abramowitz and Stegun
    26.7.3 and 26.7.4). All terms are positive, so nothing cancels."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    square = cosine * cosine
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= square * (2 * k) / (2 * k + 1)
        return (2 / math.pi) * (angle + sine * total)
    term, total = 1.0, 0.0
    for k in range(1, freedom // 2 + 1):
        total += term
        term *= square * (2 * k - 1) / (2 * k)
    return sine * total


@lru_cache(maxsize=4096)
def t_quantile(freedom: int) -> float:
    """The factor of a two-sided 95 % interval: the 97.5 % quantile of Student's t. ``freedom`` is 1 and more."""
    if freedom > _SERIES_LIMIT:
        z, inverse = _NORMAL_975, 1.0 / freedom
        terms = (
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
            (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
        )
        return z + sum(term * inverse ** (power + 1) for power, term in enumerate(terms))
    low, high = 1.0, 16.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if _two_sided(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle


def interval(centre: float, error: float, count: int) -> tuple[float, float] | None:
    """95 % interval of a mean of ``count`` values with standard error ``error``; None for a single value, a point for error 0."""
    if count <= 1:
        return None
    if error == 0:
        return centre, centre
    width = t_quantile(count - 1) * error
    return centre - width, centre + width
