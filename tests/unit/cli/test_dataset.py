"""``gym dataset collate`` and ``render``: keys, output, what is fetched; the work itself is tested in ``tasks``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym_compose.cli import dataset as commands
from gym_compose.cli.translate import Invocation
from gym_compose.project.data_process import DataProcesses
from gym_compose.tasks.download import Download
from gym_compose.tasks.errors import DatasetError, DownloadError, TaskDataError
from gym_compose.wire.errors import UsageError

Invoke = Callable[..., Invocation]
ROW = '{"responses_create_params": {"input": "x"}, "answer": 1}\n'
SCHEMA = "from pydantic import BaseModel\nclass TaskData(BaseModel):\n    answer: str\n"


def config(root: Path, *datasets: dict[str, Any]) -> None:
    servers = {
        "rs": {"resources_servers": {"impl": {"entrypoint": "app.py", "domain": "math", "datasets": list(datasets)}}},
        "a": {
            "responses_api_agents": {
                "simple_agent": {
                    "entrypoint": "app.py",
                    "resources_server": {"type": "resources_servers", "name": "rs"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
        "e": {
            "environment_servers": {
                "turn": {
                    "entrypoint": "app.py",
                    "agent_server": {"type": "responses_api_agents", "name": "a"},
                    "resources_server": {"type": "resources_servers", "name": "rs"},
                }
            }
        },
        "environment_server_routes": {"ts": "e"},
    }
    (root / "c.yaml").write_text(json.dumps(servers))


def entry(kind: str = "train", path: str = "d.jsonl", **fields: Any) -> dict[str, Any]:
    return {"name": f"my-{kind}", "type": kind, "jsonl_fpath": path, "license": "MIT", **fields}


COLLATE = "dataset collate --config c.yaml --output-dir out --mode"


class TestCollate:
    def test_each_type_becomes_a_file(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        config(tmp_path, entry(num_repeats=2), entry("validation", "v.jsonl"), entry("example", "gone.jsonl"))
        for name in ("d.jsonl", "v.jsonl"):
            (tmp_path / name).write_text(ROW)
        assert commands.collate(invoke(f"{COLLATE} train_preparation --json"), captured.console) == 0
        made = json.loads(captured.stdout)
        assert [(file["type"], file["source_rows"], file["rows"]) for file in made["files"]] == [("train", 1, 2), ("validation", 1, 1)]
        assert Path(made["files"][0]["path"]).read_text().count("\n") == 2
        assert made["metrics_written"] == [str(tmp_path / "d_metrics.json"), str(tmp_path / "v_metrics.json")]

    def test_a_table_off_json(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        config(tmp_path, entry())
        (tmp_path / "d.jsonl").write_text(ROW)
        assert commands.collate(invoke(f"{COLLATE} train_preparation"), captured.console) == 0
        assert str(tmp_path / "out/train.jsonl") in captured.stdout
        assert f"metrics written: {tmp_path}/d_metrics.json" in captured.stderr

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("dataset collate --config c.yaml --mode train_preparation", "output_dirpath"),
            ("dataset collate --config c.yaml --output-dir o", "mode"),
            (f"{COLLATE} train_preparation +task_data_validation=strict", "task_data_validation"),
            (f"{COLLATE} train_preparation +data_source=ftp", "data_source"),
            ("dataset collate --config c.yaml --output-dir o +mode=other", "mode"),
        ],
    )
    def test_keys_that_are_missing_or_wrong(self, tmp_path: Path, invoke: Invoke, captured: Any, line: str, told: str) -> None:
        config(tmp_path, entry())
        with pytest.raises(UsageError, match=told):
            commands.collate(invoke(line), captured.console)

    def test_case_57_a_schema_is_an_error_for_examples_and_a_warning_for_training(
        self, tmp_path: Path, invoke: Invoke, captured: Any
    ) -> None:
        config(tmp_path, entry(), entry("example", "e.jsonl"))
        (tmp_path / "resources_servers/impl").mkdir(parents=True)
        (tmp_path / "resources_servers/impl/task_data.py").write_text(SCHEMA)
        for name in ("d.jsonl", "e.jsonl"):
            (tmp_path / name).write_text(ROW * 2)
        with pytest.raises(TaskDataError, match=r"e.jsonl, line 1: .*answer: Input should be a valid string \(and 1 more rows\)"):
            commands.collate(invoke(f"{COLLATE} example_validation"), captured.console)
        assert not (tmp_path / "out/example.jsonl").exists()
        assert commands.collate(invoke(f"{COLLATE} train_preparation"), captured.console) == 0
        assert "Warning: " in captured.stderr
        assert "d.jsonl, line 1: the row does not fit the task_data.py of impl: answer: " in captured.stderr
        assert commands.collate(invoke(f"{COLLATE} example_validation +task_data_validation=off"), captured.console) == 0

    def test_strict_ids_are_positions(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        config(tmp_path, entry(taskset="ts"))
        (tmp_path / "d.jsonl").write_text(ROW)
        for more, task_id in (("", "row-"), (" +compose.strict=true", "0")):
            assert commands.collate(invoke(f"{COLLATE} train_preparation{more}"), captured.console) == 0
            row = json.loads((tmp_path / "out/train.jsonl").read_text())
            assert row["task_id"]["task_id"].startswith(task_id)


class TestFetching:
    @pytest.fixture
    def fetched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        found: list[str] = []

        def fetch(self: DataProcesses, download: Download) -> None:
            found.append(f"{download.repo_id} {self.token}")
            Path(download.target).write_text(ROW)

        monkeypatch.setattr(DataProcesses, "fetch", fetch)
        config(
            tmp_path,
            entry(huggingface_identifier={"repo_id": "o/r"}),
            entry("example", "e.jsonl", huggingface_identifier={"repo_id": "o/e"}),
        )
        return found

    def test_only_with_the_flag_and_only_what_is_missing(self, invoke: Invoke, captured: Any, fetched: list[str]) -> None:
        with pytest.raises(DatasetError, match=r"is not on disk: d\.jsonl"):
            commands.collate(invoke(f"{COLLATE} train_preparation"), captured.console)
        for _ in range(2):
            line = f"{COLLATE} train_preparation --download +hf_token=t0ken"
            assert commands.collate(invoke(line), captured.console) == 0
        assert fetched == ["o/r t0ken"]
        assert "fetching o/r" in captured.stderr

    def test_examples_are_not_fetched(self, invoke: Invoke, captured: Any, fetched: list[str]) -> None:
        with pytest.raises(DatasetError, match=r"is not on disk: e\.jsonl"):
            commands.collate(invoke(f"{COLLATE} example_validation --download"), captured.console)
        assert fetched == []

    def test_what_a_script_makes_is_named_first(self, tmp_path: Path, invoke: Invoke, captured: Any, fetched: list[str]) -> None:
        config(tmp_path, entry(huggingface_identifier={"repo_id": "o/r"}), entry("validation", "v.jsonl", prepare_script="p.py"))
        with pytest.raises(DatasetError, match=r"gym eval prepare --config c\.yaml"):
            commands.collate(invoke(f"{COLLATE} train_preparation --download"), captured.console)
        assert fetched == []

    def test_no_source(self, tmp_path: Path, invoke: Invoke, captured: Any, fetched: list[str]) -> None:
        config(tmp_path, entry())
        with pytest.raises(DownloadError, match="has no source"):
            commands.collate(invoke(f"{COLLATE} train_preparation --download"), captured.console)


class TestRender:
    def test_rows_are_filled_in(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        (tmp_path / "in.jsonl").write_text('{"q": "why"}\n')
        (tmp_path / "p.yaml").write_text("user: 'Say {q}'\n")
        assert commands.render(invoke("dataset render -i in.jsonl --prompt-config p.yaml -o out/r.jsonl --json"), captured.console) == 0
        row = json.loads((tmp_path / "out/r.jsonl").read_text())
        assert (row["responses_create_params"]["input"][0]["content"], row["prompt_config_used"]) == ("Say why", str(tmp_path / "p.yaml"))
        assert json.loads(captured.stdout)["rows"] == 1

    def test_what_is_missing(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(UsageError, match="prompt_config, output_jsonl_fpath"):
            commands.render(invoke("dataset render -i in.jsonl"), captured.console)
        with pytest.raises(DatasetError, match=r"no such file: in\.jsonl"):
            commands.render(invoke("dataset render -i in.jsonl --prompt-config p.yaml -o o.jsonl"), captured.console)
