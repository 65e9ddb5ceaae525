from __future__ import annotations

import stat
from pathlib import Path

import orjson
import pytest

from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.runs import ContainerPaths, HostPaths, RunDirectory, RunOptions, check_paths, on_host, run_directories, with_paths
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.run import RunCounts, RunRequest, RunSummary

OPTIONS = RunOptions(input_jsonl_fpath="rows.jsonl", output_jsonl_fpath="out/rollouts.jsonl", limit=3, num_repeats=2)


def test_paths_are_made_absolute_and_the_outputs_directory_is_made(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    paths = check_paths(OPTIONS, tmp_path)
    assert paths == HostPaths(input=str(tmp_path / "rows.jsonl"), output=str(tmp_path / "out" / "rollouts.jsonl"))
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("none.jsonl", "out.jsonl", "none.jsonl: the input file does not exist"),
        ("folder", "out.jsonl", "folder: the input file is a directory"),
        ("rows.jsonl", "folder", "folder: the output is a directory"),
        ("rows.jsonl", "rows.jsonl", "same file"),
        ("out_failures.jsonl", "out.jsonl", "the run itself writes"),
        ("out_materialized_inputs.jsonl", "out.jsonl", "the run itself writes"),
        ("rows.jsonl", "rows.jsonl/out.jsonl", "cannot be made"),
    ],
)
def test_paths_that_cannot_work_are_named_before_anything_starts(tmp_path: Path, source: str, target: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("rows.jsonl", "out_failures.jsonl", "out_materialized_inputs.jsonl"):
        (tmp_path / name).touch()
    options = OPTIONS.model_copy(update={"input_jsonl_fpath": source, "output_jsonl_fpath": target})
    with pytest.raises(InvalidInputError, match=words):
        check_paths(options, tmp_path)


def test_only_a_resume_that_is_asked_to_go_on_anyway_does_without_its_input(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    resumed = OPTIONS.model_copy(update={"resume_from_cache": True})
    with pytest.raises(InvalidInputError, match="--resume-anyway"):
        check_paths(resumed, tmp_path)
    paths = check_paths(resumed.model_copy(update={"resume_anyway": True}), tmp_path)
    assert paths.input == str(tmp_path / "rows.jsonl")
    assert [mount[1] for mount in ContainerPaths.of(paths, run).mounts] == ["/io/output", "/io/run"]


def test_a_run_keeps_its_request_its_host_paths_and_its_exit_code(tmp_path: Path) -> None:
    project = ProjectDirectory.under(tmp_path, "p")
    run = RunDirectory.of(project, "20260101-000000-aaaa")
    host = HostPaths(input="/in.jsonl", output="/out.jsonl")
    request = with_paths(OPTIONS, run_id=run.run_id, head_url="http://head.gym:11000")
    run.create(request, host)
    assert RunRequest.model_validate(orjson.loads(run.request_file.read_bytes())) == request
    assert run.host_paths() == host
    assert run.exit_code() is None
    run.write_exit_code(137)
    assert run.exit_code() == 137
    assert run_directories(project) == (run,)
    assert all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in (run.path, run.request_file))


def test_a_run_is_not_made_twice(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "r")
    run.create(with_paths(OPTIONS, run_id="r", head_url="http://h"), HostPaths(input="a", output="b"))
    with pytest.raises(PrerequisiteError, match="run's directory"):
        run.create(with_paths(OPTIONS, run_id="r", head_url="http://h"), HostPaths(input="a", output="b"))


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_run_that_does_not_say_where_its_files_are_is_an_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "host.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"host\.json"):
        RunDirectory(tmp_path).host_paths()


def test_a_container_sees_the_input_file_the_outputs_directory_and_the_run_alone(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.touch()
    paths = ContainerPaths.of(HostPaths(input=str(source), output="/data/out/rollouts.jsonl"), RunDirectory(Path("/w/.gym/p/runs/r")))
    assert paths.input == "/io/input/rows.jsonl"
    assert paths.output == "/io/output/rollouts.jsonl"
    assert paths.mounts == (
        (str(source), "/io/input/rows.jsonl", True),
        ("/data/out", "/io/output", False),
        ("/w/.gym/p/runs/r", "/io/run", False),
    )


def test_files_of_a_summary_are_given_back_as_paths_of_this_host() -> None:
    summary = RunSummary(
        run_id="r",
        counts=RunCounts(requested=0),
        elapsed_seconds=0,
        rate=0,
        files={"rollouts": "/io/output/a.jsonl", "elsewhere": "/tmp/x"},
    )
    assert on_host(summary, "/data/out/a.jsonl").files == {"rollouts": "/data/out/a.jsonl", "elsewhere": "/tmp/x"}


def test_the_drivers_request_keeps_every_option() -> None:
    request = with_paths(OPTIONS, run_id="r", head_url="http://h", input_jsonl_fpath="/io/input/rows.jsonl")
    assert type(request) is RunRequest
    assert request.model_dump() == {
        **OPTIONS.model_dump(),
        "run_id": "r",
        "head_url": "http://h",
        "input_jsonl_fpath": "/io/input/rows.jsonl",
    }
