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
from gym_compose.wire.run_body import ATTEMPT_INDEX, MASK_SAMPLE, PERF, ROLLOUT_INDEX, TASK_INDEX

Record = Mapping[str, Any]
Tasks = list[list[Record]]

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
    """Metrics per task, overall and per repeat of one server's records.

    Records with a truthy ``mask_sample`` stay out of every mean and are counted as coverage. Raises ValueError when two records have the
    same task and rollout index (missing ones count as 0).
    """
    if not records:
        return empty_metrics()
    scored = [record for record in records if not record.get(MASK_SAMPLE)]
    _refuse_duplicates(scored, [record for record in records if record.get(MASK_SAMPLE)])
    coverage = _coverage(records, scored)
    result = empty_metrics()
    result["perf_summary"] = perf_summary([record[PERF] for record in records if isinstance(record.get(PERF), dict)], len(records))
    if not scored:
        result["agent_metrics"], result["key_metrics"] = dict(coverage), dict(coverage)
        return result

    scored.sort(key=_key)
    rows = [_numbers(record) for record in scored]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    repeats = _repeat_level(scored, rows, columns)
    agent = _describe(rows, columns)
    agent.update(_across_repeats(repeats))
    agent.update(coverage)
    groups = _group_level(scored, rows, columns)

    custom: dict[str, Any] = {}
    if hooks.metrics is not None:
        custom = hooks.metrics(_by_task(scored))
        _merge_per_task(groups, custom.pop("per_task_metrics", None) or [])
        agent.update(custom)
    agent["num_repeats"] = len({record.get(ROLLOUT_INDEX, 0) for record in records})

    if hooks.key_metrics is not None:
        keys = hooks.key_metrics(agent)
    else:
        keys = {name: value for name, value in agent.items() if name.startswith("mean/")}
    keys.update(coverage)
    if hooks.repeat_metrics is not None:
        _custom_repeats(hooks.repeat_metrics, scored, repeats, agent, custom)

    result.update(group_level_metrics=groups, agent_metrics=agent, key_metrics=keys, repeat_level_metrics=repeats)
    return result


def _key(record: Record) -> tuple[Any, Any]:
    return record.get(TASK_INDEX, 0), record.get(ROLLOUT_INDEX, 0)


def _refuse_duplicates(scored: Iterable[Record], masked: Iterable[Record]) -> None:
    seen = set()
    for record in scored:
        key = _key(record)
        if key in seen:
            raise ValueError(f"two records have {TASK_INDEX} {key[0]} and {ROLLOUT_INDEX} {key[1]}")
        seen.add(key)
    for record in masked:
        if _key(record) in seen:
            raise ValueError(f"{TASK_INDEX} {_key(record)[0]}, {ROLLOUT_INDEX} {_key(record)[1]} is both scored and masked")


def _coverage(records: Sequence[Record], scored: Sequence[Record]) -> dict[str, Any]:
    if len(scored) == len(records):
        return {}
    tasks = {record.get(TASK_INDEX, 0) for record in records}
    measured = {record.get(TASK_INDEX, 0) for record in scored}
    return {
        "coverage/measured_rollouts": len(scored),
        "coverage/masked_rollouts": len(records) - len(scored),
        "coverage/measured_tasks": len(measured),
        "coverage/fully_masked_tasks": len(tasks - measured),
    }


def _usage(record: Record) -> Mapping[str, Any]:
    response = record.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    return usage if isinstance(usage, Mapping) else {}


def _numbers(record: Record) -> dict[str, float]:
    """Numeric columns of a record: its top-level numbers and bools, then those of ``response.usage``, which win over the same name."""
    found: dict[str, float] = {}
    usage = _usage(record)
    for source in (record, usage):
        for name, value in source.items():
            if isinstance(value, int | float) and name[:1] != "_" and name != MASK_SAMPLE:
                found[name] = float(value)
    # A usage field that is no number hides a number of the record with that name.
    for name, value in usage.items():
        if name in found and not isinstance(value, int | float):
            del found[name]
    return found


def _column(rows: Iterable[Mapping[str, float]], name: str) -> list[float]:
    return sorted(row[name] for row in rows if name in row and not math.isnan(row[name]))


def _describe(rows: Sequence[Mapping[str, float]], columns: Sequence[str]) -> dict[str, Any]:
    """Mean, max, min, median and sample std of each column; statistics without a value are left out.

    When no column has two values, std is 0 for the columns that every row has.
    """
    values = {name: _column(rows, name) for name in columns}
    spread = {name: stat.sample_std(column) for name, column in values.items()}
    if all(math.isnan(value) for value in spread.values()):
        spread = {name: 0.0 if len(values[name]) == len(rows) else math.nan for name in columns}
    statistics: dict[str, Callable[[list[float], str], float]] = {
        "mean": lambda column, _: stat.mean(column),
        "max": lambda column, _: column[-1],
        "min": lambda column, _: column[0],
        "median": lambda column, _: stat.median(column),
        "std": lambda _, name: spread[name],
    }
    done: dict[str, Any] = {}
    for which, statistic in statistics.items():
        for name, column in values.items():
            value = statistic(column, name) if column else math.nan
            if not math.isnan(value):
                done[f"{which}/{name}"] = value
    return done


def _by_task(scored: Iterable[Record]) -> Tasks:
    groups: dict[Any, list[Record]] = {}
    for record in scored:
        groups.setdefault(record.get(TASK_INDEX, 0), []).append(record)
    return [groups[task] for task in sorted(groups)]


def _group_level(scored: Sequence[Record], rows: Sequence[dict[str, float]], columns: Sequence[str]) -> list[dict[str, Any]]:
    members: dict[Any, list[int]] = {}
    for index, record in enumerate(scored):
        members.setdefault(record.get(TASK_INDEX, 0), []).append(index)
    groups = []
    for task, indices in members.items():
        count = len(indices)
        groups.append(
            {
                TASK_INDEX: task,
                **_describe([rows[index] for index in indices], columns),
                "sample": {"agent_ref": {"name": "agent"}},
                "num_rollouts": count,
                "expected_num_rollouts": count,
                "missing_num_rollouts": 0,
                "reward_profile_completion_pct": 100.0,
                "rollout_infos": [_info(scored[index]) for index in indices],
            }
        )
    return groups


def _info(record: Record) -> dict[str, Any]:
    task, rollout = _key(record)
    info: dict[str, Any] = {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
    if "reward" in record:
        info["reward"] = record["reward"]
    for name, value in _usage(record).items():
        if isinstance(value, int | float):
            info[name] = int(value) if isinstance(value, bool) else value
    for name, value in record.items():
        if isinstance(value, int | float) and name[:1] != "_" and name not in ("reward", "response", MASK_SAMPLE):
            info[name] = int(value) if isinstance(value, bool) else value
    return info


def _repeat_level(scored: Sequence[Record], rows: Sequence[dict[str, float]], columns: Sequence[str]) -> list[dict[str, Any]]:
    members: dict[Any, list[int]] = {}
    for index, record in enumerate(scored):
        members.setdefault(record.get(ROLLOUT_INDEX, 0), []).append(index)
    if len(members) < 2:
        return []
    tasks = len({record.get(TASK_INDEX, 0) for record in scored})
    repeats = []
    for rollout in sorted(members):
        indices = members[rollout]
        present = len({scored[index].get(TASK_INDEX, 0) for index in indices})
        entry: dict[str, Any] = {ROLLOUT_INDEX: int(rollout), "sample_count": present, "missing_count": tasks - present}
        chosen = [rows[index] for index in indices]
        for name in sorted(columns):
            column = _column(chosen, name)
            if column:
                entry.update(_repeat_stats(name, column))
        repeats.append(entry)
    return repeats


def _repeat_stats(name: str, column: Sequence[float]) -> dict[str, float]:
    count = len(column)
    centre = stat.mean(column)
    spread = stat.sample_std(column) if count > 1 else 0.0
    error = spread / math.sqrt(count)
    entry = {
        f"mean/{name}": centre,
        f"median/{name}": stat.median(column),
        f"std/{name}": spread,
        f"sem/{name}": error,
        f"min/{name}": column[0],
        f"max/{name}": column[-1],
        f"p25/{name}": stat.quantile(column, 0.25),
        f"p75/{name}": stat.quantile(column, 0.75),
    }
    bounds = stat.interval(centre, error, count)
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


def _across_repeats(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    done: dict[str, Any] = {}
    for name in dict.fromkeys(name for entry in repeats for name in entry if is_primary(name)):
        column = _column(repeats, name)
        if not column:
            continue
        count = len(column)
        centre = stat.mean(column)
        spread = stat.sample_std(column) if count > 1 else 0.0
        error = spread / math.sqrt(count)
        done[f"mean{_ACROSS}{name}"] = centre
        done[f"median{_ACROSS}{name}"] = stat.median(column)
        done[f"std{_ACROSS}{name}"] = spread
        done[f"min{_ACROSS}{name}"] = column[0]
        done[f"max{_ACROSS}{name}"] = column[-1]
        done[f"se{_ACROSS}{name}"] = error
        bounds = stat.interval(centre, error, count)
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


def _custom_repeats(
    hook: Callable[[Tasks], dict[str, Any]],
    scored: Sequence[Record],
    repeats: Sequence[dict[str, Any]],
    agent: dict[str, Any],
    custom: Mapping[str, Any],
) -> None:
    """Replace generic per-repeat metrics by the benchmark's where those are finite in every repeat, and their summaries with them."""
    by_repeat: dict[Any, list[Record]] = {}
    for record in scored:
        by_repeat.setdefault(record.get(ROLLOUT_INDEX, 0), []).append(record)
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
    agent.update(_across_repeats(repeats))
