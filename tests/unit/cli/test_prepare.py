"""``gym eval prepare``: what runs, what is kept, what is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym_compose.cli import prepare
from gym_compose.cli.translate import Invocation
from gym_compose.tasks.errors import DatasetError, PrepareError, RowError
from gym_compose.wire.errors import UsageError

Invoke = Callable[..., Invocation]
SCRIPT = """
from pathlib import Path
def prepare(rows=1):
    print("at work", flush=True)
    path = Path(__file__).with_name("d.jsonl")
    path.write_text('{"q": 1}\\n' * rows)
    return path
"""


def config(root: Path, *names: str, script: str = SCRIPT) -> None:
    datasets = []
    for name in names:
        (root / name).mkdir(exist_ok=True)
        (root / name / "prepare.py").write_text(script)
        datasets.append({"name": name, "type": "benchmark", "jsonl_fpath": f"{name}/d.jsonl", "prepare_script": f"{name}/prepare.py"})
    agent = {"entrypoint": "app.py", "model_server": {"type": "responses_api_models", "name": "policy_model"}, "datasets": datasets}
    (root / "c.yaml").write_text(json.dumps({"a": {"responses_api_agents": {"own": agent}}}))


def test_each_script_makes_its_file_and_says_so(tmp_path: Path, invoke: Invoke, captured: Any) -> None:
    config(tmp_path, "one", "two")
    line = "eval prepare --config c.yaml --json +prepare_script_args.rows=3 +num_prepare_benchmark_processes=2"
    assert prepare.run(invoke(line), captured.console) == 0
    found = json.loads(captured.stdout)
    assert [(item["name"], item["agent_name"], item["rows"], item["cached"]) for item in found] == [
        ("one", "a", 3, False),
        ("two", "a", 3, False),
    ]
    assert (tmp_path / "two/d.jsonl").read_text().count("\n") == 3
    assert "one: at work" in captured.stderr
    assert "1/2 dataset 'one' (benchmark) of a: running" in captured.stderr


def test_a_file_that_is_there_is_kept_where_that_is_asked_for(tmp_path: Path, invoke: Invoke, captured: Any) -> None:
    config(tmp_path, "one")
    (tmp_path / "one/d.jsonl").write_text("mine")
    assert prepare.run(invoke("eval prepare --config c.yaml +use_cached_prepared_benchmarks=true"), captured.console) == 0
    assert (tmp_path / "one/d.jsonl").read_text() == "mine"
    assert "kept as it is" in captured.stderr
    assert prepare.run(invoke("eval prepare --config c.yaml"), captured.console) == 0
    assert (tmp_path / "one/d.jsonl").read_text() == '{"q": 1}\n'


def test_nothing_runs_when_one_script_is_missing(tmp_path: Path, invoke: Invoke, captured: Any) -> None:
    config(tmp_path, "one", "two")
    (tmp_path / "two/prepare.py").unlink()
    with pytest.raises(DatasetError, match=r"its prepare_script does not exist: two/prepare\.py"):
        prepare.run(invoke("eval prepare --config c.yaml"), captured.console)
    assert not (tmp_path / "one/d.jsonl").exists()


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, invoke: Invoke, captured: Any) -> None:
    config(tmp_path, "one", "two", "three")
    for name in ("one", "three"):
        (tmp_path / name / "prepare.py").write_text("def prepare():\n    raise OSError('no network')\n")
    with pytest.raises(PrepareError, match=r"one/prepare\.py .*the script failed: OSError: no network") as raised:
        prepare.run(invoke("eval prepare --config c.yaml"), captured.console)
    assert "also failed: three/prepare.py" in raised.value.details[-1]
    assert (tmp_path / "two/d.jsonl").is_file()


def test_a_file_without_any_row(tmp_path: Path, invoke: Invoke, captured: Any) -> None:
    config(tmp_path, "one")
    with pytest.raises(PrepareError, match=r"one/prepare.py of dataset 'one' .*made a file without rows: .*one/d.jsonl"):
        prepare.run(invoke("eval prepare --config c.yaml +prepare_script_args.rows=0"), captured.console)


def test_a_file_that_holds_no_rows(tmp_path: Path, invoke: Invoke, captured: Any) -> None:
    config(tmp_path, "one", script=SCRIPT.replace('{"q": 1}', "q"))
    with pytest.raises(RowError, match=r"one/d.jsonl, line 1: not valid JSON"):
        prepare.run(invoke("eval prepare --config c.yaml"), captured.console)


@pytest.mark.parametrize("key", ["num_prepare_benchmark_processes=0", "prepare_script_args=5", "use_cached_prepared_benchmarks=perhaps"])
def test_keys_that_are_wrong(tmp_path: Path, invoke: Invoke, captured: Any, key: str) -> None:
    config(tmp_path, "one")
    with pytest.raises(UsageError, match=key.partition("=")[0]):
        prepare.run(invoke(f"eval prepare --config c.yaml +{key}"), captured.console)
