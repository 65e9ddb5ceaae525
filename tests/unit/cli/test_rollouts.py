"""``gym eval view``, ``profile``, ``aggregate`` and ``reverify`` as a user calls them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.cli.main import run
from gym_compose.cli.rollouts import expand

Gym = Callable[..., int]


@pytest.fixture
def gym(captured: Any, tmp_path: Path) -> Gym:
    """Runs a command line in ``tmp_path``; gives its exit status."""
    return lambda *argv: run(argv, cwd=tmp_path, environ={}, console=captured.console)


def run_files(cwd: Path) -> Path:
    """A run of two tasks."""
    keys = [{"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}} for task in range(2)]
    rollouts = cwd / "run.jsonl"
    rollouts.write_bytes(b"".join(orjson.dumps({"reward": 1.0, **key}) + b"\n" for key in keys))
    (cwd / "run_materialized_inputs.jsonl").write_bytes(b"".join(orjson.dumps({"q": 1, **key}) + b"\n" for key in keys))
    return rollouts


def test_view_writes_a_page_beside_the_rollouts(gym: Gym, captured: Any, tmp_path: Path) -> None:
    run_files(tmp_path)
    assert gym("eval", "view", "run.jsonl") == 0
    assert captured.stdout.strip() == str(tmp_path / "run_report.html")
    assert "2 rollouts of 2 tasks" in captured.stderr
    assert "<!doctype html>" in (tmp_path / "run_report.html").read_text("utf-8")


def test_view_as_json_writes_no_file(gym: Gym, captured: Any, tmp_path: Path) -> None:
    run_files(tmp_path)
    assert gym("eval", "view", "run.jsonl", "--json") == 0
    assert json.loads(captured.stdout)["mean_reward"] == 1.0
    assert not list(tmp_path.glob("*.html"))


def test_view_opens_what_it_wrote(gym: Gym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run_files(tmp_path)
    assert gym("eval", "view", "run.jsonl", "-o", "out/page.html", "--open", "--sample", "0") == 0
    assert opened == [(tmp_path / "out" / "page.html").as_uri()]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("eval", "view", "no.jsonl"), 1, "there is no such file"),
        (("eval", "view", "run.jsonl", "--sample", "-1"), 2, "--sample"),
        (("eval", "view", "run.jsonl", "-o", "run.jsonl"), 2, "would replace a file of the run"),
        (("eval", "view", "run.jsonl", "-o", "./run_materialized_inputs.jsonl"), 2, "would replace a file of the run"),
        (("eval", "view", "run.jsonl", "-o", "pipe"), 1, "that is no file"),
        (("eval", "profile", "--rollouts", "run.jsonl"), 2, "materialized_inputs_jsonl_fpath"),
        (("eval", "profile", "--rollouts", "run.jsonl", "--inputs", "no.jsonl"), 1, "(--inputs)"),
        (("eval", "aggregate", "-i", "no-*.jsonl", "-o", "all.jsonl"), 1, "no file matches 'no-*.jsonl'"),
        (("eval", "reverify", "--no-serve", "--rollouts", "run.jsonl"), 2, "materialized_inputs_jsonl_fpath"),
        (("eval", "reverify", "--no-serve", "--input-format", "atif"), 1, "no ATIF"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], status: int, text: str, gym: Gym, captured: Any, tmp_path: Path) -> None:
    run_files(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert gym(*arguments) == status
    said = captured.stdout + captured.stderr
    assert text in said
    assert "Traceback" not in said


def test_profile_says_what_it_counted_and_where(gym: Gym, captured: Any, tmp_path: Path) -> None:
    run_files(tmp_path)
    arguments = ("eval", "profile", "--inputs", "run_materialized_inputs.jsonl", "--rollouts", "run.jsonl")
    assert gym(*arguments) == 0
    assert "2 of 2 rollouts (100.00 %), 0 of them masked" in captured.stdout
    assert f"agent_metrics: {tmp_path / 'run_agent_metrics.json'}" in captured.stdout
    assert len((tmp_path / "run_reward_profiling.jsonl").read_bytes().splitlines()) == 2


def test_values_of_the_wrong_type_are_usage_errors_before_anything_starts(gym: Gym, captured: Any, tmp_path: Path) -> None:
    run_files(tmp_path)
    files = ("--inputs", "run_materialized_inputs.jsonl", "--rollouts", "run.jsonl", "-o", "again.jsonl")
    assert gym("eval", "reverify", "--no-serve", *files, "--concurrency", "0") == 2
    assert "num_samples_in_parallel: input should be greater than or equal to 1" in captured.stdout + captured.stderr


def test_patterns_find_each_shard_once_and_no_sidecar(tmp_path: Path) -> None:
    for name in (
        "b.jsonl",
        "a.jsonl",
        "a_failures.jsonl",
        "a_materialized_inputs.jsonl",
        "a_journal.jsonl",
        "a_reward_profiling.jsonl",
        "c.txt",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "d.jsonl").mkdir()
    assert [path.name for path in expand("b.jsonl, *.jsonl,", tmp_path)] == ["b.jsonl", "a.jsonl"]
    assert expand("x*", tmp_path) == []
