"""``gym eval run`` and ``attach``: options of a run, both forms, how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gym_compose.cli import env as env_commands
from gym_compose.cli import eval as eval_commands
from gym_compose.cli.run_options import require, run_options
from gym_compose.cli.translate import Invocation
from gym_compose.engine.interface import Observed
from gym_compose.project.runs import RunOptions
from gym_compose.wire.errors import GymComposeError, IncompleteError, InvalidInputError, UsageError
from gym_compose.wire.run import RunCounts, RunProgress, RunSummary

Invoke = Callable[..., Invocation]
ROWS = '{"responses_create_params": {"input": "a"}}\n{"responses_create_params": {"input": "b"}}\n'


def options(tmp_path: Path, **config: Any) -> RunOptions:
    (tmp_path / "in.jsonl").write_text(ROWS)
    return run_options({"input_jsonl_fpath": "in.jsonl", "output_jsonl_fpath": "out.jsonl", **config}, cwd=tmp_path, roots=[tmp_path])


class TestOptions:
    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({}, {"num_repeats": 1, "limit": None, "num_samples_in_parallel": None, "overwrite": False}),
            ({"limit": 3, "num_samples_in_parallel": 16}, {"limit": 3, "num_samples_in_parallel": 16}),
            ({"limit": 0}, {"limit": None}),
            ({"num_repeats": {"a": 2, "_default": 1}}, {"num_repeats": {"a": 2, "_default": 1}}),
            ({"num_repeats": None}, {"num_repeats": 1}),
            ({"responses_create_params": {"temperature": 0.5}}, {"responses_create_params": {"temperature": 0.5}}),
            ({"environment_server_routes": {"t": "e"}}, {"environment_server_routes": {"t": "e"}}),
            ({"agent_name": "me", "agent_map": {"a": "b"}}, {"agent_name": "me", "agent_map": {"a": "b"}}),
            ({"overwrite": True}, {"overwrite": True}),
            ({"unknown_key": 1, "policy_api_key": "sk"}, {}),
        ],
    )
    def test_keys_of_the_config(self, tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]) -> None:
        found = options(tmp_path, **config)
        assert {key: getattr(found, key) for key in expected} == expected
        assert found.input_jsonl_fpath == str(tmp_path / "in.jsonl")
        assert found.output_jsonl_fpath == str(tmp_path / "out.jsonl")

    def test_the_input_is_searched_in_the_roots(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "root" / "a.jsonl").write_text(ROWS)
        config = {"input_jsonl_fpath": "a.jsonl", "output_jsonl_fpath": "/abs/out.jsonl"}
        found = run_options(config, cwd=tmp_path, roots=[tmp_path, tmp_path / "root"])
        assert (found.input_jsonl_fpath, found.output_jsonl_fpath) == (str(tmp_path / "root" / "a.jsonl"), "/abs/out.jsonl")

    def test_prompt_and_skills_are_read_here(self, tmp_path: Path) -> None:
        (tmp_path / "p.yaml").write_text("user: 'say {x}'\n")
        (tmp_path / "skills" / "one").mkdir(parents=True)
        (tmp_path / "skills" / "one" / "SKILL.md").write_text("---\nname: one\ndescription: d\n---\n")
        found = options(tmp_path, prompt_config="p.yaml", skills={"path": "skills"})
        assert found.prompt is not None
        assert found.prompt.user == "say {x}"
        assert found.skills_ref is not None
        assert found.skills_ref["path"] == "skills"

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"limit": "abc"}, "invalid configuration: limit: input should be a valid integer"),
            ({"num_samples_in_parallel": 0}, "num_samples_in_parallel: input should be greater than 0"),
            ({"environment_routing_mode": "best"}, "environment_routing_mode: input should be 'agent', 'legacy' or 'taskset'"),
        ],
    )
    def test_wrong_values_are_usage_errors(self, tmp_path: Path, config: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            options(tmp_path, **config)

    @pytest.mark.parametrize(
        "key", ["resume_from_cache", "dispatch_budget_s", "rollout_collection_driver", "count_missing_rollouts_as_zero"]
    )
    def test_a_key_that_would_be_ignored_is_refused(self, tmp_path: Path, key: str) -> None:
        with pytest.raises(InvalidInputError, match="refused, not ignored"):
            options(tmp_path, **{key: 1})
        options(tmp_path, **{key: False})

    def test_what_is_missing_is_named_with_its_flag(self) -> None:
        with pytest.raises(UsageError, match=r"missing required configuration: output_jsonl_fpath \(--output\), split \(--split\)"):
            require({"output_jsonl_fpath": ""}, "output_jsonl_fpath", "split")
        require({"split": "train"}, "split")


def summary(**fields: Any) -> RunSummary:
    counts = {"requested": 2, "completed": 2, **fields.pop("counts", {})}
    return RunSummary(run_id="r1", counts=RunCounts(**counts), elapsed_seconds=1.0, rate=2.0, **fields)


@pytest.fixture
def runnable(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project with one dataset of two rows, whose driver answers with ``project.summary``."""
    (tmp_path / "d.jsonl").write_text(ROWS)
    dataset = {"name": "d", "type": "train", "jsonl_fpath": "d.jsonl", "license": "MIT"}
    agent = {"entrypoint": "app.py", "datasets": [dataset]}
    project.config.resolved = {"me": {"responses_api_agents": {"looper": agent}}, "output_jsonl_fpath": "r/out.jsonl", "split": "train"}
    project.summary = summary()
    project.asked = None

    def collect(asked: RunOptions, on_event: Any) -> RunSummary:
        project.calls.append("collect")
        project.asked = asked
        on_event(RunProgress(counts=RunCounts(requested=2, completed=2), in_flight=0, elapsed_seconds=1.0, rate=2.0))
        if isinstance(project.summary, BaseException):
            raise project.summary
        return project.summary  # type: ignore[no-any-return]

    project.collect = collect
    project.services = ()
    return project


class TestEndToEnd:
    def test_rows_are_prepared_then_servers_started_then_stopped(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path
    ) -> None:
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        assert runnable.calls == ["up", "collect", "down"]
        prepared = tmp_path / "r/out/preprocessed_datasets/train.jsonl"
        assert runnable.asked.input_jsonl_fpath == str(prepared)
        assert runnable.asked.output_jsonl_fpath == str(tmp_path / "r/out.jsonl")
        assert len(prepared.read_text().splitlines()) == 2
        assert "2 requested: 2 completed" in captured.stdout
        assert f"2 rows of 1 datasets: {prepared}" in captured.stderr

    def test_json(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        assert eval_commands.run(invoke("eval run --json ++a=1"), captured.console) == 0
        assert json.loads(captured.stdout)["run_id"] == "r1"

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"split": None}, UsageError, r"split \(--split\)"),
            ({"output_jsonl_fpath": None}, UsageError, r"output_jsonl_fpath \(--output\)"),
            ({"split": "example"}, GymComposeError, "example"),
            ({"split": "benchmark"}, GymComposeError, "no dataset of split 'benchmark'"),
            ({"input_jsonl_fpath": "x", "split": None}, GymComposeError, "input_jsonl_fpath cannot be combined"),
            ({"resume_from_cache": True}, InvalidInputError, "not resumed yet"),
            ({"limit": "x"}, UsageError, "limit"),
        ],
    )
    def test_what_is_wrong_with_the_run_is_found_before_a_server_starts(
        self, runnable: Any, invoke: Invoke, captured: Any, change: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        runnable.config.resolved.update(change)
        with pytest.raises(error, match=message):
            eval_commands.run(invoke("eval run ++a=1"), captured.console)
        assert runnable.calls == []

    def test_results_of_an_earlier_run_are_found_before_a_server_starts(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path
    ) -> None:
        (tmp_path / "r").mkdir()
        (tmp_path / "r/out.jsonl").write_text("{}\n")
        with pytest.raises(GymComposeError, match="--overwrite"):
            eval_commands.run(invoke("eval run ++a=1"), captured.console)
        assert runnable.calls == []
        assert eval_commands.run(invoke("eval run --overwrite ++a=1"), captured.console) == 0

    def test_servers_are_stopped_when_the_run_fails(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        runnable.summary = GymComposeError("driver died")
        with pytest.raises(GymComposeError, match="driver died"):
            eval_commands.run(invoke("eval run ++a=1"), captured.console)
        assert runnable.calls == ["up", "collect", "down"]

    def test_an_interrupted_run_shows_its_summary_and_ends_with_130(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        runnable.summary = summary(counts={"completed": 1, "unresolved": 1}, interrupted=True)
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 130
        assert runnable.calls[-1] == "down"
        assert "1 unresolved" in captured.stdout

    def test_a_project_that_ran_before_goes_on_running(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        runnable.observe = lambda deadline: Observed("demo", "docker", (SimpleNamespace(status="running"),))  # type: ignore[arg-type]
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        assert runnable.calls == ["up", "collect"]
        assert "demo: runs already; it will be left running." in captured.stderr

    @pytest.mark.parametrize(
        ("result", "config", "message"),
        [
            (summary(counts={"completed": 1, "unresolved": 1}), {}, "1 of 2 rollouts have no answer"),
            (summary(counts={"completed": 1, "failed": 1}), {"require_complete": True}, "1 of 2 rollouts completed"),
        ],
    )
    def test_incomplete_runs(
        self, runnable: Any, invoke: Invoke, captured: Any, result: RunSummary, config: dict[str, Any], message: str
    ) -> None:
        runnable.summary = result
        runnable.config.resolved.update(config)
        with pytest.raises(IncompleteError, match=message):
            eval_commands.run(invoke("eval run ++a=1"), captured.console)

    def test_failed_rollouts_alone_are_no_error(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        runnable.summary = summary(counts={"completed": 1, "failed": 1})
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0

    def test_an_error_of_the_run_is_told_after_its_summary(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        runnable.summary = summary(counts={"completed": 1, "unresolved": 1}, error="the environment server went away")
        with pytest.raises(GymComposeError, match="went away"):
            eval_commands.run(invoke("eval run ++a=1"), captured.console)
        assert "1 unresolved" in captured.stdout


class TestAgainstRunningServers:
    @pytest.fixture
    def head(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        found = SimpleNamespace(url="http://127.0.0.1:1", identity=None, directory=None)
        monkeypatch.setattr(env_commands, "find_running_head", lambda session, config: found)
        return found

    def text(self, tmp_path: Path) -> str:
        (tmp_path / "in.jsonl").write_text(ROWS)
        return "eval run --no-serve -i in.jsonl -o out.jsonl"

    def test_a_peers_head_is_asked_from_here(
        self, head: Any, invoke: Invoke, captured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []

        def collect_here(url: str, wanted: RunOptions, on_event: Any, *, cwd: Path) -> RunSummary:
            asked.append((url, wanted.input_jsonl_fpath, cwd))
            return summary()

        monkeypatch.setattr("gym_compose.project.collect.collect_here", collect_here)
        assert eval_commands.run(invoke(self.text(tmp_path)), captured.console) == 0
        assert asked == [("http://127.0.0.1:1", str(tmp_path / "in.jsonl"), tmp_path)]

    def test_a_docker_deployment_of_ours_gets_its_driver_inside(
        self, head: Any, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head.identity = SimpleNamespace(engine="docker", project="demo")
        head.directory = SimpleNamespace(path=tmp_path)
        opened: list[Path] = []

        def open_project(self: Any, path: Path) -> Any:
            opened.append(path)
            return runnable

        monkeypatch.setattr("gym_compose.cli.session.Session.open", open_project)
        assert eval_commands.run(invoke(self.text(tmp_path) + " --overwrite"), captured.console) == 0
        assert opened == [tmp_path]
        assert runnable.calls == ["collect"]
        assert runnable.asked.overwrite

    @pytest.mark.parametrize(("flags", "missing"), [("-o out.jsonl", "--input"), ("-i in.jsonl", "--output")])
    def test_what_is_missing(self, flags: str, missing: str, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(UsageError, match=missing):
            eval_commands.run(invoke(f"eval run --no-serve {flags}"), captured.console)


def test_attach_follows_the_named_run(runnable: Any, invoke: Invoke, captured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def attach(project: Any, on_event: Any, *, run: str | None = None) -> RunSummary:
        asked.append((project, run))
        return summary()

    monkeypatch.setattr("gym_compose.project.collect.attach", attach)
    assert eval_commands.attach(invoke("eval attach r7"), captured.console) == 0
    assert eval_commands.attach(invoke("eval attach"), captured.console) == 0
    assert asked == [(runnable, "r7"), (runnable, None)]
