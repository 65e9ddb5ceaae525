"""Declared datasets, splits, collation, materialization (contract-data 1.1, 3.1, 3.3 to 3.5; cases 51 to 56, 61)."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.tasks.agents import resolve_dataset_agent
from gym_compose.tasks.collate import Collation, CollationOptions, collate, effective_validation, prepared_path
from gym_compose.tasks.datasets import check_split, datasets_of_split, declared_datasets
from gym_compose.tasks.errors import DatasetAgentError, DatasetError, RowError, TaskCodeError, TaskDataError
from gym_compose.tasks.materialize import content_id, materialize
from gym_compose.tasks.prompt import load_prompt
from gym_compose.tasks.running_statistics import NumberStatistics
from gym_compose.tasks.skills import skills_reference
from gym_compose.tasks.task_code import RowCheckAnswer, RowCheckRequest
from gym_compose.tasks.task_data import KeyFault, RowFault, TaskDataReport
from gym_compose.tasks.type_collation import Tools
from gym_compose.wire.flat_task import given_id

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))


def flat(text: str = "q", **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": text}, **fields}


@dataclass
class Told:
    """Lines of progress, and what a server's code was asked; ``answer`` is what it says."""

    lines: list[str] = field(default_factory=list)
    asked: list[RowCheckRequest] = field(default_factory=list)
    answer: RowCheckAnswer = field(default_factory=RowCheckAnswer)

    def check(self, request: RowCheckRequest, label: str) -> RowCheckAnswer:
        self.asked.append(request)
        return self.answer

    @property
    def tools(self) -> Tools:
        return Tools(self.check, self.lines.append, 0.0)


def made(root: Path, declared: dict[str, Any], *types: str, told: Told | None = None, **options: Any) -> Collation:
    chosen = CollationOptions(root / "out", types or ("train",), **options)
    return collate(declared, chosen, [root], (told or Told()).tools)


def collated(root: Path, declared: dict[str, Any], split: str = "train", **options: Any) -> list[dict[str, Any]]:
    file = made(root, declared, split, **options).file(split)
    rows = [orjson.loads(line) for line in file.path.read_bytes().splitlines()]
    assert file.rows == len(rows)
    return rows


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["task_id"]["task_id"] for row in rows]


class TestCollate:
    def test_rows_get_the_declaring_instance_and_lose_their_agent(self, tmp_path: Path) -> None:
        write(tmp_path, flat(agent_ref={"name": "z"}, task_source="old", answer=1))
        declared = config(dataset(num_repeats=2))
        assert collated(tmp_path, declared) == [flat(task_source="rs", answer=1)] * 2
        assert "agent_ref is left out of 1 rows" in made(tmp_path, declared).warnings[0]

    def test_datasets_follow_each_other_in_the_order_of_the_config(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1), flat(n=2))
        write(tmp_path, flat(n=3), name="data/e.jsonl")
        rows = collated(tmp_path, config(dataset("x"), dataset("v", "validation"), dataset("y", path="data/e.jsonl")))
        assert [row["n"] for row in rows] == [1, 2, 3]

    def test_each_type_gets_a_file_and_its_metrics(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1), name="data/t.jsonl")
        write(tmp_path, flat(n=2), flat(n=4), name="data/v.jsonl")
        declared = config(dataset("t", path="data/t.jsonl"), dataset("v", "validation", "data/v.jsonl"))
        result = made(tmp_path, declared, "train", "validation", "benchmark")
        assert [(file.type, file.rows, file.sources) for file in result.files] == [("train", 1, 1), ("validation", 2, 2)]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "train.jsonl", "train_metrics.json", "validation.jsonl", "validation_metrics.json",
        ]  # fmt: skip
        figures = json.loads((tmp_path / "out/validation_metrics.json").read_text())
        assert figures["Number of examples"] == 2
        assert figures["n"]["Average"] == 3.0

    def test_materialized_rows_stay_as_they_are_but_for_their_source(self, tmp_path: Path) -> None:
        row = {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {"q": 1}}
        write(tmp_path, row)
        assert collated(tmp_path, config(dataset())) == [{**row, "task_source": "rs"}]

    def test_cases_51_and_52_strictly_ids_are_positions_and_repeats_share_one(self, tmp_path: Path) -> None:
        write(tmp_path, flat(answer=1), {"answer": 2, "task_id": 5})
        rows = collated(tmp_path, config(dataset(taskset="ts", num_repeats=2)), strict=True)
        assert [row["task_id"] for row in rows] == [{"taskset": "ts", "task_id": i} for i in ("0", "0", "5", "5")]
        assert rows[0]["task_input"] == flat(answer=1)
        assert rows[2]["task_input"] == {"answer": 2, "task_id": 5}

    def test_cases_51_and_52_an_id_is_the_rows_own_or_one_of_its_content(self, tmp_path: Path) -> None:
        write(tmp_path, flat(answer=1), {"answer": 2, "task_id": 5})
        rows = collated(tmp_path, config(dataset(taskset="ts", num_repeats=2)))
        assert ids(rows) == [content_id(flat(answer=1))] * 2 + ["5"] * 2
        assert rows[2]["task_input"] == {"answer": 2, "task_id": 5}

    def test_strict_positions_count_over_all_datasets_of_the_type(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1), flat(n=2))
        rows = collated(tmp_path, config(dataset("x"), dataset("x", taskset="ts")), strict=True)
        assert ids(rows[2:]) == ["2", "3"]

    def test_an_id_is_the_same_wherever_the_row_stands(self, tmp_path: Path) -> None:
        write(tmp_path, flat("a"), flat("b"))
        before = ids(collated(tmp_path, config(dataset("x", taskset="ts"))))
        write(tmp_path, flat("new"), name="data/first.jsonl")
        write(tmp_path, flat("b"), flat("a"), name="data/d.jsonl")
        declared = config(dataset("first", path="data/first.jsonl", taskset="ts"), dataset("x", taskset="ts"))
        assert ids(collated(tmp_path, declared, replace_type_metrics=True))[1:] == before[::-1]

    def test_case_53_a_taskset_on_materialized_rows(self, tmp_path: Path) -> None:
        write(tmp_path, {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {}})
        with pytest.raises(RowError, match=r"d.jsonl, line 1: .*materialized already"):
            collated(tmp_path, config(dataset(taskset="ts")))

    def test_case_56_agent_beside_taskset_is_refused_for_every_type(self, tmp_path: Path) -> None:
        for kind in ("train", "validation", "example", "benchmark"):
            with pytest.raises(DatasetAgentError, match=rf"dataset 'd' \({kind}\) of rs: .*pins agent 'a'"):
                collated(tmp_path, config(dataset(kind=kind, taskset="ts", agent="a")), kind)

    def test_case_55_a_server_of_several_agents_takes_the_taskset_of_its_resources_server(self, tmp_path: Path) -> None:
        reference = {"type": "responses_api_agents", "name": "a"}
        fields = {"user_agent": reference, "assistant_agent": reference, "resources_server": {"name": "rs"}}
        write(tmp_path, {"persona": "impatient"})
        rows = collated(tmp_path, config(dataset(taskset="ts"), e={"environment_servers": {"sim": fields}}))
        assert rows == [
            {"task_id": {"taskset": "ts", "task_id": content_id({"persona": "impatient"})}, "task_input": {"persona": "impatient"}}
        ]

    def test_case_61_the_rollout_id_of_a_row_stays_on_top(self, tmp_path: Path) -> None:
        write(tmp_path, flat(_ng_rollout_id="rid", problem_id="p"))
        [row] = collated(tmp_path, config(dataset(taskset="ts")))
        assert row == {"task_id": {"taskset": "ts", "task_id": "p"}, "task_input": flat(problem_id="p"), "_ng_rollout_id": "rid"}

    def test_a_failure_leaves_no_file_and_an_earlier_one_as_it_was(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        collated(tmp_path, config(dataset()))
        before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        write(tmp_path, flat(), b"nonsense\n")
        with pytest.raises(RowError, match="line 2"):
            collated(tmp_path, config(dataset()))
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before

    def test_a_missing_file_names_the_command_that_makes_it_and_nothing_is_written(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        gone = dataset("gone", path="data/gone.jsonl", prepare_script="data/prepare.py")
        (tmp_path / "my config.yaml").write_text(json.dumps({"rs": {"resources_servers": {"x": {"datasets": [gone]}}}}))
        with pytest.raises(DatasetError) as raised:
            collated(tmp_path, config(dataset(), gone, config_paths=["other.yaml", "my config.yaml"]))
        assert "'gone' (train) of rs is not on disk: data/gone.jsonl" in str(raised.value)
        assert "Run `gym eval prepare --config 'my config.yaml'`: data/prepare.py makes it." in str(raised.value)
        assert not (tmp_path / "out").exists()

    def test_several_missing_files_are_all_listed(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="2 datasets") as raised:
            collated(tmp_path, config(dataset("x"), dataset("y", prepare_script="p.py")))
        assert [("p.py" in line, "no prepare_script" in line) for line in raised.value.details] == [(False, True), (True, False)]

    def test_the_first_root_wins(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            write(tmp_path / name, flat(n=name))
        result = collate(
            config(dataset()), CollationOptions(tmp_path / "o", ("train",)), [tmp_path / "two", tmp_path / "one"], Told().tools
        )
        assert orjson.loads(result.file("train").path.read_bytes())["n"] == "two"

    def test_a_benchmark_prompt_is_applied_and_counted(self, tmp_path: Path) -> None:
        write(tmp_path, {"q": "why"})
        (tmp_path / "p.yaml").write_text("user: 'Say {q}'\n")
        declared = config(dataset(kind="benchmark", prepare_script="x.py", prompt_config="p.yaml"))
        rows = collated(tmp_path, declared, "benchmark")
        assert rows[0]["responses_create_params"] == {"input": [{"role": "user", "content": "Say why"}]}
        assert json.loads((tmp_path / "out/benchmark_metrics.json").read_text())["Number of examples"] == 1

    def test_a_row_that_the_prompt_does_not_fit_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, {"q": "why"}, {"p": 1}, flat(q=1))
        (tmp_path / "p.yaml").write_text("user: 'Say {q}'\n")
        declared = config(dataset(kind="benchmark", prepare_script="x.py", prompt_config="p.yaml"))
        with pytest.raises(RowError, match=r"line 2: .*names the field 'q'.*and 1 more rows") as raised:
            collated(tmp_path, declared, "benchmark")
        assert raised.value.details[1] == "line 3: responses_create_params.input: the row has one, and its dataset a prompt_config"

    def test_a_taskset_that_cannot_be_routed_aborts_before_files_are_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetAgentError, match=r"dataset 'd' \(train\) of rs: taskset 'tz' has no route"):
            collated(tmp_path, config(dataset(taskset="tz")))

    @pytest.mark.parametrize(
        ("kind", "text"), [("responses_api_models", "a model server"), ("environment_servers", "an environment server")]
    )
    def test_only_resources_servers_and_agents_declare_datasets(self, tmp_path: Path, kind: str, text: str) -> None:
        with pytest.raises(DatasetError, match=text) as raised:
            collated(tmp_path, config(dataset(), m={kind: {"x": {"datasets": [dataset()]}}}))
        assert raised.value.where == f"m.{kind}.x.datasets"

    def test_progress_is_told_while_rows_are_read(self, tmp_path: Path) -> None:
        write(tmp_path, *[flat(n=number) for number in range(1000)])
        told = Told()
        made(tmp_path, config(dataset()), told=told)
        assert told.lines == ["dataset 'd' (train) of rs: 1000 rows read"]


class TestBadRows:
    """Case 59 and what is like it: a row that no run can send is an error here; strictly it only changes no figure."""

    ROWS = (flat(), {"answer": 1}, {"responses_create_params": {"input": "x", "temperature": "hot"}})

    def test_case_59_it_is_named_with_its_field_and_how_many_there_are(self, tmp_path: Path) -> None:
        write(tmp_path, *self.ROWS)
        with pytest.raises(RowError, match=r"d.jsonl, line 2: .*responses_create_params: the row has none \(and 1 more rows") as raised:
            collated(tmp_path, config(dataset()))
        assert raised.value.details[1].startswith("line 3: responses_create_params.temperature: ")
        assert list((tmp_path / "out").iterdir()) == []

    def test_case_59_strictly_it_is_collated_and_not_counted(self, tmp_path: Path) -> None:
        write(tmp_path, *self.ROWS)
        assert len(collated(tmp_path, config(dataset()), strict=True)) == 3
        assert json.loads((tmp_path / "out/train_metrics.json").read_text())["Number of examples"] == 1

    def test_rows_of_a_taskset_need_no_params(self, tmp_path: Path) -> None:
        write(tmp_path, {"answer": 1})
        assert len(collated(tmp_path, config(dataset(taskset="ts")))) == 1
        assert json.loads((tmp_path / "out/train_metrics.json").read_text())["Number of examples"] == 1

    @pytest.mark.parametrize("taskset", [None, "ts"])
    @pytest.mark.parametrize("given", [{}, {"problem_id": "p"}])
    def test_a_row_that_is_nested_too_deep_to_be_written(self, tmp_path: Path, taskset: str | None, given: dict[str, Any]) -> None:
        deep = json.dumps(flat(**given, deep=json.loads("[" * 300 + "]" * 300)))
        write(tmp_path, flat(), f"{deep}\n".encode())
        with pytest.raises(RowError, match=r"d.jsonl, line 2: the row is nested deeper than the 254 levels"):
            collated(tmp_path, config(dataset(**({} if taskset is None else {"taskset": taskset}))))
        assert list((tmp_path / "out").iterdir()) == []

    def test_a_row_whose_id_is_an_empty_text(self, tmp_path: Path) -> None:
        write(tmp_path, flat(), flat(task_id=""))
        with pytest.raises(RowError, match=r"d.jsonl, line 2: task_id is an empty text"):
            collated(tmp_path, config(dataset(taskset="ts")))

    @pytest.mark.parametrize("part", [{"task_id": {"taskset": "", "task_id": "1"}}, {"task_id": {"taskset": "t"}}, {"task_input": None}])
    def test_a_materialized_row_whose_parts_are_no_task(self, tmp_path: Path, part: dict[str, Any]) -> None:
        write(tmp_path, {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}, **part})
        with pytest.raises(RowError, match=r"line 1: .*stands here"):
            collated(tmp_path, config(dataset()))


def test_a_dataset_without_rows_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    found = made(tmp_path, config(dataset()))
    assert found.file("train").rows == 0
    assert found.warnings == (f"{tmp_path}/data/d.jsonl: dataset 'd' (train) of rs holds no rows",)


@pytest.mark.parametrize("place", ["file/below", "x" * 300])
def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    write(tmp_path, flat())
    with pytest.raises(DatasetError, match="the rows cannot be written"):
        collate(config(dataset()), CollationOptions(directory=tmp_path / place), [tmp_path], Told().tools)


class TestUniqueIds:
    def test_two_rows_with_one_id_are_both_named(self, tmp_path: Path) -> None:
        write(tmp_path, flat("a", problem_id="p"), flat("b"), name="data/one.jsonl")
        write(tmp_path, flat("c"), flat("d", problem_id="p"), flat("e", problem_id="p"), name="data/two.jsonl")
        declared = config(dataset("x", path="data/one.jsonl", taskset="ts"), dataset("y", path="data/two.jsonl", taskset="ts"))
        with pytest.raises(RowError) as raised:
            collated(tmp_path, declared)
        assert str(raised.value).startswith(
            f"{tmp_path}/data/two.jsonl, line 2: task id 'p' of taskset 'ts' is also that of "
            f"{tmp_path}/data/one.jsonl, line 1, and 1 more rows"
        )
        assert raised.value.details == (f"{tmp_path}/data/one.jsonl, line 1", f"{tmp_path}/data/two.jsonl, line 2")
        assert list((tmp_path / "out").iterdir()) == []

    def test_two_equal_rows_without_ids(self, tmp_path: Path) -> None:
        write(tmp_path, flat(a=1, b=2), flat(b=2, a=1))
        with pytest.raises(RowError, match=r"line 2: task id 'row-.*neither row brings an id"):
            collated(tmp_path, config(dataset(taskset="ts")))

    def test_one_id_in_two_tasksets_is_two_tasks(self, tmp_path: Path) -> None:
        write(tmp_path, flat(problem_id="p"))
        declared = config(dataset("x", taskset="ts"), dataset("x", taskset="tt"), environment_server_routes={"ts": "e", "tt": "e"})
        assert ids(collated(tmp_path, declared)) == ["p", "p"]

    def test_materialized_rows_are_looked_at_too_but_rollouts_of_one_task_share_its_id(self, tmp_path: Path) -> None:
        task = {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {}}
        write(tmp_path, {**task, "_ng_rollout_index": 0}, {**task, "_ng_rollout_index": 1})
        assert len(collated(tmp_path, config(dataset()))) == 2
        write(tmp_path, task, task)
        with pytest.raises(RowError, match="task id '1' of taskset 'ts' is also that of"):
            collated(tmp_path, config(dataset()))

    def test_strictly_nobody_looks(self, tmp_path: Path) -> None:
        write(tmp_path, flat("a", problem_id="p"), flat("b", problem_id="p"))
        assert ids(collated(tmp_path, config(dataset(taskset="ts")), strict=True)) == ["p", "p"]


class TestMetricsFiles:
    def figures(self, root: Path, name: str = "data/d_metrics.json") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((root / name).read_text())
        return found

    def test_they_stand_beside_the_data_with_the_datasets_own_keys(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1, tag="x"), flat(n=2, tag="x"))
        result = made(tmp_path, config(dataset(taskset="ts", license="MIT", num_repeats=2)))
        assert result.metrics == (tmp_path / "data/d_metrics.json",)
        found = self.figures(tmp_path)
        assert {key: found[key] for key in ("name", "type", "jsonl_fpath", "num_repeats", "license")} == {
            "name": "d", "type": "train", "jsonl_fpath": "data/d.jsonl", "num_repeats": 2, "license": "MIT",
        }  # fmt: skip
        assert "taskset" not in found
        assert (found["Number of examples"], found["tag"]) == (4, {"unique_count": 1, "total_count": 4})

    def test_equal_figures_are_not_written_again(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        made(tmp_path, config(dataset()))
        before = (tmp_path / "data/d_metrics.json").stat().st_mtime_ns
        assert made(tmp_path, config(dataset())).metrics == ()
        assert (tmp_path / "data/d_metrics.json").stat().st_mtime_ns == before

    def test_others_are_a_conflict_with_a_file_of_its_own(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        made(tmp_path, config(dataset()))
        before = (tmp_path / "out/train.jsonl").read_bytes()
        write(tmp_path, flat(n=1), flat(n=2))
        with pytest.raises(DatasetError, match="figures of the rows are not those of the file: Number of examples: 1 before, 2 now"):
            made(tmp_path, config(dataset()))
        assert (
            self.figures(tmp_path)["Number of examples"],
            self.figures(tmp_path, "data/d_metrics_conflict.json")["Number of examples"],
        ) == (1, 2)
        assert (tmp_path / "out/train.jsonl").read_bytes() == before

    def test_with_overwrite_they_are_replaced_and_that_is_told(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        made(tmp_path, config(dataset()))
        write(tmp_path, flat(n=1), flat(n=2))
        result = made(tmp_path, config(dataset()), overwrite_metrics=True)
        assert "were replaced" in result.warnings[0]
        assert self.figures(tmp_path)["Number of examples"] == self.figures(tmp_path, "out/train_metrics.json")["Number of examples"] == 2

    def test_case_60_one_file_under_two_names_conflicts_with_itself(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        with pytest.raises(DatasetError, match='name: "x" before, "y" now'):
            made(tmp_path, config(dataset("x"), dataset("y")))
        assert not (tmp_path / "out/train.jsonl").exists()

    def test_a_conflict_of_one_type_leaves_the_others(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        write(tmp_path, flat(n=2), name="data/v.jsonl")
        declared = config(dataset(), dataset("v", "validation", "data/v.jsonl"))
        (tmp_path / "out").mkdir()
        (tmp_path / "out/train_metrics.json").write_text('{"Number of examples": 7}')
        with pytest.raises(DatasetError, match="Number of examples: 7 before, 1 now"):
            made(tmp_path, declared, "train", "validation")
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "train_metrics.json", "train_metrics_conflict.json", "validation.jsonl", "validation_metrics.json",
        ]  # fmt: skip

    def test_a_file_that_counted_no_row_is_replaced(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        (tmp_path / "data/d_metrics.json").write_text('{"Number of examples": 0, "old": 1}')
        made(tmp_path, config(dataset()))
        assert self.figures(tmp_path)["Number of examples"] == 1

    @pytest.mark.parametrize("text", ["{", "[]", "null"])
    def test_a_file_that_is_none(self, tmp_path: Path, text: str) -> None:
        write(tmp_path, flat(n=1))
        (tmp_path / "data/d_metrics.json").write_text(text)
        with pytest.raises(DatasetError, match="metrics"):
            made(tmp_path, config(dataset()))

    def test_nothing_is_written_below_an_installed_tree_or_beside_the_data_of_a_run(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        for options in ({"installed": (tmp_path,)}, {"beside": False}):
            result = made(tmp_path, config(dataset("my/name")), replace_type_metrics=True, **options)
            assert result.metrics == (tmp_path / "out/train.rs.my-name.d_metrics.json",)
            assert [path.name for path in (tmp_path / "data").iterdir()] == ["d.jsonl"]

    def test_a_directory_that_cannot_be_written_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, flat(n=1))
        monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path / "data")
        assert made(tmp_path, config(dataset())).metrics == (tmp_path / "out/train.rs.d.d_metrics.json",)


class TestServersCode:
    """What is asked of a server's own code, and what becomes of its answer; the code itself: ``test_row_checker``."""

    def code(self, root: Path, *names: str, kind: str = "resources_servers/impl") -> None:
        for name in names:
            path = root / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def report(self, **fields: Any) -> RowCheckAnswer:
        return RowCheckAnswer(report=TaskDataReport(rows=9, **fields))

    def test_a_server_without_code_is_not_asked(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        told = Told()
        made(tmp_path, config(dataset()), told=told)
        assert told.asked == []

    def test_validation_off_leaves_the_figures(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        self.code(tmp_path, "task_data.py")
        told = Told()
        made(tmp_path, config(dataset()), told=told, validation="off")
        assert told.asked == []
        self.code(tmp_path, "dataset_metrics.py")
        made(tmp_path, config(dataset()), told=told, validation="off")
        assert [(request.schema_file, request.metrics_file is not None) for request in told.asked] == [(None, True)]

    def test_case_57_rows_that_do_not_fit_are_an_error_or_a_warning(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        self.code(tmp_path, "task_data.py")
        told = Told(answer=self.report(unknown={"colour": KeyFault(rows=3, line=4)}))
        with pytest.raises(TaskDataError, match=r"d.jsonl, line 4: .*task_data.py of impl: colour: not declared by the schema \(3 rows\)"):
            made(tmp_path, config(dataset()), told=told, validation="error")
        assert not (tmp_path / "out/train.jsonl").exists()
        assert "colour: not declared" in made(tmp_path, config(dataset()), told=told, validation="warn").warnings[0]
        assert effective_validation("auto", "example_validation") == "error"
        assert effective_validation("auto", "train_preparation") == "warn"
        assert effective_validation("off", "example_validation") == "off"

    def test_a_violation_names_file_line_field_and_how_many_more(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        self.code(tmp_path, "task_data.py")
        faults = [RowFault(line=2, field="answer", message="Field required"), RowFault(line=5, field="", message="bad")]
        told = Told(answer=self.report(error_rows=12, errors=faults, unknown={"k": KeyFault(rows=1, line=3)}))
        with pytest.raises(TaskDataError) as raised:
            made(tmp_path, config(dataset()), told=told, validation="error")
        assert f"{tmp_path}/data/d.jsonl, line 2: " in str(raised.value)
        assert "answer: Field required (and 11 more rows, 1 more keys)" in str(raised.value)
        assert raised.value.details == ("line 2: answer: Field required", "line 5: bad", "line 3: k: not declared by the schema")

    def test_figures_of_tasks_stand_in_both_files_and_add_up(self, tmp_path: Path) -> None:
        write(tmp_path, flat(n=1))
        write(tmp_path, flat(n=2), name="data/e.jsonl")
        self.code(tmp_path, "dataset_metrics.py")
        steps = NumberStatistics()
        steps.observe(3, 2)
        told = Told(answer=RowCheckAnswer(metrics={"Steps": steps.state()}))
        made(tmp_path, config(dataset(taskset="ts"), dataset("e", path="data/e.jsonl")), told=told)
        for name, total in (("data/d_metrics.json", 2), ("out/train_metrics.json", 4)):
            found = json.loads((tmp_path / name).read_text())["Steps"]
            assert (found["Total # non-null values"], found["Average"]) == (total, 3.0)

    def test_code_that_fails_ends_the_collation(self, tmp_path: Path) -> None:
        write(tmp_path, flat())
        self.code(tmp_path, "dataset_metrics.py")
        with pytest.raises(TaskCodeError, match=r"d.jsonl, line 7: .*broke"):
            made(tmp_path, config(dataset()), told=Told(answer=RowCheckAnswer(error="it broke", line=7)))

    @pytest.mark.parametrize(
        ("agent", "home"),
        [
            ({"resources_server": {"name": "rs"}}, "resources_servers/impl"),
            ({}, "responses_api_agents/own"),
            ({"resources_server": {"name": "gone"}}, None),
        ],
    )
    def test_whose_code_it_is_for_datasets_of_an_agent(self, tmp_path: Path, agent: dict[str, Any], home: str | None) -> None:
        write(tmp_path, flat())
        for kind in ("resources_servers/impl", "responses_api_agents/own"):
            self.code(tmp_path, "task_data.py", kind=kind)
        told = Told()
        made(tmp_path, config(b={"responses_api_agents": {"own": {**agent, "datasets": [dataset()]}}}), told=told)
        assert [request.schema_file for request in told.asked] == ([] if home is None else [str(tmp_path / home / "task_data.py")])


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
            ({"environment_server_routes": {"ts": "a"}}, {}, "it holds responses_api_agents"),
            (
                {"environment_server_routes": {"ts": "gone"}},
                {},
                "'gone', which is not one environment server: the config has no such block",
            ),
            ({"environment_server_routes": {"ts": ["e", "f"]}}, {}, "'ts' is routed to 2 servers: e, f"),
            ({"e": {"environment_servers": {"x": {}, "y": {}}}}, {}, "not one environment server but 2: x, y"),
            ({"e": {}}, {}, "its block is empty"),
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
        assert materialize(row, "ts:1", given_id(row) or "") == {
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
            ({"id": "x"}, None),
            ({}, None),
        ],
    )
    def test_the_id_that_a_row_brings(self, row: dict[str, Any], task_id: str | None) -> None:
        assert given_id(row) == task_id

    def test_case_61_collector_keys_stay_on_top(self) -> None:
        row = {"_ng_rollout_id": "rid", "_ng_attempt_index": 1, "_ng_rollout_index": 2, "agent_ref": {}, "task_source": "x"}
        assert materialize(row, "t", "0") == {
            "task_id": {"taskset": "t", "task_id": "0"},
            "task_input": {},
            "_ng_rollout_index": 2,
            "_ng_rollout_id": "rid",
            "_ng_attempt_index": 1,
        }

    @pytest.mark.parametrize("row", [{"task_input": None}, {"task_id": {}}])
    def test_what_cannot_be_materialized(self, row: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="materialized"):
            materialize(row, "t", "0")

    @pytest.mark.parametrize("key", ["task_id", "problem_id", "instance_id"])
    def test_an_empty_text_is_no_id(self, key: str) -> None:
        with pytest.raises(ValueError, match=f"{key} is an empty text"):
            given_id({key: "", "_ng_task_index": 1})

    @pytest.mark.parametrize("index", [-1, True, "1", 1.0, None])
    def test_an_index_that_is_none(self, index: Any) -> None:
        with pytest.raises(ValueError, match="_ng_task_index"):
            given_id({"_ng_task_index": index})

    @given(st.dictionaries(st.text(), JSON, max_size=6), st.randoms())
    def test_an_id_of_content_does_not_depend_on_the_order_of_keys_or_on_routing(self, row: dict[str, Any], draw: random.Random) -> None:
        keys = list(row)
        draw.shuffle(keys)
        routed = {"agent_ref": {"name": "z"}, **{key: row[key] for key in keys}, "_ng_rollout_index": 3}
        plain = {key: value for key, value in row.items() if key not in routed or key in keys}
        assert content_id(routed | {"agent_ref": {"name": "y"}}) == content_id(plain | {"task_source": "s"})
        assert content_id({**plain, "more": "x", "other": 1}) != content_id({**plain, "more": "x", "other": 2})


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
