"""How ``make peer`` compares our records and metrics with NeMo Gym's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.peer.beside import COMPARISONS, differences, first_difference, settled


def rollouts(directory: Path, name: str, records: list[dict[str, Any]], metrics: Any) -> Path:
    path = directory / f"{name}.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    (directory / f"{name}_aggregate_metrics.json").write_bytes(orjson.dumps(metrics))
    return path


def record(rollout: int, reward: float, identity: str = "resp_1") -> dict[str, Any]:
    return {"reward": reward, "response": {"id": identity, "created_at": rollout}, "_ng_task_index": 0, "_ng_rollout_index": rollout}


def test_records_in_another_order_of_completion_with_other_ids_and_times_are_equal(tmp_path: Path) -> None:
    theirs = rollouts(tmp_path, "theirs", [record(0, 1.0), record(1, 0.0)], [{"mean/reward": 0.5}])
    ours = rollouts(tmp_path, "ours", [record(1, 0.0, "resp_77"), record(0, 1.0, "resp_8")], [{"mean/reward": 0.5 + 1e-12}])
    assert list(differences(theirs, ours)) == []


def test_a_missing_record_another_value_and_another_metric_are_told(tmp_path: Path) -> None:
    theirs = rollouts(tmp_path, "theirs", [record(0, 1.0), record(1, 0.0)], [{"mean/reward": 0.5}])
    ours = rollouts(tmp_path, "ours", [record(0, 0.0)], [{"mean/reward": 0.0}])
    assert list(differences(theirs, ours)) == [
        "1 rollouts of ours, 2 of NeMo Gym's",
        "record 0-0.reward: 0.0 where NeMo Gym has 1.0",
        "metrics[0].mean/reward: 0.0 where NeMo Gym has 0.5",
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "x: keys b, a where NeMo Gym has a, b"),
        ([1, 2], [1], "x: 1 elements where NeMo Gym has 2"),
        ({"a": [0, {"b": None}]}, {"a": [0, {"b": 1}]}, "x.a[1].b: 1 where NeMo Gym has None"),
        (True, 1, "x: 1 where NeMo Gym has True"),
        (1.0, 1, ""),
        ("1", 1, "x: 1 where NeMo Gym has '1'"),
    ],
)
def test_the_first_difference_names_its_place(theirs: Any, ours: Any, said: str) -> None:
    assert first_difference(theirs, ours, "x") == said


def test_ids_and_times_of_the_model_endpoint_are_left_out() -> None:
    assert settled({"id": "call_9", "created_at": 3, "deep": [{"text": "msg_1 and resp_2"}]}) == {
        "id": "call_N",
        "deep": [{"text": "msg_N and resp_N"}],
    }


def test_each_environment_server_that_both_have_is_compared() -> None:
    assert [one.environment_server for one in COMPARISONS] == ["legacy_agent", "single_agent_turn_legacy", "single_agent_turn"]
