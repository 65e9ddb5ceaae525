"""Which scripts make which files, checked before any runs (contract-data 3.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gym_compose.tasks.errors import DatasetAgentError, DatasetError, PrepareError
from gym_compose.tasks.preparation import Preparation, preparations

SCRIPT = "def prepare():\n    return 1\n"


def config(*datasets: dict[str, Any]) -> dict[str, Any]:
    return {
        "rs": {"resources_servers": {"impl": {"datasets": list(datasets)}}},
        "a": {"responses_api_agents": {"simple": {"resources_server": {"name": "rs"}}}},
    }


def dataset(name: str = "d", kind: str = "benchmark", **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonl_fpath": f"data/{name}.jsonl", "prepare_script": "bench/prepare.py", **fields}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/prepare.py").write_text(SCRIPT)
    return tmp_path


def test_benchmarks_and_all_that_have_a_script(root: Path) -> None:
    declared = config(dataset(), dataset("t", "train"), dataset("u", "train", prepare_script=None))
    found = preparations(declared, [root])
    assert [(item.dataset.name, item.agent, item.environment_server) for item in found] == [("d", "a", None), ("t", "a", None)]
    assert found[0].script == root / "bench/prepare.py"


def test_the_request_names_the_module_below_its_root(root: Path, tmp_path: Path) -> None:
    [found] = preparations(config(dataset()), [root / "elsewhere", root])
    request = found.request([root / "elsewhere", root], {"n": 1})
    assert (request.module, request.script, request.arguments) == ("bench.prepare", str(root / "bench/prepare.py"), {"n": 1})
    assert found.request([root / "elsewhere"], {}).module is None


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT,
        "async def prepare(): ...\n",
        "from x import prepare\n",
        "from x import make as prepare\n",
        "prepare = print\n",
        "from x import *\n",
    ],
)
def test_a_script_that_has_the_function(root: Path, text: str) -> None:
    (root / "bench/prepare.py").write_text(text)
    assert len(preparations(config(dataset()), [root])) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "its prepare_script does not exist: bench/prepare.py"),
        ("x = 1\n", "has no function prepare()"),
        ("class A:\n    def prepare(self): ...\n", "has no function prepare()"),
        ("def", "cannot be read as Python"),
    ],
)
def test_a_script_that_cannot_run(root: Path, text: str | None, told: str) -> None:
    script = root / "bench/prepare.py"
    script.unlink() if text is None else script.write_text(text)
    with pytest.raises(DatasetError) as raised:
        preparations(config(dataset(), dataset("e", prepare_script="bench/other.py")), [root])
    assert told in raised.value.details[0]
    assert "2 datasets cannot be prepared: dataset 'd' (benchmark) of rs" in str(raised.value)
    assert "dataset 'e' (benchmark) of rs: its prepare_script does not exist: bench/other.py" in raised.value.details


def test_nothing_to_prepare(root: Path) -> None:
    with pytest.raises(DatasetError, match="no benchmark dataset, and no other dataset with a prepare_script") as raised:
        preparations(config(dataset(kind="train", prepare_script=None)), [root])
    assert raised.value.details == ("dataset 'd' (train) of rs: no prepare_script",)


def test_a_benchmark_without_a_script_and_one_that_nobody_runs(root: Path) -> None:
    with pytest.raises(DatasetError, match="has no prepare_script"):
        preparations(config(dataset(prepare_script=None)), [root])
    with pytest.raises(DatasetAgentError, match=r"dataset 'd' \(benchmark\) of rs: taskset 'ts' has no route"):
        preparations(config(dataset(taskset="ts")), [root])


class TestTheFile:
    @pytest.fixture
    def found(self, root: Path) -> Preparation:
        return preparations(config(dataset()), [root / "first", root])[0]

    def test_it_may_be_below_any_root(self, root: Path, found: Preparation) -> None:
        for place in (root / "first/data/d.jsonl", root / "data/d.jsonl"):
            place.parent.mkdir(parents=True)
            place.write_text("{}\n")
            found.check(place)

    def test_another_one_is_an_error(self, root: Path, found: Preparation) -> None:
        with pytest.raises(PrepareError, match=r"prepare\(\) made .*other.jsonl, and the dataset's file is data/d.jsonl"):
            found.check(root / "other.jsonl")

    def test_one_that_is_not_there_is_an_error(self, root: Path, found: Preparation) -> None:
        with pytest.raises(PrepareError, match="there is no such file"):
            found.check(root / "data/d.jsonl")
