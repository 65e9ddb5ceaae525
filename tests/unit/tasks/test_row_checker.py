"""A server's own code on rows: what it is asked, and what becomes of code that fails (contract-data 3.4, 3.6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gym_compose.tasks.row_checker import check
from gym_compose.tasks.running_statistics import restored
from gym_compose.tasks.task_code import RowCheckAnswer, RowCheckRequest

SCHEMA = """
from pydantic import BaseModel, ConfigDict
class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")
    answer: int
"""


class Bench:
    """A directory with rows and a server's files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def ask(self, *rows: Any, schema: str | None = None, metrics: str | None = None, **fields: Any) -> RowCheckAnswer:
        (self.root / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        files = {}
        for key, name, text in (("schema_file", "task_data.py", schema), ("metrics_file", "dataset_metrics.py", metrics)):
            if text is not None:
                (self.root / name).write_text(text)
                files[key] = str(self.root / name)
        self.progress: list[int] = []
        return check(RowCheckRequest(rows=str(self.root / "rows.jsonl"), **files, **fields), self.progress.append)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_schema_reports_by_line(bench: Bench) -> None:
    answer = bench.ask({"answer": 1}, {"answer": "x"}, schema=SCHEMA)
    assert answer.report is not None
    assert (answer.report.rows, answer.report.errors[0].line, answer.report.errors[0].field) == (2, 2, "answer")
    assert (bench.progress, answer.warnings, answer.error) == ([1, 2], [], None)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1", "it has no TaskData"),
        ("TaskData = 5", "PydanticSchemaGenerationError"),
        ("raise ValueError('a\\nb')", "ValueError: a b"),
        ("def", "SyntaxError"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_warning(bench: Bench, schema: str, told: str) -> None:
    answer = bench.ask({"answer": 1}, schema=schema)
    assert (answer.report, answer.error) == (None, None)
    assert answer.warnings[0].startswith(f"rows are not checked against {bench.root}/task_data.py: {told}")


def metrics(body: str) -> str:
    return f"def compute_task_metrics(task_input):\n    {body}\n"


def shown(answer: RowCheckAnswer) -> dict[str, Any]:
    assert answer.error is None
    return {name: restored(state).summary() for name, state in answer.metrics.items()}


def test_figures_are_made_of_every_row_with_its_repeats(bench: Bench) -> None:
    code = metrics("return {'Keys': len(task_input), 'Kind': task_input['kind'], 'Steps': [1, 2.5, None], 'None': None, 'Flag': True}")
    rows = [
        {"kind": "a", "agent_ref": {}, "_ng_task_index": 1},
        {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"kind": "b", "x": 1}},
    ]
    found = shown(bench.ask(*rows, metrics=code, repeats=2, taskset=None))
    assert (found["Keys"]["Total # non-null values"], found["Keys"]["Average"]) == (4, 1.5)
    assert found["Kind"]["counts"] == {"a": 2, "b": 2}
    assert (found["Steps"]["Total # non-null values"], found["Flag"]["Average"]) == (8, 1.0)
    assert "None" not in found


def test_strictly_figures_are_made_of_materialized_rows_only(bench: Bench) -> None:
    rows = [{"kind": "a"}, {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"kind": "b"}}]
    found = shown(bench.ask(*rows, metrics=metrics("return {'Kind': task_input['kind']}"), strict=True))
    assert found["Kind"]["counts"] == {"b": 1}


def test_the_prompt_is_filled_in(bench: Bench) -> None:
    code = metrics("return {'Said': task_input['responses_create_params']['input'][0]['content']}")
    found = shown(bench.ask({"q": "why"}, metrics=code, prompt={"user": "Say {q}", "system": None}))
    assert found["Said"]["counts"] == {"Say why": 1}


@pytest.mark.parametrize(
    ("code", "told", "line"),
    [
        ("import nothing_of_that_name", "it cannot be imported: ModuleNotFoundError", None),
        ("x = 1", "it has no compute_task_metrics", None),
        ("compute_task_metrics = 5", "compute_task_metrics is no function", None),
        (metrics("return task_input['n']['x']"), "compute_task_metrics raised TypeError", 1),
        (metrics("return [1]"), "compute_task_metrics returned list, not a mapping", 1),
        (metrics("return {5: 1}"), "returned the name 5", 1),
        (metrics("return {'': 1}"), "returned the name ''", 1),
        (metrics("return {'Number of tools': 1}"), "returned 'Number of tools', which is a figure of every dataset", 1),
        (metrics("return {'x': {}}"), "returned 'x': {}, which is neither", 1),
        (metrics("return {'x': [1, float('nan')]}"), "returned 'x': nan, which is no finite number", 1),
        (metrics("return {'x': float('-inf')}"), "returned 'x': -inf, which is no finite number", 1),
        (metrics("return {'x': 10**400}"), "returned 'x': a number too large", 1),
        (metrics("return {'x': chr(0xD800)}"), r"returned 'x': '\ud800', which is no text in UTF-8", 1),
        (metrics("return {chr(0xD800): 'a'}"), r"returned '\ud800': 'a', which is no text in UTF-8", 1),
        (metrics("return {'x': 'a' if task_input['n'] == 1 else 5}"), "returned numbers and texts as 'x'", 2),
    ],
)
def test_figures_that_cannot_be_made_are_an_error(bench: Bench, code: str, told: str, line: int | None) -> None:
    answer = bench.ask({"n": 1}, {"n": 2}, metrics=code)
    assert answer.error is not None
    assert answer.error.startswith(f"{bench.root}/dataset_metrics.py: ")
    assert told in answer.error
    assert (answer.line, answer.metrics) == (line, {})


def test_a_file_that_is_no_jsonl_is_an_error_too(bench: Bench) -> None:
    (bench.root / "task_data.py").write_text(SCHEMA)
    (bench.root / "rows.jsonl").write_text("{}\nx\n")
    request = RowCheckRequest(rows=str(bench.root / "rows.jsonl"), schema_file=str(bench.root / "task_data.py"))
    assert "line 2: not valid JSON" in str(check(request, lambda rows: None).error)
