"""Example rows of NeMo Gym's own wheel: figures as in its metrics files, rows that fit its schemas (contract-data 3.4, 3.6)."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from gym_compose.project.data_process import DataProcesses
from gym_compose.tasks.dataset_metrics import BadRowError, DatasetMetrics
from gym_compose.tasks.metrics_file import differences
from gym_compose.tasks.rows import read_rows
from gym_compose.tasks.task_code import SCHEMA_FILE, RowCheckRequest
from gym_compose.tasks.text_tally import TextTally
from gym_compose.wire.settings import Settings

OF_THE_DATASET = {
    "name", "type", "jsonl_fpath", "num_repeats", "source", "gitlab_identifier", "huggingface_identifier", "license",
    "prepare_script", "prepare_dependencies", "prompt_config", "start_idx", "dataset_url",
}  # fmt: skip


def test_figures_are_those_of_the_metrics_files_that_are_up_to_date(peer_root: Path) -> None:
    """Of the others, NeMo Gym 0.7.0 makes the figures that we make: the files are older than its rule or their rows."""
    outcomes: Counter[str] = Counter()
    for metrics in sorted(peer_root.rglob("*_metrics.json")):
        rows = metrics.with_name(metrics.name.replace("_metrics.json", ".jsonl"))
        outcomes[_outcome(metrics, rows) if rows.is_file() else "no data"] += 1
    assert outcomes == {"equal": 137, "outdated": 31, "no data": 70}


def _outcome(metrics: Path, rows: Path) -> str:
    old = {key: value for key, value in json.loads(metrics.read_text("utf-8")).items() if key not in OF_THE_DATASET}
    with TextTally() as texts:
        made = DatasetMetrics(texts, 0)
        for source in read_rows(rows):
            try:
                made.observe(source.row)
            except BadRowError:
                continue  # the one dataset of a taskset whose rows have no params
        return "outdated" if differences(old, made.document(texts.summaries()[0].get(0, {}))) else "equal"


@pytest.mark.slow
def test_rows_fit_the_schemas_of_their_servers(peer_root: Path, tmp_path: Path) -> None:
    """Every twelfth server with a schema and an example: schemas import those of other servers."""
    processes = DataProcesses(os.environ, Settings(), tmp_path, lambda line: None)
    schemas = [
        file for file in sorted(peer_root.glob(f"resources_servers/*/{SCHEMA_FILE}")) if (file.parent / "data/example.jsonl").is_file()
    ]
    checked = 0
    for schema in schemas[::12]:
        request = RowCheckRequest(rows=str(schema.parent / "data/example.jsonl"), schema_file=str(schema), roots=[str(peer_root)])
        answer = processes.check_rows(request, schema.parent.name)
        assert answer.warnings == [], answer.warnings
        assert answer.report is not None
        assert answer.report.clean, (schema.parent.name, list(answer.report.lines()))
        checked += answer.report.rows
    assert checked >= 5 * len(schemas[::12]) - 10
