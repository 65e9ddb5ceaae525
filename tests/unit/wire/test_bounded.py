"""Metrics of many records: the same values in the same order as of few, whatever their order, and files that do not stay."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gym_compose
from gym_compose.wire import aggregation
from gym_compose.wire.bounded import aggregate_metrics
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.record_table import RecordWriter

NUMBERS = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(-1e6, 1e6), st.just(math.nan))
NAMES = st.sampled_from(["reward", "steps", "total_tokens", 'a\t"b"\n', "ü", "_hidden", "mask_sample_2"])
PERF = st.dictionaries(
    st.sampled_from(["num_turns", "completion_tokens", "total_latency_ms", "token_observability_coverage", "prompt_tokens"]),
    st.integers(0, 1000),
)


@st.composite
def many_records(draw: st.DrawFn) -> list[dict[str, Any]]:
    keys = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=24, unique=True))
    found = []
    for task, rollout in keys:
        record: dict[str, Any] = draw(st.dictionaries(NAMES, st.one_of(NUMBERS, st.text(max_size=3), st.none())))
        record["_ng_task_index"], record["_ng_rollout_index"] = task, rollout
        if draw(st.booleans()):
            record["response"] = {"usage": draw(st.dictionaries(NAMES, NUMBERS))}
        if draw(st.booleans()):
            record["ng_perf"] = draw(PERF)
        record["mask_sample"] = draw(st.sampled_from([False, False, True]))
        found.append(record)
    return found


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return [f"{path}: {list(ours)} != {list(theirs)}"]
        return [line for key in ours for line in differences(ours[key], theirs[key], f"{path}/{key}")]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} != {len(theirs)}"]
        return [line for place, pair in enumerate(zip(ours, theirs, strict=True)) for line in differences(*pair, f"{path}[{place}]")]
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return (
            []
            if math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-7) or (math.isnan(ours) and theirs is None)
            else [f"{path}: {ours} {theirs}"]
        )
    return [] if ours == theirs or (isinstance(ours, type(None)) and theirs != theirs) else [f"{path}: {ours!r} != {theirs!r}"]


@given(records=many_records(), order=st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_on_disk_it_is_what_it_is_in_memory(records: list[dict[str, Any]], order: Any, tmp_path: Path) -> None:
    expected = aggregation.aggregate_metrics(records)
    shuffled = list(records)
    order.shuffle(shuffled)
    found = aggregate_metrics(shuffled, in_memory=0, directory=tmp_path)
    groups = list(found.pop("group_level_metrics"))
    assert differences(groups, expected.pop("group_level_metrics")) == []
    assert differences(found, expected) == []


def test_the_order_in_which_records_come_changes_no_bit() -> None:
    records = [{"_ng_task_index": i // 4, "_ng_rollout_index": i % 4, "reward": math.sin(i), "steps": i * 0.1} for i in range(2000)]
    first = aggregate_metrics(iter(records), in_memory=10)
    second = aggregate_metrics(reversed(records), in_memory=10)
    assert json.dumps(first, default=list) == json.dumps(second, default=list)


def test_groups_are_a_sequence_that_is_read_where_it_is_looked_at() -> None:
    records = [{"_ng_task_index": i, "_ng_rollout_index": 0, "reward": float(i)} for i in range(2500)]
    groups = aggregate_metrics(iter(records), in_memory=0)["group_level_metrics"]
    assert len(groups) == 2500
    assert groups[-1]["mean/reward"] == 2499.0
    assert [group["_ng_task_index"] for group in groups[998:1002]] == [998, 999, 1000, 1001]
    assert groups == list(groups)
    with pytest.raises(IndexError):
        groups[2500]


def test_few_records_give_a_plain_list() -> None:
    found = gym_compose.aggregate_metrics({"reward": 1.0, "_ng_task_index": n} for n in range(3))
    assert isinstance(found["group_level_metrics"], list)
    assert found["agent_metrics"]["mean/reward"] == 1.0


def test_no_records_give_nothing() -> None:
    assert aggregate_metrics(iter(()), in_memory=0) == aggregation.empty_metrics()


@pytest.mark.parametrize("mask", [False, True])
def test_one_rollout_twice_is_an_error_and_leaves_no_file(mask: bool, tmp_path: Path) -> None:
    records = [{"reward": 1.0}, {"reward": 0.0, "mask_sample": mask}]
    with pytest.raises(ValueError, match="two records have _ng_task_index 0"):
        aggregate_metrics(records, in_memory=0, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("record", [{"_ng_task_index": "a"}, {"_ng_task_index": True}, {"reward": math.inf}])
def test_what_cannot_be_put_in_a_table_is_an_error(record: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        aggregate_metrics([record], in_memory=0, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_go_with_the_result(tmp_path: Path) -> None:
    found = aggregate_metrics([{"reward": 1.0}], in_memory=0, directory=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    del found
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_without_a_table_leaves_no_file(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.add({"reward": 1.0})
    assert list(tmp_path.iterdir()) == []
