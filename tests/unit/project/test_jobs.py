"""A job's files as its container sees them."""

from __future__ import annotations

from pathlib import Path

from gym_compose.project.jobs import JobPaths
from gym_compose.project.runs import RunDirectory

RUN = RunDirectory(Path("/p/runs/r"))


def test_directories_are_mounted_once_and_only_the_outputs_can_be_written() -> None:
    fields = {"shards": ["/a/one.jsonl", "/b/two.jsonl", "/a/three.jsonl"], "output_jsonl_fpath": "/b/all.jsonl", "other": 1}
    paths = JobPaths(fields, ("shards",), RUN)
    assert paths.fields == {
        "shards": ["/io/input/1/one.jsonl", "/io/output/two.jsonl", "/io/input/1/three.jsonl"],
        "output_jsonl_fpath": "/io/output/all.jsonl",
        "other": 1,
    }
    assert paths.mounts == [("/b", "/io/output", False), ("/a", "/io/input/1", True), ("/p/runs/r", "/io/run", False)]
    assert paths.on_host("/io/input/1/one.jsonl: bad; /io/output/all.jsonl") == "/a/one.jsonl: bad; /b/all.jsonl"


def test_files_that_a_job_rewrites_can_be_written() -> None:
    fields = {
        "rollouts_jsonl_fpath": "/a/run.jsonl",
        "output_jsonl_fpath": "/b/again.jsonl",
        "judge_failed_only": True,
        "retry_invalid_judge_responses": True,
    }
    assert all(not read_only for _, _, read_only in JobPaths(fields, ("rollouts_jsonl_fpath",), RUN).mounts)
