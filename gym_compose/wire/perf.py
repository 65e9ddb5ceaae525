"""``perf_summary``: tokens, turns and latency over the rollouts that reported them (contract-data 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_compose.wire import statistics as stat

_TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")


def perf_summary(records: Sequence[Mapping[str, Any]], rollouts: int) -> dict[str, Any] | None:
    """Summary of the ``ng_perf`` of some of ``rollouts`` rollouts; None when none has it. A field nobody reports has no statistics."""
    if not records or rollouts <= 0:
        return None

    def ordered(name: str) -> list[float]:
        return sorted(record[name] for record in records if isinstance(record.get(name), int | float))

    with_tokens = sum(1 for value in ordered("token_observability_coverage") if value > 0)
    summary: dict[str, Any] = {
        "overall_observability_coverage": len(records) / rollouts,
        "token_observability_coverage": with_tokens / rollouts,
    }
    for name in _TOKENS:
        values = ordered(name)
        if values:
            summary.update({f"mean_{name}": stat.mean(values), f"median_{name}": stat.median(values), f"total_{name}": sum(values)})
    turns = ordered("num_turns")
    if turns:
        summary.update(
            mean_num_turns=stat.mean(turns),
            median_num_turns=stat.median(turns),
            std_num_turns=stat.population_std(turns),
            min_num_turns=turns[0],
            p90_num_turns=stat.quantile(turns, 0.9),
            max_num_turns=turns[-1],
        )
    ratios = sorted(
        record["completion_tokens"] / record["num_turns"]
        for record in records
        if isinstance(record.get("completion_tokens"), int | float)
        and isinstance(record.get("num_turns"), int | float)
        and record["num_turns"] > 0
    )
    if ratios:
        summary.update(mean_tokens_per_turn=stat.mean(ratios), median_tokens_per_turn=stat.median(ratios))
    latency = ordered("total_latency_ms")
    if latency:
        for share in (50, 90, 99):
            summary[f"total_latency_p{share}_ms"] = stat.quantile(latency, share / 100)
        summary["total_latency_mean_ms"] = stat.mean(latency)
    return summary
