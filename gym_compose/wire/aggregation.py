"""Records of rollouts to metrics: ``/aggregate_metrics`` of every server, and the driver's (contract-data 4.3).

Equal to the field's to 1e-9, key order included (tests/contract/test_golden_aggregate.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gym_compose.wire import statistics as stat
from gym_compose.wire.perf import perf_summary
from gym_compose.wire.run_body import ATTEMPT_INDEX, ROLLOUT_INDEX, TASK_INDEX
from gym_compose.wire.statistics import Summary, summarize
from gym_compose.wire.table import Counts, Group, MemoryTable, Record, Repeat, Table, Tasks, key_of

# A per-repeat metric is summed up over repeats when it is a point estimate, not a spread or a bound of one.
_NOT_PRIMARY_PREFIXES = ("max/", "min/", "median/", "std/", "sem/", "se/", "p25/", "p75/", "ci_low_95/", "ci_high_95/", "histogram/")
_NOT_PRIMARY_SUFFIXES = (
    "/max",
    "/min",
    "/median",
    "/p5",
    "/p25",
    "/p75",
    "/p95",
    "/ci_low_95",
    "/ci_high_95",
    "/ci_lower",
    "/ci_upper",
    "_ci_lower",
    "_ci_upper",
    "_ci95_lower",
    "_ci95_upper",
    f"/{ATTEMPT_INDEX}",
    "/std_dev_across_runs",
    "/std_err_across_runs",
    "/avg_sample_std_dev",
)
_NOT_PRIMARY_NAMES = frozenset(
    {TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, "sample_count", "missing_count", "num_repeats", "token_usage_version"}
)
_ACROSS = "_across_repeats/"


@dataclass(frozen=True)
class AggregateHooks:
    """Metrics of one benchmark. ``metrics`` gets the scored records by task and is merged into the agent metrics (its
    ``per_task_metrics`` list into the groups, by task index); ``key_metrics`` picks the headline ones; ``repeat_metrics`` gets one repeat's
    records by task, and its finite values replace the generic ones of that name."""

    metrics: Callable[[Tasks], dict[str, Any]] | None = None
    key_metrics: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    repeat_metrics: Callable[[Tasks], dict[str, Any]] | None = None


def empty_metrics() -> dict[str, Any]:
    """What no records give."""
    return {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}, "perf_summary": None, "repeat_level_metrics": []}


def aggregate_metrics(records: Sequence[Record], hooks: AggregateHooks = AggregateHooks()) -> dict[str, Any]:
    """Metrics per task, overall and per repeat of one server's records, which are in memory.

    Records with a truthy ``mask_sample`` stay out of every mean and are counted as coverage. Raises ValueError when two records have the
    same task and rollout index (missing ones count as 0). ``wire.bounded`` does the same for any number of records.
    """
    if not records:
        return empty_metrics()
    table = MemoryTable(records)
    result = table_metrics(table)
    result["group_level_metrics"] = groups = [group_entry(group) for group in table.groups()]
    if table.scored:
        _apply(hooks, table, groups, result)
    return result


def table_metrics(table: Table) -> dict[str, Any]:
    """All metrics of a table that has records, but for those of its groups."""
    result = empty_metrics()
    counts = table.counts()
    coverage = coverage_of(counts)
    result["perf_summary"] = perf_summary(table.perf(), counts.rollouts)
    if not counts.scored:
        result["agent_metrics"], result["key_metrics"] = dict(coverage), dict(coverage)
        return result
    repeats = list(table.repeats())
    entries = [repeat_entry(repeat, counts.scored_tasks) for repeat in repeats] if len(repeats) > 1 else []
    agent = describe(table.overall(), table.columns, counts.scored)
    agent.update(across_repeats(entries))
    agent.update(coverage)
    agent["num_repeats"] = counts.repeats
    result.update(agent_metrics=agent, key_metrics={**_means(agent), **coverage}, repeat_level_metrics=entries)
    return result


def _apply(hooks: AggregateHooks, table: MemoryTable, groups: Sequence[dict[str, Any]], result: dict[str, Any]) -> None:
    """A benchmark's own metrics, put over the generic ones."""
    agent, counts = result["agent_metrics"], table.counts()
    custom: dict[str, Any] = {}
    if hooks.metrics is not None:
        custom = hooks.metrics(table.by_task())
        _merge_per_task(groups, custom.pop("per_task_metrics", None) or [])
        repeats = agent.pop("num_repeats")
        agent.update(custom)
        agent["num_repeats"] = repeats
    chosen = _means(agent) if hooks.key_metrics is None else hooks.key_metrics(agent)
    result["key_metrics"] = {**chosen, **coverage_of(counts)}
    if hooks.repeat_metrics is not None:
        _custom_repeats(hooks.repeat_metrics, table.by_repeat(), result["repeat_level_metrics"], agent, custom)


def _means(agent: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in agent.items() if name.startswith("mean/")}


def coverage_of(counts: Counts) -> dict[str, Any]:
    """The four coverage metrics; none when nothing was masked."""
    if counts.scored == counts.rollouts:
        return {}
    return {
        "coverage/measured_rollouts": counts.scored,
        "coverage/masked_rollouts": counts.rollouts - counts.scored,
        "coverage/measured_tasks": counts.scored_tasks,
        "coverage/fully_masked_tasks": counts.tasks - counts.scored_tasks,
    }


def describe(found: Mapping[str, Summary], columns: Sequence[str], rows: int) -> dict[str, Any]:
    """Mean, max, min, median and sample std of each column over ``rows`` records; statistics without a value are left out.

    When no column has two values, std is 0 for the columns that every row has.
    """
    named = [(name, found[name]) for name in columns if name in found]
    single = all(math.isnan(summary.std) for _, summary in named)
    done: dict[str, Any] = {f"mean/{name}": summary.mean for name, summary in named}
    done.update((f"max/{name}", summary.maximum) for name, summary in named)
    done.update((f"min/{name}", summary.minimum) for name, summary in named)
    done.update((f"median/{name}", summary.median) for name, summary in named)
    for name, summary in named:
        if single:
            if summary.count == rows:
                done[f"std/{name}"] = 0.0
        elif not math.isnan(summary.std):
            done[f"std/{name}"] = summary.std
    return done


def group_entry(group: Group) -> dict[str, Any]:
    """A task's entry in ``group_level_metrics``."""
    return entry_of(group.task, describe(group.columns, list(group.columns), group.rows), group.infos)


def entry_of(task: Any, statistics: Mapping[str, Any], infos: list[dict[str, Any]]) -> dict[str, Any]:
    """The entry of a task with these statistics and one info for each record."""
    rows = len(infos)
    return {
        TASK_INDEX: task,
        **statistics,
        "sample": {"agent_ref": {"name": "agent"}},
        "num_rollouts": rows,
        "expected_num_rollouts": rows,
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": infos,
    }


def repeat_entry(repeat: Repeat, tasks: int) -> dict[str, Any]:
    """A rollout index' entry in ``repeat_level_metrics``; ``tasks``: how many there are with any."""
    entry: dict[str, Any] = {
        ROLLOUT_INDEX: int(repeat.rollout),
        "sample_count": repeat.present,
        "missing_count": tasks - repeat.present,
    }
    for name in sorted(repeat.columns):
        entry.update(_repeat_stats(name, repeat.columns[name]))
    return entry


def _repeat_stats(name: str, column: Summary) -> dict[str, float]:
    spread = column.std if column.count > 1 else 0.0
    error = spread / math.sqrt(column.count)
    entry = {
        f"mean/{name}": column.mean,
        f"median/{name}": column.median,
        f"std/{name}": spread,
        f"sem/{name}": error,
        f"min/{name}": column.minimum,
        f"max/{name}": column.maximum,
        f"p25/{name}": column.p25,
        f"p75/{name}": column.p75,
    }
    bounds = stat.interval(column.mean, error, column.count)
    if bounds is not None:
        entry[f"ci_low_95/{name}"], entry[f"ci_high_95/{name}"] = bounds
    return entry


def is_primary(name: str) -> bool:
    """Whether a metric of one repeat is a point estimate, and so has a summary over repeats."""
    return (
        name not in _NOT_PRIMARY_NAMES
        and not name.startswith(_NOT_PRIMARY_PREFIXES)
        and not name.endswith(_NOT_PRIMARY_SUFFIXES)
        and _ACROSS not in name
    )


def across_repeats(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each primary metric of some repeats, summed up over them."""
    done: dict[str, Any] = {}
    for name in dict.fromkeys(name for entry in repeats for name in entry if is_primary(name)):
        column = summarize([entry[name] for entry in repeats if name in entry])
        if column is None:
            continue
        spread = column.std if column.count > 1 else 0.0
        error = spread / math.sqrt(column.count)
        done[f"mean{_ACROSS}{name}"] = column.mean
        done[f"median{_ACROSS}{name}"] = column.median
        done[f"std{_ACROSS}{name}"] = spread
        done[f"min{_ACROSS}{name}"] = column.minimum
        done[f"max{_ACROSS}{name}"] = column.maximum
        done[f"se{_ACROSS}{name}"] = error
        bounds = stat.interval(column.mean, error, column.count)
        if bounds is not None:
            done[f"ci_low_95{_ACROSS}{name}"], done[f"ci_high_95{_ACROSS}{name}"] = bounds
    return done


def _merge_per_task(groups: Sequence[dict[str, Any]], per_task: Iterable[Mapping[str, Any]]) -> None:
    by_index = {entry[TASK_INDEX]: entry for entry in per_task}
    for group in groups:
        entry = by_index.get(group[TASK_INDEX], {})
        group.update((name, value) for name, value in entry.items() if name != TASK_INDEX)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _by_task(records: Iterable[Record]) -> Tasks:
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(key_of(record)[0], []).append(record)
    return [groups[task] for task in sorted(groups)]


def _custom_repeats(
    hook: Callable[[Tasks], dict[str, Any]],
    by_repeat: Mapping[Any, list[Record]],
    repeats: Sequence[dict[str, Any]],
    agent: dict[str, Any],
    custom: Mapping[str, Any],
) -> None:
    """Replace generic per-repeat metrics by the benchmark's where those are finite in every repeat, and their summaries with them."""
    found = [hook(_by_task(by_repeat[entry[ROLLOUT_INDEX]])) for entry in repeats]
    names = {name for metrics in found for name in metrics}
    if not names:
        return
    for name in sorted(names):
        values = [metrics.get(name) for metrics in found]
        usable = all(_finite(value) for value in values) and (name not in custom or _finite(custom[name]))
        for entry, value in zip(repeats, values, strict=True):
            entry.pop(name, None)
            if usable and value is not None:
                entry[name] = float(value)
    for name in [name for name in agent if _ACROSS in name and name.split(_ACROSS, 1)[1] in names]:
        del agent[name]
    agent.update(across_repeats(repeats))
