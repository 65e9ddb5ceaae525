"""``perf_summary``: tokens, turns and latency over the rollouts that reported them (contract-data 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gym_compose.wire import statistics as stat

COVERAGE: Final = "token_observability_coverage"
TOKENS: Final = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")
TURNS: Final = "num_turns"
LATENCY: Final = "total_latency_ms"
TOKENS_PER_TURN: Final = "tokens_per_turn"
"""Not reported: completion tokens over turns of a rollout with both."""
PERF_NAMES: Final = (*TOKENS, TURNS, LATENCY, TOKENS_PER_TURN)


@dataclass(frozen=True)
class Spread:
    """One field over the rollouts that reported it. ``total`` keeps ints ints; ``std`` is that of a population."""

    mean: float
    median: float
    total: float
    std: float
    minimum: float
    maximum: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class PerfColumns:
    """What ``perf_summary`` is made of. ``reported``: rollouts with ``ng_perf``; ``with_tokens``: those whose token coverage is over 0."""

    reported: int = 0
    with_tokens: int = 0
    spreads: Mapping[str, Spread] = field(default_factory=dict)


def perf_values(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one ``ng_perf`` that are summed up, tokens per turn among them."""
    values = {name: record[name] for name in PERF_NAMES[:-1] if isinstance(record.get(name), int | float)}
    if TOKENS[2] in values and values.get(TURNS, 0) > 0:
        values[TOKENS_PER_TURN] = values[TOKENS[2]] / values[TURNS]
    return values


def has_tokens(record: Mapping[str, Any]) -> bool:
    """Whether one ``ng_perf`` says that some of its calls had token counts."""
    coverage = record.get(COVERAGE)
    return isinstance(coverage, int | float) and coverage > 0


def perf_columns(records: Sequence[Mapping[str, Any]]) -> PerfColumns:
    """The columns of the ``ng_perf`` of some rollouts."""
    columns: dict[str, list[float]] = {}
    for record in records:
        for name, value in perf_values(record).items():
            columns.setdefault(name, []).append(value)
    spreads = {name: _spread(sorted(values)) for name, values in columns.items()}
    return PerfColumns(len(records), sum(map(has_tokens, records)), spreads)


def _spread(ordered: Sequence[float]) -> Spread:
    return Spread(
        mean=stat.mean(ordered),
        median=stat.median(ordered),
        total=sum(ordered),
        std=stat.population_std(ordered),
        minimum=ordered[0],
        maximum=ordered[-1],
        p50=stat.quantile(ordered, 0.5),
        p90=stat.quantile(ordered, 0.9),
        p99=stat.quantile(ordered, 0.99),
    )


def perf_summary(columns: PerfColumns, rollouts: int) -> dict[str, Any] | None:
    """Summary over ``rollouts`` rollouts; None when none reported anything. A field nobody reports has no statistics."""
    if not columns.reported or rollouts <= 0:
        return None
    summary: dict[str, Any] = {
        "overall_observability_coverage": columns.reported / rollouts,
        COVERAGE: columns.with_tokens / rollouts,
    }
    found = columns.spreads
    for name in TOKENS:
        if name in found:
            tokens = found[name]
            summary.update({f"mean_{name}": tokens.mean, f"median_{name}": tokens.median, f"total_{name}": tokens.total})
    if TURNS in found:
        turns = found[TURNS]
        summary.update(
            mean_num_turns=turns.mean,
            median_num_turns=turns.median,
            std_num_turns=turns.std,
            min_num_turns=turns.minimum,
            p90_num_turns=turns.p90,
            max_num_turns=turns.maximum,
        )
    if TOKENS_PER_TURN in found:
        ratio = found[TOKENS_PER_TURN]
        summary.update(mean_tokens_per_turn=ratio.mean, median_tokens_per_turn=ratio.median)
    if LATENCY in found:
        latency = found[LATENCY]
        summary.update(
            total_latency_p50_ms=latency.p50,
            total_latency_p90_ms=latency.p90,
            total_latency_p99_ms=latency.p99,
            total_latency_mean_ms=latency.mean,
        )
    return summary
