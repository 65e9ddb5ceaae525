"""Whole runs against stub servers: what is sent, what is stored, what is counted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gym_compose.driver.errors import (
    AmbiguousEnvironmentServerError,
    HeadError,
    OutputExistsError,
    OutputFailedError,
    OutputLockedError,
    RoutingError,
)
from gym_compose.driver.lock import LockHolder, OutputLock
from gym_compose.tasks.errors import RowError
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.run import RunSummary
from gym_compose.wire.settings import Settings


def assert_accounted(summary: RunSummary, stubs: Any) -> None:
    counts = summary.counts
    assert counts.completed + counts.failed + counts.unresolved == counts.requested
    assert len(stubs.read(stubs.output)) == counts.completed
    assert len(stubs.read(stubs.beside("_failures.jsonl"))) == counts.failed
    written = {**orjson.loads(summary.model_dump_json()), "files": {kind: Path(path).name for kind, path in summary.files.items()}}
    assert orjson.loads(stubs.beside("_summary.json").read_bytes()) == written, "its files stand beside it"
    assert not Path(f"{stubs.output}.lock").exists()


async def test_flat_and_materialized_rows_of_one_file_go_to_their_servers(stubs: Any) -> None:
    summary = await stubs.run([stubs.flat("a", verifier_metadata={"id": 1}), stubs.flat("b"), stubs.mat("ts", "t9")], num_repeats=2)
    assert summary.counts.model_dump() == {"requested": 6, "completed": 6, "failed": 0, "unresolved": 0}
    assert summary.exit_code == 0
    assert summary.mean_reward == 1.0
    assert_accounted(summary, stubs)
    assert stubs.servers["a_env"].seen[0] == stubs.read(stubs.beside("_materialized_inputs.jsonl"))[0]
    assert [body["episode_id"] for body in stubs.servers["native"].seen] == [
        {"rollout_id": "2-0", "attempt": 0},
        {"rollout_id": "2-1", "attempt": 0},
    ]
    assert stubs.servers["native"].seen[0]["task"] == {"task_id": {"taskset": "ts", "task_id": "t9"}, "task_input": {"q": 1}}
    by_key = {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in stubs.read(stubs.output)}
    assert list(by_key[0, 1]) == [
        *("responses_create_params", "response", "reward"),
        *("_ng_task_index", "_ng_rollout_index", "agent_ref", "_ng_environment_server", "_ng_result_type"),
    ]
    assert list(by_key[2, 0]) == [
        *("reward", "response", "_ng_task_id"),
        *("_ng_task_index", "_ng_rollout_index", "_ng_environment_server", "_ng_result_type"),
    ]
    assert {row["_ng_result_type"] for row in by_key.values()} == {"legacy_agent", "single_agent_turn"}


async def test_metrics_stand_in_the_order_of_the_config_and_are_asked_with_light_sorted_rows(stubs: Any) -> None:
    await stubs.run([stubs.mat("ts", "t"), stubs.flat("b"), stubs.flat("a")], num_repeats=3)
    entries = orjson.loads(stubs.beside("_aggregate_metrics.json").read_bytes())
    assert [entry["_ng_environment_server"] for entry in entries] == ["a_env", "b_env", "native"]
    assert [entry["agent_ref"] for entry in entries] == [{"name": "a"}, {"name": "b"}, {"name": "n"}]
    assert list(entries[0]) == [
        *("agent_ref", "_ng_environment_server"),
        *("agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics"),
    ]
    sent = stubs.servers["native"].aggregated[0]["verify_responses"]
    assert [row["_ng_rollout_index"] for row in sent] == [0, 1, 2]
    assert sent[0]["response"] == {"usage": {"total_tokens": 3}}
    assert "responses_create_params" not in stubs.servers["a_env"].aggregated[0]["verify_responses"][0]


async def test_without_aggregation_no_server_is_asked(stubs: Any) -> None:
    summary = await stubs.run([stubs.flat("a")], disable_aggregation=True)
    assert "aggregate_metrics" not in summary.files
    assert stubs.servers["a_env"].aggregated == []


async def test_a_failed_aggregation_keeps_the_rollouts_and_ends_with_an_error(stubs: Any) -> None:
    stubs.servers["a_env"].aggregate_status = 500
    summary = await stubs.run([stubs.flat("a")])
    assert summary.exit_code == 1
    assert "a_env" in (summary.error or "")
    assert summary.counts.completed == 1
    assert not stubs.beside("_aggregate_metrics.json").exists()
    assert_accounted(summary, stubs)


async def test_asked_to_stop_while_the_metrics_are_made_the_run_ends_with_its_summary(stubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = asyncio.Event()

    async def never(*_: Any) -> None:
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("gym_compose.driver.run.aggregate", never)
    summary = await stubs.run([stubs.flat("a")], stop=stop)
    assert (summary.interrupted, summary.exit_code, summary.counts.completed) == (True, 130, 1)
    assert stubs.beside("_summary.json").exists()
    assert_accounted(summary, stubs)


async def test_a_disk_that_says_only_at_the_end_that_it_is_full_is_an_error_of_the_run(stubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if os.path.realpath(f"/proc/self/fd/{fd}").endswith("rollouts.jsonl"):
            raise OSError(28, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    summary = await stubs.run([stubs.flat("a")])
    assert (summary.exit_code, summary.counts.completed) == (4, 1)
    assert "disk is full" in (summary.error or "")


async def test_a_summary_that_cannot_be_written_is_not_among_the_files(stubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OutputFailedError("cannot be written: the disk is full")

    monkeypatch.setattr("gym_compose.driver.run.write_document", full)
    summary = await stubs.run([stubs.flat("a")])
    assert summary.exit_code == 4
    assert "summary" not in summary.files


async def test_an_output_that_is_no_file_is_refused_and_left_alone(stubs: Any) -> None:
    stubs.output.parent.mkdir()
    os.mkfifo(stubs.output)
    with pytest.raises(InvalidInputError, match="a device or a pipe"):
        await stubs.run([stubs.flat("a")], overwrite=True)
    assert stubs.output.is_fifo()
    stubs.output.unlink()
    stubs.output.mkdir()
    with pytest.raises(InvalidInputError, match="a directory"):
        await stubs.run([stubs.flat("a")])


def json_response(status: int, body: bytes) -> Any:
    return lambda _body: web.Response(status=status, body=body, content_type="application/json")


EPISODE = b'"episode_id":{"rollout_id":"0-0"},"task_id":{"taskset":"ts","task_id":"t"}'


@pytest.mark.parametrize(
    ("row", "status", "body", "expected"),
    [
        ("flat", 500, b'"boom"', ("agent_run_error", 500, '"boom"')),
        ("flat", 422, b'{"detail":[]}', ("agent_run_error", 422, '{"detail":[]}')),
        ("flat", 404, b"", ("agent_run_error", 404, None)),
        ("flat", 429, b"slow", ("agent_request_failed", 429, "slow")),
        ("flat", 502, b"x", ("agent_request_failed", 502, "x")),
        ("flat", 503, b"x", ("agent_request_failed", 503, "x")),
        ("flat", 504, b"x" * 3000, ("agent_request_failed", 504, "x" * 2000 + "…")),
        ("flat", 200, b"<html>", ("agent_run_error", 200, "<html>")),
        ("flat", 200, b"", ("agent_run_error", 200, None)),
        ("flat", 200, b"[1]", ("agent_run_error", 200, "[1]")),
        ("flat", 200, b"null", ("agent_run_error", 200, "null")),
        ("flat", 200, b'{"reward":1,"x":%b%b}' % (b"[" * 300, b"]" * 300), ("agent_run_error", None, None)),  # read, but not to be written
        ("flat", 200, b'{"_ng_failure_class":"x","x":%b%b}' % (b"[" * 300, b"]" * 300), ("agent_run_error", None, None)),
        ("mat", 422, b'{"detail":[]}', ("agent_run_error", 422, '{"detail":[]}')),
        ("mat", 200, b'{%b,"result":{"_ng_y":1},"failure":null}' % EPISODE, ("agent_run_error", 200, None)),
        ("mat", 200, b'{%b,"result":{"ng_perf":1},"failure":null}' % EPISODE, ("agent_run_error", 200, None)),
        ("mat", 200, b'{%b,"result":[]}' % EPISODE, ("agent_run_error", 200, None)),
        ("mat", 200, b'{%b,"result":null,"failure":"why"}' % EPISODE, ("agent_run_error", 200, None)),
    ],
)
async def test_one_bad_reply_fails_one_row_and_never_the_run(
    stubs: Any, row: str, status: int, body: bytes, expected: tuple[str, int | None, str | None]
) -> None:
    good = stubs.reward()
    bad = json_response(status, body)
    for name in ("a_env", "native"):
        stubs.servers[name].answer = lambda sent: bad(sent) if b'"bad"' in orjson.dumps(sent) else good(sent)
    rows = {"flat": stubs.flat("a", mark="bad"), "mat": {**stubs.mat("ts", "bad")}}
    summary = await stubs.run([stubs.flat("a"), rows[row], stubs.mat("ts", "good")])
    assert summary.counts.model_dump() == {"requested": 3, "completed": 2, "failed": 1, "unresolved": 0}
    assert summary.exit_code == 0
    assert_accounted(summary, stubs)
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert (failure["_ng_failure_class"], failure["_ng_failure_http_status"]) == expected[:2]
    if expected[2] is not None or body == b"":
        assert failure["_ng_failure_response_body"] == expected[2]
    assert failure["_ng_task_index"] == 1
    assert "reward" not in failure
    assert "response" not in failure
    assert list(failure)[:5] == [
        *("_ng_failure_class", "_ng_failure_type", "_ng_failure_message"),
        *("_ng_failure_http_status", "_ng_failure_response_body"),
    ]


async def test_a_handled_failure_of_an_episode_keeps_stage_kind_and_partial_response(stubs: Any) -> None:
    failure = {"failure_reason": "why", "terminal": False, "stage": "seed", "failure_kind": "session_lost", "partial_response": {"id": 1}}

    def answer(body: dict[str, Any]) -> web.Response:
        if body["task"]["task_id"]["task_id"] == "good":
            reply = {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], "result": {"reward": 0.5}, "failure": None}
            return web.json_response(reply)
        return web.json_response({"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], "result": None, "failure": failure})

    stubs.servers["native"].answer = answer
    summary = await stubs.run([stubs.mat("ts", "bad"), stubs.mat("ts", "good")])
    assert summary.failures == {"environment_server_failed": 1}
    (stored,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert stored == {
        "_ng_task_id": {"taskset": "ts", "task_id": "bad"},
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": False,
        "_ng_failure_message": "why",
        "_ng_failure_stage": "seed",
        "_ng_failure_partial_response": {"id": 1},
        "_ng_failure_kind": "session_lost",
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "_ng_environment_server": "native",
        "_ng_result_type": "single_agent_turn",
    }


async def test_a_dropped_connection_is_a_failure_and_the_request_is_not_sent_again(stubs: Any) -> None:
    good = stubs.reward()

    def answer(body: dict[str, Any]) -> Any:
        return web.Response(headers={"x-drop": "1"}) if body.get("mark") else good(body)

    stubs.servers["a_env"].answer = answer
    summary = await stubs.run([stubs.flat("a", mark=1), stubs.flat("a")])
    assert (summary.counts.completed, summary.counts.failed) == (1, 1)
    assert len([body for body in stubs.servers["a_env"].seen if body.get("mark")]) == 1
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert (failure["_ng_failure_class"], failure["_ng_failure_http_status"]) == ("agent_request_failed", None)
    assert failure["_ng_failure_kind"] == "transport_peer_drop"


async def test_what_a_server_asks_not_to_store_is_unresolved(stubs: Any) -> None:
    good = stubs.reward()
    stubs.servers["a_env"].answer = lambda body: (
        web.json_response({"reward": 1.0, "_ng_no_persist": True}) if body.get("mark") else good(body)
    )
    summary = await stubs.run([stubs.flat("a", mark=1), stubs.flat("a")])
    assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 0, "unresolved": 1}
    assert summary.exit_code == 0
    assert_accounted(summary, stubs)


async def test_a_failure_class_in_a_flat_answer_is_taken_at_its_word(stubs: Any) -> None:
    good = stubs.reward()
    stubs.servers["a_env"].answer = lambda body: (
        web.json_response({"reward": 0.0, "_ng_failure_class": "judge_failed"}) if body.get("mark") else good(body)
    )
    summary = await stubs.run([stubs.flat("a", mark=1), stubs.flat("a")])
    assert summary.failures == {"judge_failed": 1}
    assert stubs.read(stubs.beside("_failures.jsonl"))[0]["reward"] == 0.0


async def test_a_rollout_without_reward_or_masked_is_stored_and_not_averaged(stubs: Any) -> None:
    answers = iter([{"reward": 0.25}, {}, {"reward": 1.0, "mask_sample": True}])
    stubs.servers["a_env"].answer = lambda _body: web.json_response(next(answers))
    summary = await stubs.run([stubs.flat("a", n=n) for n in range(3)], num_samples_in_parallel=1)
    assert summary.counts.completed == 3
    assert summary.mean_reward == 0.25


async def test_an_episode_without_a_reward_is_a_rollout_without_a_score(stubs: Any) -> None:
    stubs.servers["native"].answer = lambda body: web.json_response(
        {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], "result": {"note": 1}, "failure": None}
    )
    summary = await stubs.run([stubs.mat("ts", "t")])
    assert (summary.counts.completed, summary.mean_reward, summary.exit_code) == (1, None, 0)
    assert [(group.rollouts, group.failed, group.mean_reward) for group in summary.groups] == [(1, 0, None)]
    (record,) = stubs.read(stubs.output)
    assert (record["note"], "reward" in record) == (1, False)


async def test_a_row_that_nothing_was_stored_of_counts_as_zero_before_the_row_behind_it(stubs: Any) -> None:
    """Edge case 33: in the metrics and nowhere else."""
    good = stubs.reward()
    stubs.servers["a_env"].answer = lambda body: web.json_response({"_ng_no_persist": True}) if body.get("mark") else good(body)
    summary = await stubs.run([stubs.flat("a", mark=1), stubs.flat("a")], count_missing_rollouts_as_zero=True)
    (asked,) = stubs.servers["a_env"].aggregated
    assert [(row["_ng_task_index"], row["reward"]) for row in asked["verify_responses"]] == [(0, 0.0), (1, 1.0)]
    assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 0, "unresolved": 1}
    assert [row["_ng_task_index"] for row in stubs.read(stubs.output)] == [1]
    assert stubs.read(stubs.beside("_failures.jsonl")) == []


async def test_a_failure_that_counts_as_zero_is_in_the_metrics_unmasked_and_stays_a_failure(stubs: Any) -> None:
    """Edge case 35."""
    good = stubs.reward()
    judged = {"reward": 0.0, "mask_sample": True, "failure_kind": "judge_failed", "_ng_failure_class": "judge_failed"}
    stubs.servers["a_env"].answer = lambda body: web.json_response(judged) if body.get("mark") else good(body)
    summary = await stubs.run([stubs.flat("a", mark=1), stubs.flat("a")], count_failure_classes_as_zero=["judge_failed"])
    (asked,) = stubs.servers["a_env"].aggregated
    zero, scored = asked["verify_responses"]
    assert (zero["_ng_task_index"], zero["reward"], zero["mask_sample"], "failure_kind" in zero) == (0, 0.0, False, False)
    assert not any(key.startswith("_ng_failure") for key in zero)
    assert (scored["_ng_task_index"], scored["reward"]) == (1, 1.0)
    assert summary.failures == {"judge_failed": 1}
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert {key: failure[key] for key in judged} == judged


@pytest.mark.parametrize("answer", [{"reward": 1.0, "_ng_no_persist": True}, {"reward": 0.0, "_ng_failure_class": "judge_failed"}])
async def test_a_run_of_which_no_rollout_was_stored_is_an_error_without_metrics(stubs: Any, answer: dict[str, Any]) -> None:
    """Edge case 34."""
    stubs.servers["a_env"].answer = lambda _body: web.json_response(answer)
    summary = await stubs.run([stubs.flat("a"), stubs.flat("a", n=1)])
    assert (summary.exit_code, summary.counts.completed) == (1, 0)
    assert ("judge_failed" in answer.values()) == ("2 judge_failed" in (summary.error or ""))
    assert not stubs.beside("_aggregate_metrics.json").exists()
    assert stubs.servers["a_env"].aggregated == []


async def test_two_relays_and_a_native_server_whose_rollouts_come_mixed_have_one_entry_each(stubs: Any) -> None:
    """Edge case 63."""
    rows = [row for n in range(4) for row in (stubs.flat("a", n=n), stubs.mat("ts", str(n)), stubs.flat("b", n=n))]
    await stubs.run(rows, num_samples_in_parallel=1)
    written = [row["_ng_environment_server"] for row in stubs.read(stubs.output)]
    assert written == ["a_env", "native", "b_env"] * 4
    entries = orjson.loads(stubs.beside("_aggregate_metrics.json").read_bytes())
    assert [(entry["_ng_environment_server"], entry["agent_ref"]["name"]) for entry in entries] == [
        ("a_env", "a"),
        ("b_env", "b"),
        ("native", "n"),
    ]
    for name in ("a_env", "b_env", "native"):
        (asked,) = stubs.servers[name].aggregated
        assert len(asked["verify_responses"]) == 4


async def test_nothing_completed_is_an_error_and_leaves_no_metrics(stubs: Any) -> None:
    stubs.servers["a_env"].answer = json_response(500, b"1")
    summary = await stubs.run([stubs.flat("a"), stubs.flat("a", x=1)])
    assert summary.exit_code == 1
    assert "2 agent_run_error" in (summary.error or "")
    assert not stubs.beside("_aggregate_metrics.json").exists()
    assert_accounted(summary, stubs)


@pytest.mark.parametrize(
    ("counted", "code"),
    [
        ({"count_failure_classes_as_zero": ["agent_run_error"]}, 0),
        ({"count_failure_classes_as_zero": ["judge_failed"]}, 1),
        ({"count_missing_rollouts_as_zero": True}, 0),
        ({"count_missing_rollouts_as_zero": True, "disable_aggregation": True}, 1),
    ],
)
async def test_nothing_completed_is_no_error_where_failures_count_as_zeros(stubs: Any, counted: dict[str, Any], code: int) -> None:
    stubs.servers["a_env"].answer = json_response(500, b"1")
    assert (await stubs.run([stubs.flat("a")], **counted)).exit_code == code


async def test_no_rows_is_a_run_of_nothing(stubs: Any) -> None:
    summary = await stubs.run([stubs.flat("a")], limit=-1)
    assert summary.counts.requested == 0
    assert summary.exit_code == 0
    assert stubs.output.read_bytes() == b""


@pytest.mark.parametrize("window", [1, 2, 5, 64, None])
async def test_the_window_bounds_what_is_in_flight_and_changes_no_record(stubs: Any, window: int | None) -> None:
    async def slow(body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.02)
        return web.json_response({"reward": body["_ng_task_index"] / 12, "task": body["_ng_task_index"]})

    stubs.servers["a_env"].answer = slow
    await stubs.run([stubs.flat("a", n=n) for n in range(12)], num_samples_in_parallel=window)
    assert stubs.servers["a_env"].peak == min(window or 12, 12)
    records = sorted(stubs.read(stubs.output), key=lambda row: row["_ng_task_index"])
    assert [row["task"] for row in records] == list(range(12))
    assert [row["reward"] for row in records] == [n / 12 for n in range(12)]


async def test_without_a_window_many_rows_are_warned_about_with_number_and_memory(stubs: Any) -> None:
    await stubs.run([stubs.flat("a", n=n) for n in range(70)], num_samples_in_parallel=None)
    assert any("70 rollouts" in text and "MB" in text for text in stubs.warnings)


async def test_rows_are_begun_in_the_order_of_the_materialized_file_interleaved_or_not(stubs: Any) -> None:
    rows = [stubs.flat("a", n=n) for n in range(3)]
    await stubs.run(rows, num_repeats=2, num_samples_in_parallel=1)
    assert [(b["_ng_task_index"], b["_ng_rollout_index"]) for b in stubs.servers["a_env"].seen] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    stubs.servers["a_env"].seen.clear()
    await stubs.run(rows, num_repeats=2, num_samples_in_parallel=1, interleave_repeats=True, overwrite=True)
    order = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert [(b["_ng_task_index"], b["_ng_rollout_index"]) for b in stubs.servers["a_env"].seen] == order
    materialized = stubs.read(stubs.beside("_materialized_inputs.jsonl"))
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in materialized] == order


async def test_an_attempt_is_journaled_before_its_request_arrives(stubs: Any) -> None:
    seen_in_time: list[bool] = []

    def answer(body: dict[str, Any]) -> web.Response:
        lines = stubs.read(stubs.beside("_journal.jsonl"))
        sent = {(line["task"], line["rollout"]) for line in lines if line["event"] == "sent"}
        seen_in_time.append((body["_ng_task_index"], body["_ng_rollout_index"]) in sent)
        return web.json_response({"reward": 1.0})

    stubs.servers["a_env"].answer = answer
    for policy in ("always", "interval", "never"):
        settings = Settings(journal_fsync=policy, journal_fsync_seconds=0.01)
        await stubs.run([stubs.flat("a", n=n) for n in range(20)], overwrite=True, settings=settings)
        lines = stubs.read(stubs.beside("_journal.jsonl"))
        assert lines[0]["event"] == "run"
        assert lines[0]["requested"] == 20
        sent = [line["attempt_id"] for line in lines if line["event"] == "sent"]
        assert len(set(sent)) == 20
        assert {line["attempt_id"]: line["outcome"] for line in lines if line["event"] == "ended"} == dict.fromkeys(sent, "completed")
    assert seen_in_time == [True] * 60


async def test_an_unknown_fsync_policy_is_refused(stubs: Any) -> None:
    with pytest.raises(InvalidInputError, match="always, interval, never"):
        await stubs.run([stubs.flat("a")], settings=Settings(journal_fsync="sometimes"))


async def test_stop_cancels_what_is_in_flight_keeps_what_came_back_and_counts_the_rest(stubs: Any) -> None:
    stop = asyncio.Event()
    cancelled: list[int] = []

    async def answer(body: dict[str, Any]) -> web.Response:
        index = body["_ng_task_index"]
        if index < 3:
            return web.json_response({"reward": 1.0})
        if len(stubs.servers["a_env"].seen) >= 6:
            stop.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(index)
            raise
        raise AssertionError("not cancelled")

    stubs.servers["a_env"].answer = answer
    summary = await asyncio.wait_for(stubs.run([stubs.flat("a", n=n) for n in range(10)], stop=stop, num_samples_in_parallel=3), 10)
    assert summary.interrupted
    assert summary.exit_code == 130
    assert summary.counts.model_dump() == {"requested": 10, "completed": 3, "failed": 0, "unresolved": 7}
    assert not stubs.beside("_aggregate_metrics.json").exists()
    assert_accounted(summary, stubs)
    outcomes = [line["outcome"] for line in stubs.read(stubs.beside("_journal.jsonl")) if line["event"] == "ended"]
    assert sorted(outcomes) == ["cancelled"] * 3 + ["completed"] * 3
    await asyncio.sleep(0.1)
    assert sorted(cancelled) == [3, 4, 5]


async def test_a_stop_before_the_first_request_sends_nothing(stubs: Any) -> None:
    stop = asyncio.Event()
    stop.set()
    summary = await stubs.run([stubs.flat("a", n=n) for n in range(3)], stop=stop)
    assert (summary.exit_code, summary.counts.unresolved) == (130, 3)
    assert stubs.servers["a_env"].seen == []
    assert_accounted(summary, stubs)


async def test_progress_counts_up_and_the_last_event_is_the_summary(stubs: Any) -> None:
    async def slow(_body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.08)
        return web.json_response({"reward": 0.5})

    stubs.servers["a_env"].answer = slow
    summary = await stubs.run([stubs.flat("a", n=n) for n in range(8)], num_samples_in_parallel=2)
    done = [event.counts.completed for event in stubs.progress]
    assert done == sorted(done)
    assert any(0 < count < 8 for count in done)
    assert all(event.in_flight <= 2 for event in stubs.progress)
    middle = next(event for event in stubs.progress if 0 < event.counts.completed < 8)
    assert middle.eta_seconds is not None
    assert middle.mean_reward == 0.5
    assert stubs.events[-1] is summary
    assert [group.model_dump() for group in summary.groups] == [
        {"environment_server": "a_env", "taskset": None, "agent": "a", "rollouts": 8, "failed": 0, "mean_reward": 0.5}
    ]


class TestNothingIsTouchedBeforeAllIsChecked:
    @pytest.mark.parametrize(
        ("rows", "changes", "error", "text"),
        [
            ([{"agent_ref": {"name": "aa"}, "responses_create_params": {}}], {}, RoutingError, "Did you mean 'a"),
            ([{"task_id": {"taskset": "tz", "task_id": "1"}, "task_input": None}], {}, RowError, "'tz'"),
            ([{"agent_ref": {"name": "a"}}], {}, RowError, "responses_create_params is missing"),
            ([{"responses_create_params": {}}], {}, InvalidInputError, "no agent for rows 0"),
            ([{"responses_create_params": {}, "task_source": "rsx"}], {}, RoutingError, "rsx"),
            ([{"responses_create_params": {}}], {"agent_name": "rs"}, RoutingError, "not an agent"),
            ([{"responses_create_params": {}}], {"environment_routing_mode": "legacy"}, InvalidInputError, "environment_server_name"),
            (
                [{"responses_create_params": {}}],
                {"environment_routing_mode": "legacy", "environment_server_name": "a_envv"},
                RoutingError,
                "Did you mean 'a_env",
            ),
            (
                [{"responses_create_params": {}}],
                {"environment_routing_mode": "taskset", "environment_server_routes": {}},
                InvalidInputError,
                "routes",
            ),
        ],
    )
    async def test_a_bad_row_leaves_earlier_results_as_they_are(
        self, stubs: Any, rows: list[dict[str, Any]], changes: dict[str, Any], error: type[Exception], text: str
    ) -> None:
        await stubs.run([stubs.flat("a")])
        before = {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()}
        with pytest.raises(error) as raised:
            await stubs.run(rows, overwrite=True, **changes)
        assert text in str(raised.value) + str(getattr(raised.value, "details", ""))
        assert {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()} == before

    async def test_an_agent_that_two_servers_front(self, stubs: Any, blocks: Any) -> None:
        await stubs.run([stubs.flat("a")])
        before = stubs.output.read_bytes()
        stubs.config["twin"] = blocks.environment(agent_server={"name": "a"}, host="127.0.0.1", port=1)
        with pytest.raises(AmbiguousEnvironmentServerError, match="a_env, twin"):
            await stubs.run([stubs.flat("a")], overwrite=True)
        assert stubs.output.read_bytes() == before

    async def test_a_missing_input(self, stubs: Any, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="does not exist"):
            await stubs.run(tmp_path / "nowhere.jsonl")
        assert list(stubs.output.parent.iterdir()) == []

    async def test_results_of_an_earlier_run_need_overwrite(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        before = {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()}
        with pytest.raises(OutputExistsError, match="--overwrite"):
            await stubs.run([stubs.flat("b")])
        assert {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()} == before
        summary = await stubs.run([stubs.flat("b")], overwrite=True)
        assert summary.counts.completed == 1
        assert [row["agent_ref"]["name"] for row in stubs.read(stubs.output)] == ["b"]

    async def test_an_output_that_another_driver_writes_to(self, stubs: Any) -> None:
        stubs.output.parent.mkdir()
        lock = OutputLock(Path(f"{stubs.output}.lock"), LockHolder.of_this_process("other-run"))
        with lock, pytest.raises(OutputLockedError, match="other-run"):
            await stubs.run([stubs.flat("a")])
        assert (await stubs.run([stubs.flat("a")])).counts.completed == 1

    async def test_an_output_directory_that_cannot_be_made(self, stubs: Any, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("a file")
        with pytest.raises(OutputFailedError):
            await stubs.run([stubs.flat("a")])


class TestTheHead:
    async def test_is_gone(self, stubs: Any) -> None:
        url = stubs.url
        await stubs.runner.cleanup()
        with pytest.raises(HeadError, match="no head server answers") as raised:
            await stubs.run([stubs.flat("a")], head_url=url, settings=Settings(run_head_seconds=0.3, connect_retry_seconds=0.1))
        assert raised.value.where == url

    async def test_is_not_ready_and_says_who_is_missing(self, stubs: Any) -> None:
        stubs.ready = False
        with pytest.raises(HeadError, match="waiting for slow_server"):
            await stubs.run([stubs.flat("a")])

    async def test_is_none(self, stubs: Any) -> None:
        with pytest.raises(HeadError, match="global_config_dict_yaml"):
            await stubs.run([stubs.flat("a")], head_url=f"http://127.0.0.1:{stubs.servers['a_env'].port}")

    async def test_has_no_url(self, stubs: Any) -> None:
        with pytest.raises(HeadError, match="URL"):
            await stubs.run([stubs.flat("a")], head_url="nonsense")


class TestADeadServer:
    async def test_ends_the_run_with_its_name_and_the_rest_unresolved(self, stubs: Any) -> None:
        server = stubs.servers["a_env"]
        good = stubs.reward()

        async def answer(body: dict[str, Any]) -> web.StreamResponse:
            if body["_ng_task_index"] == 2:
                asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(server.stop()))
            reply: web.StreamResponse = await good(body)
            return reply

        server.answer = answer
        summary = await asyncio.wait_for(stubs.run([stubs.flat("a", n=n) for n in range(6)], num_samples_in_parallel=1), 20)
        assert summary.exit_code == 7
        assert "a_env" in (summary.error or "")
        assert summary.counts.unresolved >= 2
        assert_accounted(summary, stubs)

    async def test_that_comes_back_in_time_costs_no_row(self, stubs: Any) -> None:
        server = stubs.servers["a_env"]
        await server.stop()

        async def revive() -> None:
            await asyncio.sleep(0.3)
            await server.start()

        reviving = asyncio.ensure_future(revive())
        summary = await asyncio.wait_for(stubs.run([stubs.flat("a", n=n) for n in range(4)]), 20)
        await reviving
        assert summary.counts.completed == 4


async def test_a_full_disk_ends_the_run_cleanly(stubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    written: list[int] = []

    def write(fd: int, data: Any) -> int:
        if os.path.realpath(f"/proc/self/fd/{fd}").endswith("rollouts.jsonl"):
            written.append(len(data))
            if len(written) == 3:
                return real(fd, memoryview(data)[:10])  # a part fits
            if len(written) > 3:
                raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    summary = await stubs.run([stubs.flat("a", n=n) for n in range(6)], num_samples_in_parallel=2)
    assert summary.exit_code == 4
    assert "disk is full" in (summary.error or "")
    assert summary.counts.completed == 2
    assert_accounted(summary, stubs)


# aiohttp warns that bytes of more than 1 MiB are copied at once; the client of serving decides how a body is handed over.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_big_rows_and_replies_pass(stubs: Any) -> None:
    big = "y" * 3_000_000
    stubs.servers["a_env"].answer = lambda _body: web.json_response({"reward": 1.0, "text": big * 3})
    summary = await stubs.run([stubs.flat("a", data=big)])
    assert summary.counts.completed == 1
    assert len(stubs.servers["a_env"].aggregated[0]["verify_responses"][0]["text"]) == 9_000_000
