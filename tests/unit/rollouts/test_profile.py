"""The reward profile: the numbers of aggregation, with the rows they belong to; what does not belong together is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.rollouts.errors import RolloutsDifferError
from gym_compose.rollouts.profile import profile
from gym_compose.wire.aggregation import aggregate_metrics
from tests.unit.rollouts.conftest import WriteRun, record

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "aggregate.jsonl.gz"


def row(task: int, rollout: int, server: str = "e", agent: str | None = "a", **more: Any) -> dict[str, Any]:
    keys = {"_ng_task_index": task, "_ng_rollout_index": rollout, "_ng_environment_server": server}
    return {"question": f"q{task}", **more, **keys, **({} if agent is None else {"agent_ref": {"name": agent}})}


def read(path: Path, ending: str) -> Any:
    file = path.with_name(path.stem + ending)
    text = file.read_bytes()
    return [orjson.loads(line) for line in text.splitlines()] if ending.endswith("jsonl") else orjson.loads(text)


def test_groups_have_their_row_and_agents_and_repeats_their_name(write_run: WriteRun, tmp_path: Path) -> None:
    keys = [(0, 0), (0, 1), (1, 0), (1, 1)]
    path = write_run([record(*key, float(sum(key) % 2)) for key in reversed(keys)], inputs=[row(*key) for key in keys])
    done = profile(tmp_path / "run_materialized_inputs.jsonl", path)
    groups = read(path, "_reward_profiling.jsonl")
    assert [group["_ng_task_index"] for group in groups] == [0, 1]
    assert groups[0]["sample"] == {"question": "q0", "_ng_environment_server": "e", "agent_ref": {"name": "a"}}
    assert groups[0]["mean/reward"] == 0.5
    assert [info["rollout_id"] for info in groups[1]["rollout_infos"]] == ["1:0", "1:1"]
    agents = read(path, "_agent_metrics.json")
    assert agents[0]["agent_ref"] == {"name": "a"}
    assert agents[0]["mean_across_repeats/mean/reward"] == 0.5
    assert "num_repeats" not in agents[0]
    repeats = read(path, "_repeat_level_metrics.json")
    assert [(entry["agent_ref"], entry["_ng_rollout_index"]) for entry in repeats] == [({"name": "a"}, 0), ({"name": "a"}, 1)]
    assert (done.expected, done.completed, done.tasks, done.complete_tasks) == (4, 4, 2, 2)


def golden() -> list[dict[str, Any]]:
    if not GOLDEN.exists():
        return []
    with gzip.open(GOLDEN, "rt") as lines:
        return [case for case in map(json.loads, lines) if case["records"]]


@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared golden data is not here")
@pytest.mark.parametrize("case", golden(), ids=lambda case: case["name"])
def test_the_numbers_are_those_of_aggregation(case: dict[str, Any], write_run: WriteRun, tmp_path: Path) -> None:
    records = [{"_ng_task_index": 0, "_ng_rollout_index": 0, **found} for found in case["records"]]
    inputs = [row(found["_ng_task_index"], found["_ng_rollout_index"]) for found in records]
    path = write_run(records, inputs=inputs)
    done = profile(tmp_path / "run_materialized_inputs.jsonl", path)
    expected = aggregate_metrics(case["records"])
    groups = read(path, "_reward_profiling.jsonl")
    for ours, theirs in zip(groups, expected["group_level_metrics"], strict=True):
        assert list(ours) == list(theirs)
        for name in theirs.keys() - {"sample"}:
            expected_value = pytest.approx(theirs[name], rel=1e-9, abs=1e-9) if isinstance(theirs[name], float) else theirs[name]
            assert ours[name] == expected_value, name
    agent = read(path, "_agent_metrics.json")[0]
    for name, value in expected["agent_metrics"].items():
        if name != "num_repeats":
            assert agent[name] == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert len(read(path, "_repeat_level_metrics.json")) == len(expected["repeat_level_metrics"])
    assert done.masked == sum(bool(found.get("mask_sample")) for found in records)


def test_a_task_that_ran_on_several_servers_has_a_group_for_each(write_run: WriteRun, tmp_path: Path) -> None:
    inputs = [row(0, 0, "e1", "a"), row(0, 1, "e2", "b"), row(1, 0, "e1", "a")]
    path = write_run([record(0, 0, 1.0), record(0, 1, 0.0), record(1, 0, 1.0)], inputs=inputs)
    profile(tmp_path / "run_materialized_inputs.jsonl", path)
    groups = read(path, "_reward_profiling.jsonl")
    assert [(group["_ng_task_index"], group["agent_ref"]["name"]) for group in groups] == [(0, "a"), (0, "b"), (1, "a")]
    assert [agent["agent_ref"]["name"] for agent in read(path, "_agent_metrics.json")] == ["a", "b"]


def test_masked_rollouts_are_coverage_of_their_agent_and_no_gap(write_run: WriteRun, tmp_path: Path) -> None:
    inputs = [row(0, 0), row(1, 0), row(2, 0, "f", "b")]
    path = write_run([record(0, 0, 1.0), record(1, 0, 0.0, mask_sample=True), record(2, 0, 0.0, mask_sample=True)], inputs=inputs)
    done = profile(tmp_path / "run_materialized_inputs.jsonl", path)
    agents = {entry["agent_ref"]["name"]: entry for entry in read(path, "_agent_metrics.json")}
    assert agents["a"]["mean/reward"] == 1.0
    assert agents["a"]["coverage/masked_rollouts"] == 1
    assert agents["b"] == {
        "agent_ref": {"name": "b"},
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 1,
    }
    assert (done.completed, done.masked, done.missing_tasks) == (3, 2, 0)


@pytest.mark.parametrize(
    ("rollouts", "inputs", "message"),
    [
        ([(0, 0), (0, 0)], [(0, 0)], "rollout 0:0 is there twice"),
        ([(0, 0)], [(0, 0), (0, 0)], "rollout 0:0 is there twice"),
        ([(0, 0), (1, 0)], [(0, 0)], "1 rollouts have no input row: 1:0"),
        ([(0, 0)], [(0, 0), (0, 1)], "1 input rows have no rollout: 0:1"),
    ],
)
def test_files_that_do_not_belong_together(
    rollouts: list[Any], inputs: list[Any], message: str, write_run: WriteRun, tmp_path: Path
) -> None:
    path = write_run([record(task, number, 1.0) for task, number in rollouts], inputs=[row(task, number) for task, number in inputs])
    with pytest.raises(RolloutsDifferError, match=message):
        profile(tmp_path / "run_materialized_inputs.jsonl", path, directory=tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"run.jsonl", "run_materialized_inputs.jsonl"}


def test_part_of_a_run_is_profiled_when_asked_for(write_run: WriteRun, tmp_path: Path) -> None:
    path = write_run([record(0, 0, 1.0)], inputs=[row(0, 0), row(0, 1), row(1, 0)])
    done = profile(tmp_path / "run_materialized_inputs.jsonl", path, allow_partial=True)
    (group,) = read(path, "_reward_profiling.jsonl")
    assert (group["num_rollouts"], group["expected_num_rollouts"], group["missing_num_rollouts"]) == (1, 2, 1)
    assert group["reward_profile_completion_pct"] == 50.0
    assert (done.complete_tasks, done.partial_tasks, done.missing_tasks) == (0, 1, 1)


def test_no_rollouts_give_empty_files(write_run: WriteRun, tmp_path: Path) -> None:
    path = write_run([], inputs=[row(0, 0)])
    profile(tmp_path / "run_materialized_inputs.jsonl", path, allow_partial=True)
    assert read(path, "_reward_profiling.jsonl") == []
    assert read(path, "_agent_metrics.json") == []
    assert read(path, "_repeat_level_metrics.json") == []


def test_an_input_row_that_json_cannot_be_written_of_is_an_error_that_names_its_task(write_run: WriteRun, tmp_path: Path) -> None:
    path = write_run([record(0, 0, 1.0)], inputs=[row(0, 0)])
    deep = b'{"deep":' + b"[" * 300 + b"]" * 300 + b"," + orjson.dumps(row(0, 0))[1:] + b"\n"
    (tmp_path / "run_materialized_inputs.jsonl").write_bytes(deep)
    with pytest.raises(RolloutsDifferError, match="the input row of task 0 is nested too deep"):
        profile(tmp_path / "run_materialized_inputs.jsonl", path)
    assert not list(tmp_path.glob("*.part"))
