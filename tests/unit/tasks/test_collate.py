"""Declared datasets, splits, collation, materialization (contract-data 1.1, 3.1, 3.3 to 3.5; cases 51 to 56, 61)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.tasks.agents import resolve_dataset_agent
from gym_compose.tasks.collate import collate, prepared_path
from gym_compose.tasks.datasets import check_split, datasets_of_split, declared_datasets
from gym_compose.tasks.errors import DatasetAgentError, DatasetError, RowError
from gym_compose.tasks.materialize import materialize
from gym_compose.tasks.prompt import load_prompt
from gym_compose.tasks.skills import skills_reference


def dataset(name: str = "d", kind: str = "train", path: str = "data/d.jsonl", **extra: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonl_fpath": path, **extra}


def config(*datasets: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "rs": {"resources_servers": {"impl": {"entrypoint": "app.py", "datasets": list(datasets)}}},
        "a": {"responses_api_agents": {"simple": {"resources_server": {"type": "resources_servers", "name": "rs"}}}},
        "e": {
            "environment_servers": {
                "turn": {
                    "agent_server": {"type": "responses_api_agents", "name": "a"},
                    "resources_server": {"type": "resources_servers", "name": "rs"},
                }
            }
        },
        "environment_server_routes": {"ts": "e"},
        **extra,
    }


def write(root: Path, *rows: Any, name: str = "data/d.jsonl") -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))


def collated(root: Path, declared: dict[str, Any], split: str = "train") -> list[dict[str, Any]]:
    made = collate(declared, split, root / "out" / f"{split}.jsonl", [root])
    rows = [orjson.loads(line) for line in made.path.read_bytes().splitlines()]
    assert made.rows == len(rows)
    assert [path.name for path in made.path.parent.iterdir()] == [f"{split}.jsonl"]
    return rows


class TestCollate:
    def test_rows_get_the_declaring_instance_and_lose_their_agent(self, tmp_path: Path) -> None:
        write(tmp_path, {"responses_create_params": {}, "agent_ref": {"name": "z"}, "task_source": "old", "answer": 1})
        declared = config(dataset(num_repeats=2))
        assert collated(tmp_path, declared) == [{"responses_create_params": {}, "task_source": "rs", "answer": 1}] * 2
        made = collate(declared, "train", tmp_path / "o" / "t.jsonl", [tmp_path])
        assert "agent_ref is left out of 1 rows" in made.warnings[0]

    def test_datasets_follow_each_other_in_the_order_of_the_config(self, tmp_path: Path) -> None:
        write(tmp_path, {"n": 1}, {"n": 2})
        write(tmp_path, {"n": 3}, name="data/e.jsonl")
        rows = collated(tmp_path, config(dataset("x"), dataset("v", "validation"), dataset("y", path="data/e.jsonl")))
        assert [row["n"] for row in rows] == [1, 2, 3]

    def test_materialized_rows_stay_as_they_are_but_for_their_source(self, tmp_path: Path) -> None:
        row = {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {"q": 1}}
        write(tmp_path, row)
        assert collated(tmp_path, config(dataset())) == [{**row, "task_source": "rs"}]

    def test_case_51_and_52_a_taskset_is_materialized_and_repeats_share_an_id(self, tmp_path: Path) -> None:
        write(tmp_path, {"responses_create_params": {}, "answer": 1}, {"answer": 2, "task_id": 5})
        rows = collated(tmp_path, config(dataset(taskset="ts", num_repeats=2)))
        assert [row["task_id"] for row in rows] == [{"taskset": "ts", "task_id": i} for i in ("0", "0", "5", "5")]
        assert rows[0]["task_input"] == {"responses_create_params": {}, "answer": 1}
        assert rows[2]["task_input"] == {"answer": 2, "task_id": 5}

    def test_positions_count_over_all_datasets_of_the_type(self, tmp_path: Path) -> None:
        write(tmp_path, {"n": 1}, {"n": 2})
        rows = collated(tmp_path, config(dataset("x"), dataset("y", taskset="ts")))
        assert [row["task_id"]["task_id"] for row in rows[2:]] == ["2", "3"]

    def test_case_53_a_taskset_on_materialized_rows(self, tmp_path: Path) -> None:
        write(tmp_path, {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {}})
        with pytest.raises(RowError, match="materialized already"):
            collated(tmp_path, config(dataset(taskset="ts")))

    def test_a_failure_leaves_no_file_and_an_earlier_one_as_it_was(self, tmp_path: Path) -> None:
        write(tmp_path, {"n": 1})
        collated(tmp_path, config(dataset()))
        before = (tmp_path / "out" / "train.jsonl").read_bytes()
        write(tmp_path, {"n": 1}, b"nonsense\n")
        with pytest.raises(RowError, match="line 2"):
            collated(tmp_path, config(dataset()))
        assert (tmp_path / "out" / "train.jsonl").read_bytes() == before
        assert len(list((tmp_path / "out").iterdir())) == 1

    def test_a_missing_file_names_dataset_and_script_and_nothing_is_written(self, tmp_path: Path) -> None:
        write(tmp_path, {"n": 1})
        with pytest.raises(DatasetError) as raised:
            collated(tmp_path, config(dataset(), dataset("gone", path="data/gone.jsonl", prepare_script="data/prepare.py")))
        assert "'gone' (train) of rs is not on disk: data/gone.jsonl" in str(raised.value)
        assert "Run data/prepare.py first" in str(raised.value)
        assert not (tmp_path / "out").exists()

    def test_several_missing_files_are_all_listed(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="2 datasets") as raised:
            collated(tmp_path, config(dataset("x"), dataset("y", prepare_script="p.py")))
        assert [("p.py" in line, "no prepare_script" in line) for line in raised.value.details] == [(False, True), (True, False)]

    def test_the_first_root_wins(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            write(tmp_path / name, {"n": name})
        made = collate(config(dataset()), "train", tmp_path / "t.jsonl", [tmp_path / "two", tmp_path / "one"])
        assert orjson.loads(made.path.read_bytes())["n"] == "two"

    def test_a_benchmark_prompt_is_applied(self, tmp_path: Path) -> None:
        write(tmp_path, {"q": "why"})
        (tmp_path / "p.yaml").write_text("user: 'Say {q}'\n")
        rows = collated(tmp_path, config(dataset(kind="benchmark", prepare_script="x.py", prompt_config="p.yaml")), "benchmark")
        assert rows[0]["responses_create_params"] == {"input": [{"role": "user", "content": "Say why"}]}

    def test_a_taskset_that_cannot_be_routed_aborts_before_files_are_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetAgentError, match="'tz' has no route"):
            collated(tmp_path, config(dataset(taskset="tz")))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("res.dir/roll.outs.jsonl", "res.dir/roll.outs/preprocessed_datasets/train.jsonl"),
        ("roll", "roll/preprocessed_datasets/train.jsonl"),
    ],
)
def test_where_the_rows_of_a_run_stand(output: str, expected: str) -> None:
    assert str(prepared_path(Path(output), "train")) == expected


class TestSplits:
    @pytest.mark.parametrize(
        ("split", "options", "text"),
        [
            ("example", {}, "cannot be run end to end"),
            ("train", {"input_jsonl_fpath": "x"}, "input_jsonl_fpath"),
            ("tests", {}, "no split 'tests'"),
        ],
    )
    def test_what_a_serving_run_refuses(self, split: str, options: dict[str, Any], text: str) -> None:
        with pytest.raises(DatasetError, match=text):
            check_split(split, options)

    def test_what_it_takes(self) -> None:
        for split in ("train", "validation", "benchmark"):
            check_split(split, {"input_jsonl_fpath": None})

    def test_none_declared_lists_what_is(self) -> None:
        with pytest.raises(DatasetError, match="no dataset of split 'validation'") as raised:
            datasets_of_split(config(dataset("x"), dataset("ex", "example", "data/ex.jsonl")), "validation")
        assert [line.partition(":")[0] for line in raised.value.details] == ["dataset 'x' (train) of rs", "dataset 'ex' (example) of rs"]
        assert "--no-serve --input data/ex.jsonl" in str(raised.value)

    @pytest.mark.parametrize(
        ("entry", "text"),
        [
            ("x", "a dataset is a mapping"),
            ({"type": "train", "jsonl_fpath": "x"}, "name is missing"),
            (dataset(kind="tests"), "type 'tests'"),
            (dataset(num_repeats=0), "num_repeats"),
            (dataset(num_repeats=True), "num_repeats"),
            (dataset(taskset=""), "taskset"),
        ],
    )
    def test_a_declaration_that_is_wrong_is_named(self, entry: Any, text: str) -> None:
        with pytest.raises(DatasetError, match=text) as raised:
            declared_datasets(config(entry))
        assert raised.value.where == "rs.resources_servers.impl.datasets[0]"


class TestResolver:
    """Case 54: each rule has an error of its own."""

    def env(self, **fields: Any) -> dict[str, Any]:
        return {"e": {"environment_servers": {"turn": fields}}}

    @pytest.mark.parametrize(
        ("change", "call", "text"),
        [
            ({"environment_server_routes": {}}, {}, "has no route"),
            ({"environment_server_routes": {"ts": "a"}}, {}, "'a', which is not one environment server"),
            ({"e": {"environment_servers": {"x": {}, "y": {}}}}, {}, "not one environment server"),
            ({"e": {"environment_servers": {"x": None}}}, {}, "has no fields"),
            (
                {"e": {"environment_servers": {"x": {"agent_server": {"name": "rs"}}}}},
                {},
                "e.agent_server names 'rs', which is not an agent",
            ),
            ({"e": {"environment_servers": {"x": {}}}}, {}, "names no agent"),
            ({}, {"pin": "a"}, "pins agent 'a'"),
            ({"a2": {"responses_api_agents": {"x": {}}}}, {"instance": "a2"}, "of agent 'a2' is routed to 'e', which fronts a"),
            ({"rs2": {"resources_servers": {"x": {}}}}, {"instance": "rs2"}, "is bound to rs"),
        ],
    )
    def test_with_a_taskset(self, change: dict[str, Any], call: dict[str, Any], text: str) -> None:
        with pytest.raises(DatasetAgentError, match=text):
            resolve_dataset_agent(config(**change), **{"instance": "rs", "taskset": "ts", **call})

    def test_the_agent_of_a_taskset(self) -> None:
        assert resolve_dataset_agent(config(), "rs", taskset="ts") == "a"
        assert resolve_dataset_agent(config(), "a", taskset="ts") == "a"

    def test_case_55_several_agents_without_a_primary_give_none(self) -> None:
        reference = {"type": "responses_api_agents", "name": "a"}
        fields = {"user_agent": reference, "assistant_agent": reference, "resources_server": {"name": "rs"}}
        assert resolve_dataset_agent(config(e={"environment_servers": {"x": fields}}), "rs", taskset="ts") is None

    @pytest.mark.parametrize(
        ("instance", "pin", "extra", "expected"),
        [
            ("a", None, {}, "a"),
            ("a", "a", {}, "a"),
            ("rs", None, {}, "a"),
            ("rs", "a", {}, "a"),
            ("a", "b", {}, DatasetAgentError),
            ("rs", "zz", {}, DatasetAgentError),
            ("rs2", None, {}, DatasetAgentError),
            ("rs", None, {"b": {"responses_api_agents": {"x": {"resources_server": {"name": "rs"}}}}}, DatasetAgentError),
        ],
    )
    def test_without_a_taskset(self, instance: str, pin: str | None, extra: dict[str, Any], expected: Any) -> None:
        if isinstance(expected, str):
            assert resolve_dataset_agent(config(**extra), instance, pin=pin) == expected
        else:
            with pytest.raises(expected):
                resolve_dataset_agent(config(**extra), instance, pin=pin)


class TestMaterialize:
    def test_the_contracts_example(self) -> None:
        row = {"answer": "x", "_ng_task_index": 4, "_ng_other": 1, "skills_ref": {}}
        assert materialize(row, "ts:1", 9) == {
            "task_id": {"taskset": "ts:1", "task_id": "4"},
            "task_input": {"answer": "x"},
            "_ng_task_index": 4,
        }

    @pytest.mark.parametrize(
        ("row", "task_id"),
        [
            ({"task_id": 5, "problem_id": 6}, "5"),
            ({"task_id": None, "problem_id": "p"}, "p"),
            ({"instance_id": 0}, "0"),
            ({"_ng_task_index": 3}, "3"),
            ({}, "7"),
        ],
    )
    def test_where_the_id_comes_from(self, row: dict[str, Any], task_id: str) -> None:
        assert materialize(row, "t", 7)["task_id"]["task_id"] == task_id

    def test_case_61_collector_keys_stay_on_top(self) -> None:
        row = {"_ng_rollout_id": "rid", "_ng_attempt_index": 1, "_ng_rollout_index": 2, "agent_ref": {}, "task_source": "x"}
        assert materialize(row, "t", 0) == {
            "task_id": {"taskset": "t", "task_id": "0"},
            "task_input": {},
            "_ng_rollout_index": 2,
            "_ng_rollout_id": "rid",
            "_ng_attempt_index": 1,
        }

    @pytest.mark.parametrize("row", [{"task_input": None}, {"task_id": {}}, {"_ng_task_index": -1}, {"_ng_task_index": True}])
    def test_what_cannot_be_materialized(self, row: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"materialized|_ng_task_index"):
            materialize(row, "t", 0)


@pytest.mark.parametrize("text", ["- a", "system: x", "user: 3", "user: x\nsystem: [1]", "user: {x", "\t"])
def test_a_prompt_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(DatasetError, match="prompt"):
        load_prompt(path)


def test_skills_are_known_by_names_and_bytes(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: skill {name}\ndescription: d\nmetadata: {{version: 1.5}}\n---\ntext\n")
    one = skills_reference(tmp_path, "given/path")
    assert one["path"] == "given/path"
    assert one["skills"] == [{"name": f"skill {name}", "description": "d", "version": "1.5"} for name in ("a", "b")]
    (tmp_path / "a" / "more").write_text("x")
    assert skills_reference(tmp_path, "given/path")["hash"] != one["hash"]
    assert len(one["hash"]) == 12


@pytest.mark.parametrize("content", [None, "no front matter", "---\nname: x\n", "---\ndescription: x\n---\n", "---\n{\n---\n"])
def test_a_directory_that_holds_no_skill(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "a").mkdir()
    if content is not None:
        (tmp_path / "a" / "SKILL.md").write_text(content)
    with pytest.raises(DatasetError):
        skills_reference(tmp_path, "p")
