"""Verifying stored rollouts again: which server, what it is sent, what becomes of the answer, and what is refused beforehand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from gym_compose.driver.errors import (
    AggregationError,
    OutputExistsError,
    OutputFailedError,
    RoutingError,
    UnsafeReverificationError,
    VerifyFailedError,
)
from gym_compose.driver.jobs import do_job
from gym_compose.driver.verifiers import Verifiers, verify_body
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.jobs import AggregateJob, ReverifyJob
from gym_compose.wire.run import RunSummary
from gym_compose.wire.settings import Settings

SETTINGS = Settings(aggregate_seconds=30.0, run_head_seconds=30.0)
CONFIG: dict[str, Any] = {
    "math": {"resources_servers": {"math": {"entrypoint": "app.py"}}},
    "other": {"resources_servers": {"other": {"entrypoint": "app.py"}}},
    "agent": {
        "responses_api_agents": {"simple": {"entrypoint": "app.py", "resources_server": {"type": "resources_servers", "name": "math"}}}
    },
    "env": {
        "environment_servers": {
            "native": {"entrypoint": "app.py", "agent_server": {"name": "agent"}, "resources_server": {"name": "other"}},
        }
    },
}


@dataclass
class Stub:
    """A head server and all servers of its config behind one port."""

    url: str = ""
    mode: str = "stateless"
    verified: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    aggregated: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], Any] = lambda body: {"reward": 0.5, "response": body["response"]}
    status: int = 200

    def config(self) -> dict[str, Any]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        filled = orjson.loads(orjson.dumps(CONFIG))
        for name, top in filled.items():
            for kinds in top.values():
                for block in kinds.values():
                    block.update(host=f"{host}", port=f"{port}/{name}")
        return dict(filled)


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    found = Stub()

    async def head(request: web.Request) -> web.Response:
        return web.json_response(yaml.safe_dump(found.config()))

    async def verify(request: web.Request) -> web.Response:
        body = await request.json()
        found.verified.append((request.match_info["name"], body))
        if found.status != 200:
            return web.Response(status=found.status, text="broken judge")
        return web.Response(body=orjson.dumps(found.answer(body)), content_type="application/json")

    async def aggregate(request: web.Request) -> web.Response:
        found.aggregated.append((request.match_info["name"], await request.json()))
        return web.json_response({"agent_metrics": {"mean/reward": 0.5}, "key_metrics": {}, "group_level_metrics": []})

    async def ready(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def mode(request: web.Request) -> web.Response:
        return web.json_response(found.mode)

    app = web.Application(client_max_size=2**30)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/global_config_dict_yaml", head)
    app.router.add_get("/{name}/reverify_mode", mode)
    app.router.add_post("/{name}/verify", verify)
    app.router.add_post("/{name}/aggregate_metrics", aggregate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def record(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {"response": {"id": f"r{task}"}, "reward": 1.0, **more, "_ng_task_index": task, "_ng_rollout_index": rollout}


def row(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    body = {"responses_create_params": {"input": "q"}, "answer": task, "agent_ref": {"name": "agent"}}
    return {**body, **more, "_ng_task_index": task, "_ng_rollout_index": rollout}


@dataclass
class Files:
    directory: Path

    def write(self, name: str, records: list[dict[str, Any]]) -> Path:
        path = self.directory / name
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in records))
        return path

    def read(self, name: str) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in (self.directory / name).read_bytes().splitlines()]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path)
    found.write("run_materialized_inputs.jsonl", [row(0), row(1)])
    found.write("run.jsonl", [record(1), record(0)])
    return found


async def again(stub: Stub, files: Files, **options: Any) -> RunSummary:
    job = ReverifyJob(
        run_id="again",
        head_url=stub.url,
        materialized_inputs_jsonl_fpath=str(files.directory / "run_materialized_inputs.jsonl"),
        rollouts_jsonl_fpath=str(files.directory / "run.jsonl"),
        output_jsonl_fpath=str(files.directory / "again.jsonl"),
        **options,
    )
    return await do_job(job, lambda _: None, settings=SETTINGS, environ={})


async def test_each_rollout_is_verified_and_the_metrics_are_asked_from_the_verifier(stub: Stub, files: Files) -> None:
    summary = await again(stub, files)
    assert sorted((name, body["answer"], body["response"]["id"]) for name, body in stub.verified) == [("math", 0, "r0"), ("math", 1, "r1")]
    assert sorted((line["_ng_task_index"], line["reward"], line["agent_ref"]["name"]) for line in files.read("again.jsonl")) == [
        (0, 0.5, "agent"),
        (1, 0.5, "agent"),
    ]
    ((name, body),) = stub.aggregated
    assert name == "math"
    assert [line["_ng_task_index"] for line in body["verify_responses"]] == [0, 1]
    (entry,) = orjson.loads((files.directory / "again_aggregate_metrics.json").read_bytes())
    assert next(iter(entry)) == "agent_ref"
    assert "_ng_environment_server" not in entry
    assert (summary.counts.requested, summary.counts.completed, summary.mean_reward) == (2, 2, 0.5)


async def test_a_verifier_that_is_not_stateless_is_refused_before_a_file_is_written(stub: Stub, files: Files) -> None:
    stub.mode = "unknown"
    with pytest.raises(UnsafeReverificationError, match="math"):
        await again(stub, files)
    assert not (files.directory / "again.jsonl").exists()
    assert stub.verified == []


async def test_force_says_so_in_the_name(stub: Stub, files: Files) -> None:
    stub.mode = "unsupported"
    summary = await again(stub, files, force=True)
    assert Path(summary.files["rollouts"]).name == "unsafe_again.jsonl"
    assert len(files.read("unsafe_again.jsonl")) == 2


async def test_results_that_are_there_are_neither_mixed_nor_lost(stub: Stub, files: Files) -> None:
    files.write("again.jsonl", [record(0)])
    with pytest.raises(OutputExistsError):
        await again(stub, files)
    assert len(files.read("again.jsonl")) == 1


async def test_overwrite_replaces_and_resume_goes_on(stub: Stub, files: Files) -> None:
    files.write("again.jsonl", [record(0, reward=0.25)])
    await again(stub, files, resume_from_cache=True)
    assert [body["answer"] for _, body in stub.verified] == [1]
    assert sorted((line["_ng_task_index"], line["reward"]) for line in files.read("again.jsonl")) == [(0, 0.25), (1, 0.5)]
    await again(stub, files, overwrite=True)
    assert {line["reward"] for line in files.read("again.jsonl")} == {0.5}


async def test_a_torn_line_is_cut_off_and_its_rollout_verified_again(stub: Stub, files: Files) -> None:
    (files.directory / "again.jsonl").write_bytes(orjson.dumps(record(0)) + b"\n" + orjson.dumps(record(1))[:-5])
    await again(stub, files, resume_from_cache=True)
    assert sorted(line["_ng_task_index"] for line in files.read("again.jsonl")) == [0, 1]


async def test_a_rollout_that_cannot_be_verified_is_a_failure_and_not_the_end(stub: Stub, files: Files) -> None:
    stub.status = 500
    summary = await again(stub, files)
    assert summary.counts.failed == 2
    failure = files.read("again_failures.jsonl")[0]
    assert failure["_ng_failure_class"] == "verifier_error"
    assert failure["_ng_failure_http_status"] == 500
    assert "broken judge" in failure["_ng_failure_message"]
    stub.status = 200
    assert (await again(stub, files, resume_from_cache=True)).counts.completed == 2


async def test_strictly_one_failed_verification_is_the_end(stub: Stub, files: Files) -> None:
    stub.status = 500
    with pytest.raises(VerifyFailedError, match="broken judge"):
        await again(stub, files, strict_compatibility=True)


async def test_what_a_verifier_calls_a_failure_goes_to_the_failures(stub: Stub, files: Files) -> None:
    stub.answer = lambda body: {"_ng_no_persist": True} if body["answer"] else {"_ng_failure_class": "judge_failed", "reward": 0.0}
    summary = await again(stub, files)
    assert (summary.counts.failed, summary.counts.completed, summary.counts.unresolved) == (1, 0, 1)
    assert summary.failures == {"judge_failed": 1}
    assert files.read("again.jsonl") == []


async def test_invalid_judgements_become_failures_when_asked_for(stub: Stub, files: Files) -> None:
    stub.answer = lambda body: {"reward": 0.0, "invalid_judge_response": True, "invalid_judge_retryable": body["answer"] != 0}
    summary = await again(stub, files, retry_invalid_judge_responses=True)
    assert summary.failures == {"judge_invalid": 1, "permanent": 1}


async def test_only_what_the_judge_failed_is_verified_and_the_successes_are_kept(stub: Stub, files: Files) -> None:
    files.write("run_materialized_inputs.jsonl", [row(task) for task in range(4)])
    failed = {**record(2), "_ng_failure_class": "judge_failed"}
    files.write("run_failures.jsonl", [failed, failed, {**record(3), "_ng_failure_class": "agent_run_error"}])
    stub.mode = "unknown"  # its own run asked it before: not asked for the mode
    await again(stub, files, judge_failed_only=True)
    assert [body["answer"] for _, body in stub.verified] == [2]
    assert sorted((line["_ng_task_index"], line["reward"]) for line in files.read("again.jsonl")) == [(0, 1.0), (1, 1.0), (2, 0.5)]


async def test_appending_to_the_run_itself_is_idempotent(stub: Stub, files: Files) -> None:
    files.write("run_materialized_inputs.jsonl", [row(task) for task in range(3)])
    files.write("run_failures.jsonl", [{**record(2), "_ng_failure_class": "judge_failed"}])
    for _ in range(2):
        job = ReverifyJob(
            run_id="again",
            head_url=stub.url,
            materialized_inputs_jsonl_fpath=str(files.directory / "run_materialized_inputs.jsonl"),
            rollouts_jsonl_fpath=str(files.directory / "run.jsonl"),
            output_jsonl_fpath=str(files.directory / "run.jsonl"),
            judge_failed_only=True,
            append=True,
        )
        await do_job(job, lambda _: None, settings=SETTINGS, environ={})
    assert sorted(line["_ng_task_index"] for line in files.read("run.jsonl")) == [0, 1, 2]
    assert len(stub.verified) == 1


@pytest.mark.parametrize("options", [{"append": True}, {"append": True, "judge_failed_only": True, "overwrite": True}])
async def test_options_that_exclude_each_other(options: dict[str, Any], stub: Stub, files: Files) -> None:
    with pytest.raises(InvalidInputError, match="append"):
        await again(stub, files, **options)


async def test_rows_of_several_stages_are_refused(stub: Stub, files: Files) -> None:
    files.write("run_failures.jsonl", [{**record(0), "_ng_failure_class": "judge_failed", "stage_index": 0}])
    with pytest.raises(InvalidInputError, match="several stages"):
        await again(stub, files, judge_failed_only=True)


async def test_a_rollout_without_an_input_row_is_refused_before_a_file_is_written(stub: Stub, files: Files) -> None:
    files.write("run.jsonl", [record(7)])
    with pytest.raises(InvalidInputError, match="no input row belongs to rollout 7:0"):
        await again(stub, files)
    assert not (files.directory / "again.jsonl").exists()


async def test_as_many_as_the_limit_says(stub: Stub, files: Files) -> None:
    await again(stub, files, limit=1, disable_aggregation=True)
    assert [body["answer"] for _, body in stub.verified] == [1]
    assert stub.aggregated == []


async def test_asked_to_stop_nothing_more_is_sent(stub: Stub, files: Files) -> None:
    stop = asyncio.Event()
    stop.set()
    job = ReverifyJob(
        run_id="again",
        head_url=stub.url,
        materialized_inputs_jsonl_fpath=str(files.directory / "run_materialized_inputs.jsonl"),
        rollouts_jsonl_fpath=str(files.directory / "run.jsonl"),
        output_jsonl_fpath=str(files.directory / "again.jsonl"),
    )
    summary = await do_job(job, lambda _: None, stop, settings=SETTINGS, environ={})
    assert summary.interrupted
    assert summary.exit_code == 130
    assert summary.counts.unresolved == 2
    assert stub.verified == []


# Which server, and what it is sent


def verifier_of(row: dict[str, Any], config: dict[str, Any] = CONFIG) -> str:
    return Verifiers(config).of(row).name


def test_the_verifier_of_a_row() -> None:
    assert verifier_of({"task_source": "other", "agent_ref": {"name": "agent"}}) == "other"
    assert verifier_of({"_ng_environment_server": "env", "agent_ref": {"name": "agent"}}) == "other"
    assert verifier_of({"agent_ref": {"name": "agent"}}) == "math"
    with pytest.raises(RoutingError, match=r"'stranger'.*Agents that have one: agent"):
        verifier_of({"agent_ref": {"name": "stranger"}})


def test_a_config_without_agents_has_one_verifier_or_an_error() -> None:
    only = Verifiers({"math": CONFIG["math"]})
    assert only.of({"agent_ref": {"name": "whoever"}}).name == "math"
    assert "whatever agent it names" in only.warnings[0]
    with pytest.raises(RoutingError, match="math, other"):
        Verifiers({name: CONFIG[name] for name in ("math", "other")})


def test_a_materialized_row_is_sent_flat() -> None:
    sent = verify_body(
        {"task_id": {"taskset": "t"}, "task_input": {"q": 1, "task_data": {"a": 2}}, "extra": 3, "_ng_task_index": 0},
        {"response": "r", "deliverables_dir": "d", "reward": 1},
    )
    assert sent == {"extra": 3, "_ng_task_index": 0, "a": 2, "q": 1, "response": "r", "deliverables_dir": "d"}


@pytest.mark.parametrize(
    ("row", "rollout", "message"),
    [
        ({}, {"_ng_result_type": "x"}, "result type 'x' has no response"),
        ({"task_input": {"task_data": 1}}, {"response": {}}, "no object"),
        ({"task_input": {"k": 2, "task_data": {"k": 1}}}, {"response": {}}, "different values"),
    ],
)
def test_rows_that_cannot_be_sent(row: dict[str, Any], rollout: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        verify_body(row, rollout)


# Shards


async def shards(stub: Stub, files: Files, *names: str, told: Callable[[Any], None] = lambda _: None, **options: Any) -> RunSummary:
    job = AggregateJob(
        run_id="again",
        head_url=stub.url,
        shards=tuple(str(files.directory / name) for name in names),
        output_jsonl_fpath=str(files.directory / "all.jsonl"),
        **options,
    )
    return await do_job(job, told, settings=SETTINGS, environ={})


def stamped(task: int, **more: Any) -> dict[str, Any]:
    return {**record(task, **more), "_ng_environment_server": "env"}


async def test_shards_become_one_sorted_file_and_one_set_of_metrics(stub: Stub, files: Files) -> None:
    files.write("one.jsonl", [stamped(3), stamped(1)])
    files.write("two.jsonl", [stamped(2)])
    summary = await shards(stub, files, "one.jsonl", "two.jsonl")
    assert [line["_ng_task_index"] for line in files.read("all.jsonl")] == [1, 2, 3]
    assert [name for name, _ in stub.aggregated] == ["env"]
    assert summary.counts.completed == 3
    assert [(group.environment_server, group.rollouts, group.mean_reward) for group in summary.groups] == [("env", 3, 0.5)]
    assert {Path(path).name for path in summary.files.values()} == {"all.jsonl", "all_aggregate_metrics.json"}


async def test_a_merged_file_that_is_there_is_asked_about(stub: Stub, files: Files) -> None:
    files.write("one.jsonl", [stamped(1)])
    files.write("all.jsonl", [stamped(9)])
    with pytest.raises(OutputExistsError):
        await shards(stub, files, "one.jsonl")
    await shards(stub, files, "one.jsonl", overwrite=True)
    assert [line["_ng_task_index"] for line in files.read("all.jsonl")] == [1]
    with pytest.raises(InvalidInputError, match="one of the shards"):
        await shards(stub, files, "one.jsonl", "all.jsonl", overwrite=True)


async def test_a_rollout_that_two_shards_have_is_an_error_before_anything_is_written(stub: Stub, files: Files) -> None:
    """Edge case 62; NeMo Gym writes the merged file first and gets a 500 then."""
    files.write("one.jsonl", [stamped(1), stamped(2)])
    files.write("two.jsonl", [stamped(2)])
    before = {path.name for path in files.directory.iterdir()}
    with pytest.raises(AggregationError, match=r"2:0 of 'env' is there twice"):
        await shards(stub, files, "one.jsonl", "two.jsonl")
    assert {path.name for path in files.directory.iterdir()} == before
    assert stub.aggregated == []


async def test_without_merging_the_metrics_alone_are_written(stub: Stub, files: Files) -> None:
    files.write("one.jsonl", [stamped(1)])
    files.write("one_failures.jsonl", [{**stamped(2), "_ng_failure_class": "c"}])
    summary = await shards(stub, files, "one.jsonl", merge_shards=False, count_failure_classes_as_zero=("c",))
    assert not (files.directory / "all.jsonl").exists()
    assert list(summary.files) == ["aggregate_metrics"]
    assert len(stub.aggregated[0][1]["verify_responses"]) == 2


@pytest.mark.parametrize("name", ["run.json", "run_materialized_inputs.jsonl", "run.jsonl"])
async def test_an_output_never_replaces_what_is_read(stub: Stub, files: Files, name: str) -> None:
    files.write("run_failures.jsonl", [record(5)])
    job = ReverifyJob(
        run_id="again",
        head_url=stub.url,
        materialized_inputs_jsonl_fpath=str(files.directory / "run_materialized_inputs.jsonl"),
        rollouts_jsonl_fpath=str(files.directory / "run.jsonl"),
        output_jsonl_fpath=str(files.directory / ".." / files.directory.name / name),
        overwrite=True,
    )
    with pytest.raises(InvalidInputError, match="the output is the input"):
        await do_job(job, lambda _: None, settings=SETTINGS, environ={})
    assert [len(files.read(kept)) for kept in ("run.jsonl", "run_materialized_inputs.jsonl", "run_failures.jsonl")] == [2, 2, 1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"_ng_t', "its last line is torn"),
        (b"{]\n", "line 2 is no JSON"),
        (b'{"_ng_task_index":18446744073709551615,"_ng_rollout_index":0}\n', "line 2 has no whole numbers"),
    ],
)
async def test_a_shard_that_is_damaged_is_an_error_that_names_the_line(stub: Stub, files: Files, line: bytes, words: str) -> None:
    path = files.write("one.jsonl", [stamped(1)])
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(OutputFailedError, match=words):
        await shards(stub, files, "one.jsonl")
    assert not (files.directory / "all.jsonl").exists()


async def test_rollouts_that_nobody_can_be_asked_about_are_told(stub: Stub, files: Files) -> None:
    files.write("one.jsonl", [stamped(1), {"reward": 1.0, "_ng_task_index": 2, "_ng_rollout_index": 0}])
    events: list[Any] = []
    await shards(stub, files, "one.jsonl", told=events.append)
    assert any("1 rollouts name neither an environment server nor an agent" in getattr(event, "text", "") for event in events)
