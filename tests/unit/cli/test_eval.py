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
from gym_compose.cli.run_options import HEALTH_CHECKS, notices, require, run_options
from gym_compose.cli.translate import Invocation, resolve_command
from gym_compose.driver.errors import OutputLockedError
from gym_compose.driver.lock import LockHolder, OutputLock
from gym_compose.engine.interface import Observed
from gym_compose.project import hook as hook_module
from gym_compose.project.runs import RunOptions
from gym_compose.wire.errors import GymComposeError, IncompleteError, UsageError
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

    @pytest.mark.parametrize(("config", "message"), [
        ({"resume_from_cache": True, "overwrite": True}, "--resume and --overwrite exclude each other"),
        ({"environment_routing_mode": "legacy"}, "needs environment_server_name"),
        ({"dispatch_budget_s": 5}, "needs num_samples_in_parallel"),
        ({"max_failures": 1.5}, "neither a count nor a share"),
        ({"max_failures": "many"}, "'many' is neither a count nor a share"),
        ({"max_failures": "150%"}, "'150%' is neither a count nor a share"),
        ({"on_server_death": "pray"}, "on_server_death: input should be 'fail' or 'wait'"),
    ])  # fmt: skip
    def test_fields_that_do_not_go_together(self, tmp_path: Path, config: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            options(tmp_path, **config)

    def test_what_is_missing_is_named_with_its_flag(self) -> None:
        with pytest.raises(UsageError, match=r"missing required configuration: output_jsonl_fpath \(--output\), split \(--split\)"):
            require({"output_jsonl_fpath": ""}, "output_jsonl_fpath", "split")
        require({"split": "train"}, "split")


CONTRACT: list[tuple[str, Any, Any, Any]] = [
    # contract-data 1.2: key, default of the request, a value as a config gives it, what the request holds
    ("num_samples_in_parallel", None, 8, 8),
    ("max_resident_rollout_tasks", None, 4, 4),
    ("retain_results_in_memory", True, False, False),
    ("responses_create_params", {}, {"temperature": 0.5}, {"temperature": 0.5}),
    ("disable_aggregation", False, True, True),
    ("route_failures_to_sidecar", False, True, True),
    ("environment_routing_mode", "agent", "taskset", "taskset"),
    ("environment_server_name", None, "e", "e"),
    ("environment_server_routes", None, {"t": "e"}, {"t": "e"}),
    ("agent_name", None, "a", "a"),
    ("agent_map", {}, {"_default": "a"}, {"_default": "a"}),
    ("fan_out", {}, {"a": ["b", "c"]}, {"a": ["b", "c"]}),
    ("limit", None, 3, 3),
    ("limit", None, 0, None),
    ("limit", None, -1, -1),
    ("num_repeats", 1, 2, 2),
    ("num_repeats", 1, {"a": 2}, {"a": 2}),
    ("num_repeats_add_seed", False, True, True),
    ("interleave_repeats", False, True, True),
    ("resume_from_cache", False, True, True),
    ("dispatch_longest_first", False, True, True),
    ("drain_margin_s", None, 2.5, 2.5),
    ("retry_terminal_timeouts", False, True, True),
    ("retry_invalid_judge_responses", False, True, True),
    # ours
    ("resume_anyway", False, True, True),
    ("rollout_timeout_s", None, 30, 30.0),
    ("max_failures", None, 20, 20),
    ("max_failures", None, 0.05, 0.05),
    ("max_failures", None, "5%", 0.05),
    ("max_failures", None, "100%", None),
    ("max_failures", None, "20", 20),
    ("on_server_death", "fail", "wait", "wait"),
    ("strict_compatibility", False, None, False),
]


@pytest.mark.parametrize(("key", "default", "given", "held"), CONTRACT)
def test_every_field_of_a_run_has_its_default_and_reaches_the_driver(tmp_path: Path, key: str, default: Any, given: Any, held: Any) -> None:
    assert getattr(options(tmp_path), key) == default
    assert getattr(options(tmp_path, **{key: given}), key) == held
    assert getattr(options(tmp_path, **{key: None}), key) == default


@pytest.mark.parametrize("key", ["disable_health_check", "upload_rollouts", "require_complete", "token_id_capture", "unheard_of"])
def test_keys_that_are_not_the_drivers_do_no_harm(tmp_path: Path, key: str) -> None:
    assert options(tmp_path, **{key: True}) == options(tmp_path)


def test_the_strict_flag_sets_the_key_beside_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("compose: {strict: false, network: open}\n")
    found = resolve_command(["eval", "run", "--no-serve", "--config", "a.yaml", "--strict-compatibility"], cwd=tmp_path, environ={})
    assert found.merged is not None
    assert found.merged["compose"] == {"strict": True, "network": "open"}


def test_the_strict_switch_is_a_key_of_ours(tmp_path: Path) -> None:
    assert options(tmp_path, compose={"strict": True}).strict_compatibility
    assert not options(tmp_path, compose={}).strict_compatibility


WANDB = {"wandb_project": "p", "wandb_name": "n", "wandb_api_key": "k"}
MLFLOW = {"mlflow_tracking_uri": "u", "mlflow_experiment_name": "e", "mlflow_run_name": "r"}


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, []),
        ({"upload_rollouts": True}, []),
        (WANDB, ["uploaded to wandb"]),
        (WANDB | MLFLOW, ["uploaded to wandb and mlflow"]),
        ({**WANDB, "wandb_api_key": "****"}, []),
        ({**WANDB, "upload_rollouts": False}, []),
        ({**WANDB, "upload_rollouts_to_wandb": False}, []),
        ({**WANDB, "upload_rollouts_to_wandb": False, "upload_rollouts": True}, ["uploaded to wandb"]),
        ({"token_id_capture": {"enabled": True}}, ["token ids are not captured"]),
        ({"token_id_capture": {"enabled": False}}, []),
        ({"health_check_workers": 4}, ["no health check"]),
        ({"health_check_ignored_checks": "agent_turn_hollow, model_call_failed"}, ["no health check"]),
        ({"health_check_ignored_checks": list(HEALTH_CHECKS), "disable_health_check": True}, []),
    ],
)
def test_what_a_run_here_does_not_do_is_told(config: dict[str, Any], told: list[str]) -> None:
    found = notices(config)
    assert len(found) == len(told)
    assert all(words in notice for words, notice in zip(told, found, strict=True))


def test_the_old_key_that_turns_uploads_off_does_so_from_the_command_line_too(tmp_path: Path) -> None:
    """Edge case 87: NeMo Gym reads it in a plain mapping only, and uploads when it stands on its command line."""
    wanted = [f"+{key}={value}" for key, value in WANDB.items()]
    for more, number in ((["+upload_rollouts_to_wandb=false"], 0), ([], 1)):
        merged = resolve_command(["eval", "run", "--no-serve", *wanted, *more], cwd=tmp_path, environ={}).merged
        assert merged is not None
        assert len(notices({**merged, "wandb_api_key": "key"})) == number  # the merged config hides it


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

    def test_only_the_split_is_prepared_and_nothing_is_written_beside_its_data(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path
    ) -> None:
        agent = runnable.config.resolved["me"]["responses_api_agents"]["looper"]
        agent["datasets"].append({"name": "v", "type": "validation", "jsonl_fpath": "gone.jsonl", "license": "MIT"})
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        assert not list(tmp_path.glob("*_metrics.json"))
        assert sorted(path.name for path in (tmp_path / "r/out/preprocessed_datasets").iterdir()) == [
            "train.jsonl", "train.me.d.d_metrics.json", "train_metrics.json",
        ]  # fmt: skip

    def test_rows_of_an_earlier_preparation_are_used_where_that_is_asked_for(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path
    ) -> None:
        runnable.config.resolved["reuse_existing_data_preparation"] = True
        prepared = tmp_path / "r/out/preprocessed_datasets/train.jsonl"
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        assert f"reuse_existing_data_preparation is set, and there is no {prepared}: it is prepared." in captured.stderr
        (tmp_path / "d.jsonl").unlink()
        assert eval_commands.run(invoke("eval run --overwrite ++a=1"), captured.console) == 0
        assert f"rows of an earlier preparation: {prepared}" in captured.stderr

    def test_rows_that_changed_are_prepared_anew_without_a_conflict(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path
    ) -> None:
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        (tmp_path / "d.jsonl").write_text(ROWS * 2)
        assert eval_commands.run(invoke("eval run --overwrite ++a=1"), captured.console) == 0
        assert "4 rows of 1 datasets" in captured.stderr

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
            ({"limit": "x"}, UsageError, "limit"),
            ({"health_check_ignored_checks": ["agent_turn_hallow"]}, UsageError, "there is no check 'agent_turn_hallow'"),
            ({"health_check_ignored_checks": "nope"}, UsageError, "there is no check 'nope'"),
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

    def test_resume_needs_the_rows_of_the_first_run(self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path) -> None:
        (tmp_path / "r").mkdir()
        (tmp_path / "r/out.jsonl").write_text("{}\n")
        runnable.config.resolved["resume_from_cache"] = True
        with pytest.raises(GymComposeError, match="the rows of their run are gone"):
            eval_commands.run(invoke("eval run --resume ++a=1"), captured.console)
        assert runnable.calls == []
        (tmp_path / "r/out_materialized_inputs.jsonl").write_text("{}\n")
        assert eval_commands.run(invoke("eval run --resume ++a=1"), captured.console) == 0
        assert runnable.asked.resume_from_cache

    @pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
    def test_a_run_that_is_still_going_on_is_named_before_anything_is_done(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path, flag: str
    ) -> None:
        (tmp_path / "r").mkdir()
        holder = LockHolder(run_id="r7", host="0c1d", pid=1, container="demo-driver-r7", project="demo")
        with OutputLock(tmp_path / "r/out.jsonl.lock", holder), pytest.raises(OutputLockedError) as raised:
            eval_commands.run(invoke(f"eval run {flag} ++a=1"), captured.console)
        assert "run r7 is still going on and writes to this output, in container demo-driver-r7" in str(raised.value)
        assert "gym eval attach r7 -p demo" in (raised.value.hint or "")
        assert runnable.calls == []
        assert not (tmp_path / "r/out").exists(), "rows were prepared"
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0

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

    def test_a_function_of_the_config_collects_in_our_place(
        self, runnable: Any, invoke: Invoke, captured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given: list[Any] = []
        monkeypatch.setattr(hook_module, "load_hook", lambda path, directory: (path, directory))
        monkeypatch.setattr(hook_module, "run_hook", lambda hook, options, config, **further: given.append((hook, options, further)))
        runnable.head_address = lambda deadline: "127.0.0.1:4711"
        runnable.config.resolved["rollout_collection_driver"] = "my.module:collect"
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        assert runnable.calls == ["up", "down"]
        ((hook, asked, further),) = given
        assert hook == ("my.module:collect", tmp_path)
        assert asked.output_jsonl_fpath == str(tmp_path / "r/out.jsonl")
        assert further["head_url"] == "http://127.0.0.1:4711"

    def test_a_function_that_is_none_is_found_before_a_server_starts(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        runnable.config.resolved["rollout_collection_driver"] = "my.module"
        with pytest.raises(GymComposeError, match=r"not of the form module\.path:function"):
            eval_commands.run(invoke("eval run ++a=1"), captured.console)
        assert runnable.calls == []

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

    def test_a_complete_run_is_one_whatever_is_kept_in_memory(self, runnable: Any, invoke: Invoke, captured: Any) -> None:
        """Edge case 38: NeMo Gym counts what it kept, which is nothing then."""
        runnable.config.resolved.update(require_complete=True, retain_results_in_memory=False, disable_aggregation=True)
        assert eval_commands.run(invoke("eval run ++a=1"), captured.console) == 0
        assert (runnable.asked.retain_results_in_memory, runnable.asked.disable_aggregation) == (False, True)

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
