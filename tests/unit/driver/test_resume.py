"""Going on with a run: which rows are sent again, what is refused, what is repaired (contract-data 1.12, edge cases 30 to 32, 41 to 44)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gym_compose.driver.errors import OutputExistsError, ResumeError, RoutingError
from gym_compose.driver.output import OutputPaths
from gym_compose.driver.resume import check_request
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.run import RunSummary, RunWarning

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "peer_run"


def keys(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)


def fail_where(stubs: Any, failing: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """The stub behind agent ``a`` answers with what ``failing`` gives, else a reward."""
    good = stubs.reward()
    stubs.servers["a_env"].answer = lambda body: web.json_response(given) if (given := failing(body)) is not None else good(body)


def assert_whole(stubs: Any, summary: RunSummary, requested: int) -> None:
    """Every row once in the output, and the counts say so."""
    assert summary.counts.model_dump() == {"requested": requested, "completed": requested, "failed": 0, "unresolved": 0}
    assert keys(stubs.read(stubs.output)) == keys(stubs.read(stubs.beside("_materialized_inputs.jsonl")))
    assert orjson.loads(stubs.beside("_summary.json").read_bytes())["counts"] == summary.counts.model_dump()


def notes(stubs: Any) -> str:
    return "\n".join(event.text for event in stubs.events if isinstance(event, RunWarning) and event.level == "note")


async def test_rows_that_are_done_are_skipped_and_the_numbers_are_those_of_the_whole_run(stubs: Any) -> None:
    rows = [stubs.flat("a", n=n) for n in range(4)]
    fail_where(stubs, lambda body: {"_ng_no_persist": True} if body["n"] == 2 else None)
    first = await stubs.run(rows, num_repeats=2)
    assert first.counts.unresolved == 2
    stubs.servers["a_env"].seen.clear()
    stubs.servers["a_env"].answer = stubs.reward(0.0)
    summary = await stubs.run(rows, num_repeats=2, resume_from_cache=True, run_id="run2")
    assert [(body["n"], body.get("_ng_attempt_index")) for body in stubs.servers["a_env"].seen] == [(2, None), (2, None)]
    assert_whole(stubs, summary, 8)
    assert summary.mean_reward == 0.75
    assert summary.groups[0].rollouts == 8
    assert summary.run_id == "run2"
    assert "going on with run run1: 6 of 8 rollouts are done, 2 to run" in notes(stubs)
    again = await stubs.run(rows, num_repeats=2, resume_from_cache=True, run_id="run3")
    assert_whole(stubs, again, 8)
    assert len(stubs.servers["a_env"].seen) == 2
    assert [line["run_id"] for line in stubs.read(stubs.beside("_journal.jsonl")) if line["event"] == "run"] == ["run1", "run2", "run3"]


async def test_a_failed_row_is_tried_again_with_its_attempt_number_until_it_failed_as_often_as_it_may(stubs: Any) -> None:
    rows = [stubs.flat("a", n=n) for n in range(2)]
    fail_where(stubs, lambda body: {"_ng_failure_class": "agent_run_error", "why": 1} if body["n"] == 1 else None)
    await stubs.run(rows)
    for attempt in (1, 2):
        stubs.servers["a_env"].seen.clear()
        summary = await stubs.run(rows, resume_from_cache=True)
        assert [body["_ng_attempt_index"] for body in stubs.servers["a_env"].seen] == [attempt]
        assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 1, "unresolved": 0}
    stubs.servers["a_env"].seen.clear()
    summary = await stubs.run(rows, resume_from_cache=True)
    assert stubs.servers["a_env"].seen == []
    assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 1, "unresolved": 0}
    assert summary.failures == {"agent_run_error": 1}
    assert "1 failed and stay so (0 for good, 1 after 3 attempts), 0 to run" in notes(stubs)
    assert [row.get("_ng_attempt_index") for row in stubs.read(stubs.beside("_failures.jsonl"))] == [None, 1, 2]
    stubs.servers["a_env"].answer = stubs.reward()
    summary = await stubs.run(rows, resume_from_cache=True, environ={"NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": "4"})
    assert_whole(stubs, summary, 2)
    assert [row.get("_ng_attempt_index") for row in stubs.read(stubs.output)] == [None, 3]


async def test_a_server_that_answers_500_is_asked_three_times_over_four_runs(stubs: Any) -> None:
    """Edge case 30: attempts 1 and 2 are sent with their number, a fourth run sends nothing."""
    rows = [stubs.flat("a"), stubs.flat("b")]
    stubs.servers["a_env"].answer = lambda _body: web.json_response("boom", status=500)
    await stubs.run(rows)
    for _ in range(3):
        summary = await stubs.run(rows, resume_from_cache=True)
    assert [body.get("_ng_attempt_index") for body in stubs.servers["a_env"].seen] == [None, 1, 2]
    assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 1, "unresolved": 0}
    stored = stubs.read(stubs.beside("_failures.jsonl"))
    assert [(row["_ng_failure_class"], row["_ng_failure_response_body"]) for row in stored] == [("agent_run_error", '"boom"')] * 3


async def test_an_episode_that_failed_is_tried_again_as_its_next_attempt(stubs: Any) -> None:
    failure = {"failure_reason": "why", "terminal": False}

    def answer(body: dict[str, Any]) -> web.Response:
        reply = {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"]}
        first = body["episode_id"]["attempt"] == 0
        return web.json_response({**reply, "result": None if first else {"reward": 1.0}, "failure": failure if first else None})

    stubs.servers["native"].answer = answer
    rows = [stubs.mat("ts", "1")]
    assert (await stubs.run(rows)).counts.failed == 1
    assert_whole(stubs, await stubs.run(rows, resume_from_cache=True), 1)
    assert [body["episode_id"] for body in stubs.servers["native"].seen] == [
        {"rollout_id": "0-0", "attempt": 0},
        {"rollout_id": "0-0", "attempt": 1},
    ]


async def test_a_terminal_failure_is_not_tried_again_unless_timeouts_are(stubs: Any) -> None:
    classes = ["timeout_exceeded", "skipped", "judge_failed"]
    failures = [{"_ng_failure_class": name, "_ng_failure_terminal": True, "elapsed_seconds": 1} for name in classes]
    fail_where(stubs, lambda body: failures[body["n"]] if body["n"] < 3 else None)
    rows = [stubs.flat("a", n=n) for n in range(4)]
    await stubs.run(rows)
    stubs.servers["a_env"].seen.clear()
    summary = await stubs.run(rows, resume_from_cache=True)
    assert stubs.servers["a_env"].seen == []
    assert summary.counts.model_dump() == {"requested": 4, "completed": 1, "failed": 3, "unresolved": 0}
    stubs.servers["a_env"].answer = stubs.reward()
    await stubs.run(rows, resume_from_cache=True, retry_terminal_timeouts=True)
    assert [(body["n"], body["_ng_attempt_index"]) for body in stubs.servers["a_env"].seen] == [(0, 1)]


async def test_longest_first_begins_with_what_is_known_to_be_long(stubs: Any) -> None:
    seconds = {1: 5, 3: 50, 4: 20}
    fail_where(
        stubs,
        lambda body: (
            {"_ng_no_persist": True}
            if body["n"] not in seconds
            else {"_ng_failure_class": "x", "elapsed_seconds": seconds[body["n"]], "reuse_cached_deliverable": body["n"] == 4}
        ),
    )
    rows = [stubs.flat("a", n=n) for n in range(5)]
    await stubs.run(rows)
    stubs.servers["a_env"].seen.clear()
    stubs.servers["a_env"].answer = stubs.reward()
    summary = await stubs.run(rows, resume_from_cache=True, dispatch_longest_first=True, num_samples_in_parallel=1)
    assert [body["n"] for body in stubs.servers["a_env"].seen] == [3, 4, 1, 0, 2]
    assert [body.get("reuse_cached_deliverable") for body in stubs.servers["a_env"].seen] == [None, True, None, None, None]
    assert_whole(stubs, summary, 5)


class TestWhatIsThere:
    async def test_nothing_is_a_fresh_run(self, stubs: Any) -> None:
        assert_whole(stubs, await stubs.run([stubs.flat("a")], resume_from_cache=True), 1)
        assert "nothing to go on with" in notes(stubs)

    async def test_rows_that_no_driver_ever_sent_are_a_fresh_run(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        for ending in (".jsonl", "_failures.jsonl", "_journal.jsonl"):
            stubs.beside(ending).unlink()
        assert_whole(stubs, await stubs.run([stubs.flat("a", n=n) for n in range(2)], resume_from_cache=True), 2)

    async def test_results_without_their_rows_are_refused_and_kept(self, stubs: Any) -> None:
        rows = [stubs.flat("a")]
        await stubs.run(rows)
        stubs.beside("_materialized_inputs.jsonl").unlink()
        before = {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()}
        with pytest.raises(ResumeError, match="rows of their run are gone"):
            await stubs.run(rows, resume_from_cache=True)
        assert {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()} == before

    async def test_strict_compatibility_starts_over_where_the_rows_are_gone(self, stubs: Any) -> None:
        """Edge case 41 as NeMo Gym has it."""
        await stubs.run([stubs.flat("a", n=n) for n in range(3)])
        stubs.beside("_materialized_inputs.jsonl").unlink()
        assert_whole(stubs, await stubs.run([stubs.flat("a")], resume_from_cache=True, strict_compatibility=True), 1)

    async def test_a_run_that_is_there_is_neither_replaced_nor_gone_on_with_unasked(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        with pytest.raises(OutputExistsError, match="--resume"):
            await stubs.run([stubs.flat("a")])

    async def test_strict_compatibility_replaces_as_nemo_gym_does(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a", n=n) for n in range(3)])
        assert_whole(stubs, await stubs.run([stubs.flat("a")], strict_compatibility=True), 1)

    @pytest.mark.parametrize("shape", ["example_single_tool_call", "example_single_tool_call_single_agent_turn"])
    async def test_a_run_of_nemo_gym_is_gone_on_with(self, stubs: Any, blocks: Any, shape: str, tmp_path: Path) -> None:
        """Its own files, of which half the rollouts are cut away."""
        if not GOLDEN.is_dir():
            pytest.skip(f"{GOLDEN} is not there")
        stubs.output.parent.mkdir()
        for file in (GOLDEN / shape).glob("rollouts*.jsonl"):
            shutil.copy(file, stubs.output.parent / file.name)
        done = stubs.output.read_bytes().splitlines(keepends=True)
        stubs.output.write_bytes(b"".join(done[: len(done) // 2]) + done[-1][:40])
        rows = stubs.read(stubs.beside("_materialized_inputs.jsonl"))
        name = orjson.loads(done[0])["_ng_environment_server"]
        server = stubs.servers["a_env"]
        agents = {row["agent_ref"]["name"] for row in rows if "agent_ref" in row} or {"n2"}
        stubs.config |= {agent: blocks.agent() for agent in agents}
        address = {"host": "127.0.0.1", "port": server.port}
        stubs.config[name] = blocks.environment(**{f"{agent}_agent": blocks.reference(agent) for agent in agents}, **address)
        summary = await stubs.run(GOLDEN / "rows.jsonl", resume_from_cache=True)
        assert_whole(stubs, summary, len(rows))
        assert len(server.seen) == len(rows) - len(done) // 2
        assert any("no readable journal (NeMo Gym made it" in text for text in stubs.warnings)
        assert "torn (40 bytes)" in notes(stubs)
        again = await stubs.run(GOLDEN / "rows.jsonl", resume_from_cache=True, run_id="run2")
        assert_whole(stubs, again, len(rows))
        with pytest.raises(ResumeError, match="not what it was"):
            await stubs.run([stubs.flat("a")], resume_from_cache=True)


class TestTornLines:
    @pytest.mark.parametrize("kept", [1, 40, -1])
    async def test_of_all_files_are_cut_off_or_ended_and_told(self, stubs: Any, kept: int) -> None:
        rows = [stubs.flat("a", n=n) for n in range(3)]
        fail_where(stubs, lambda body: {"_ng_failure_class": "x"} if body["n"] == 2 else None)
        await stubs.run(rows, num_samples_in_parallel=1)
        for ending in (".jsonl", "_failures.jsonl", "_journal.jsonl"):
            *whole, last = stubs.beside(ending).read_bytes().splitlines(keepends=True)
            stubs.beside(ending).write_bytes(b"".join(whole) + last[:kept])
        stubs.servers["a_env"].seen.clear()
        stubs.servers["a_env"].answer = stubs.reward()
        summary = await stubs.run(rows, resume_from_cache=True)
        assert_whole(stubs, summary, 3)
        assert sorted(body["n"] for body in stubs.servers["a_env"].seen) == ([2] if kept == -1 else [1, 2])
        assert notes(stubs).count("had no end: ended" if kept == -1 else "was torn") == 3

    async def test_bytes_that_never_reached_the_disk_are_a_torn_line(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        with stubs.output.open("ab") as file:
            file.write(bytes(100))
        assert_whole(stubs, await stubs.run([stubs.flat("a")], resume_from_cache=True), 1)

    @pytest.mark.parametrize("ending", [".jsonl", "_failures.jsonl", "_journal.jsonl", "_materialized_inputs.jsonl"])
    @pytest.mark.parametrize("damage", [b'{"a": \n', b"[]\n", b"\x00\n"])
    async def test_a_damaged_line_inside_is_an_error_that_names_it(self, stubs: Any, ending: str, damage: bytes) -> None:
        rows = [stubs.flat("a", n=n) for n in range(3)]
        await stubs.run(rows)
        with stubs.beside(ending).open("ab") as file:
            file.write(damage)
        number = len(stubs.beside(ending).read_bytes().splitlines())
        with pytest.raises(ResumeError) as raised:
            await stubs.run(rows, resume_from_cache=True)
        assert raised.value.where == f"{stubs.beside(ending)}, line {number}"

    async def test_rows_that_end_in_the_middle_are_refused(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        with stubs.beside("_materialized_inputs.jsonl").open("ab") as file:
            file.write(b'{"responses_')
        with pytest.raises(ResumeError, match="rows are missing"):
            await stubs.run([stubs.flat("a")], resume_from_cache=True)

    async def test_nothing_is_repaired_when_the_run_is_refused(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        with stubs.output.open("ab") as file:
            file.write(b'{"torn')
        before = stubs.output.read_bytes()
        with pytest.raises(ResumeError):
            await stubs.run([stubs.flat("a", other=1)], resume_from_cache=True)
        assert stubs.output.read_bytes() == before


class TestLinesThatDoNotBelong:
    @pytest.mark.parametrize(
        ("ending", "line", "words"),
        [
            (".jsonl", {"_ng_task_index": 77, "_ng_rollout_index": 1}, "task 77, rollout 1 is none of rollouts_materialized_inputs.jsonl"),
            (".jsonl", {"_ng_task_index": 0, "_ng_rollout_index": 0}, "task 0, rollout 0 stands there twice"),
            (".jsonl", {"reward": 1.0}, "no _ng_task_index"),
            (".jsonl", {"_ng_task_index": True, "_ng_rollout_index": 0}, "no _ng_task_index"),
            ("_failures.jsonl", {"_ng_task_index": 0, "_ng_rollout_index": 9}, "task 0, rollout 9 is none of"),
        ],
    )
    async def test_are_named(self, stubs: Any, ending: str, line: dict[str, Any], words: str) -> None:
        await stubs.run([stubs.flat("a")])
        with stubs.beside(ending).open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")
        with pytest.raises(ResumeError, match=words) as raised:
            await stubs.run([stubs.flat("a")], resume_from_cache=True)
        assert str(stubs.beside(ending)) in (raised.value.where or "")

    async def test_a_failure_without_indices_is_passed_over_and_told(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        stubs.beside("_failures.jsonl").write_bytes(b'{"_ng_failure_class": "x"}\n')
        assert_whole(stubs, await stubs.run([stubs.flat("a")], resume_from_cache=True), 1)
        assert any("1 lines name no task" in text for text in stubs.warnings)


class TestChangesSinceTheFirstRun:
    async def unfinished(self, stubs: Any) -> list[dict[str, Any]]:
        rows = [stubs.flat("a", n=n) for n in range(3)]
        fail_where(stubs, lambda body: {"_ng_no_persist": True} if body["n"] == 2 else None)
        await stubs.run(rows)
        stubs.servers["a_env"].answer = stubs.reward()
        return rows

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"num_repeats": 3}, "num_repeats: it was 1, now it is 3"),
            ({"limit": 2}, "limit: it was null, now it is 2"),
            ({"responses_create_params": {"temperature": 1}}, 'responses_create_params: it was {}, now it is {"temperature":1}'),
            ({"agent_name": "a"}, "agent_name: it was null"),
            ({"prompt": {"user": "u", "path": "p.yaml"}}, "prompt: it was null"),
            ({"environment_server_routes": {"ts": "a_env"}}, "environment_server_routes: "),
        ],
    )
    async def test_of_what_makes_rows_are_refused_and_listed(self, stubs: Any, changes: dict[str, Any], told: str) -> None:
        rows = await self.unfinished(stubs)
        before = {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()}
        with pytest.raises(ResumeError, match="not what it was when the run began") as raised:
            await stubs.run(rows, resume_from_cache=True, **changes)
        assert any(told in detail for detail in raised.value.details)
        assert "--resume-anyway" in (raised.value.hint or "")
        assert {path.name: path.read_bytes() for path in stubs.output.parent.iterdir()} == before

    async def test_are_found_before_any_server_runs_where_they_can_be(self, stubs: Any) -> None:
        rows = await self.unfinished(stubs)
        paths = OutputPaths(stubs.output)
        routes = {"environment_server_routes": {"ts": "native"}, "resume_from_cache": True}
        check_request(stubs.request(rows, **routes), paths)
        for changed in (stubs.request(rows, num_repeats=2, **routes), stubs.request(rows[1:], **routes)):
            with pytest.raises(ResumeError, match="not what it was"):
                check_request(changed, paths)
            check_request(changed.model_copy(update={"resume_anyway": True}), paths)
        check_request(stubs.request(rows), OutputPaths(stubs.directory / "other.jsonl"))

    async def test_of_the_input_and_of_servers_too(self, stubs: Any) -> None:
        rows = await self.unfinished(stubs)
        stubs.config["rs"]["resources_servers"]["rs_impl"]["difficulty"] = 3
        with pytest.raises(ResumeError) as raised:
            await stubs.run([*rows, stubs.flat("a")], resume_from_cache=True)
        assert raised.value.details == ("input rows.jsonl: its content", "server 'rs': difficulty")

    @pytest.mark.parametrize("switch", ["resume_anyway", "strict_compatibility"])
    async def test_are_passed_over_when_asked_and_the_rows_stay(self, stubs: Any, switch: str) -> None:
        rows = await self.unfinished(stubs)
        summary = await stubs.run([*rows, stubs.flat("a")], resume_from_cache=True, num_repeats=5, **{switch: True})
        assert_whole(stubs, summary, 3)
        assert any("num_repeats" in text and "rows.jsonl" in text for text in stubs.warnings)

    async def test_of_limit_and_repeats_change_nothing_when_they_are_passed_over(self, stubs: Any) -> None:
        """Edge case 42: the rows are those of the first run, so nothing is left to do."""
        rows = [stubs.flat("a", n=n) for n in range(10)]
        await stubs.run(rows, limit=1)
        with pytest.raises(ResumeError) as raised:
            await stubs.run(rows, limit=10, num_repeats=3, resume_from_cache=True)
        assert [detail.partition(":")[0] for detail in raised.value.details] == ["limit", "num_repeats"]
        summary = await stubs.run(rows, limit=10, num_repeats=3, resume_from_cache=True, strict_compatibility=True)
        assert_whole(stubs, summary, 1)
        assert len(stubs.servers["a_env"].seen) == 1

    async def test_an_input_that_is_gone_is_a_change(self, stubs: Any) -> None:
        rows = await self.unfinished(stubs)
        request = stubs.request(rows)
        Path(request.input_jsonl_fpath).unlink()
        with pytest.raises(ResumeError) as raised:
            await stubs.run(Path(request.input_jsonl_fpath), resume_from_cache=True)
        assert "cannot be read any more" in raised.value.details[0]
        assert_whole(stubs, await stubs.run(Path(request.input_jsonl_fpath), resume_from_cache=True, resume_anyway=True), 3)

    async def test_edited_rows_are_a_change(self, stubs: Any) -> None:
        rows = await self.unfinished(stubs)
        file = stubs.beside("_materialized_inputs.jsonl")
        file.write_bytes(file.read_bytes().replace(b'"n":2', b'"n":3'))
        with pytest.raises(ResumeError) as raised:
            await stubs.run(rows, resume_from_cache=True)
        assert raised.value.details == ("rollouts_materialized_inputs.jsonl was edited",)

    async def test_of_addresses_secrets_servers_beside_and_how_it_is_run_are_none(self, stubs: Any, blocks: Any) -> None:
        rows = await self.unfinished(stubs)
        server = stubs.servers["a_env"]
        await server.stop()
        server.port = 0
        await server.start()
        stubs.config["a_env"]["environment_servers"]["legacy_agent"]["port"] = server.port
        stubs.config["a"]["responses_api_agents"]["simple_agent"]["api_key"] = "sk-new"
        stubs.config["another"] = blocks.agent()
        summary = await stubs.run(rows, resume_from_cache=True, num_samples_in_parallel=7, disable_aggregation=True, rollout_timeout_s=30)
        assert_whole(stubs, summary, 3)

    async def test_what_stands_behind_the_limit_may_change(self, stubs: Any) -> None:
        rows = [stubs.flat("a", n=n) for n in range(5)]
        await stubs.run(rows, limit=2)
        assert_whole(stubs, await stubs.run([*rows[:3], stubs.flat("b")], limit=2, resume_from_cache=True), 2)
        with pytest.raises(ResumeError):
            await stubs.run(rows[1:], limit=2, resume_from_cache=True)

    async def test_a_journal_of_another_version_is_refused(self, stubs: Any) -> None:
        await stubs.run([stubs.flat("a")])
        stubs.beside("_journal.jsonl").write_bytes(b'{"event": "run", "run_id": "old"}\n')
        with pytest.raises(ResumeError, match="does not say what its run was made of"):
            await stubs.run([stubs.flat("a")], resume_from_cache=True)


class TestServersOfTheRowsThatAreLeft:
    async def test_have_to_run(self, stubs: Any) -> None:
        rows = [stubs.flat("a"), stubs.flat("b")]
        fail_where(stubs, lambda body: {"_ng_no_persist": True})
        await stubs.run(rows)
        del stubs.config["a_env"], stubs.config["a"]
        with pytest.raises(RoutingError, match="'a'"):
            await stubs.run(rows, resume_from_cache=True, resume_anyway=True)

    async def test_only_those(self, stubs: Any) -> None:
        rows = [stubs.flat("a"), stubs.flat("b")]
        stubs.servers["b_env"].answer = lambda _body: web.json_response({"_ng_no_persist": True})
        await stubs.run(rows)
        del stubs.config["a_env"], stubs.config["a"]
        stubs.servers["b_env"].answer = stubs.reward()
        summary = await stubs.run(rows, resume_from_cache=True, resume_anyway=True, disable_aggregation=True)
        assert_whole(stubs, summary, 2)

    async def test_stamped_rows_are_found_by_the_servers_own_config(self, stubs: Any) -> None:
        """Edge case 50: no routes are given here, the running deployment has them."""
        rows = [stubs.mat("ts", "1")]
        stubs.servers["native"].answer = lambda _body: web.json_response({"_ng_no_persist": True})
        await stubs.run(rows)
        stubs.servers["native"].answer = stubs.reward()
        assert_whole(stubs, await stubs.run(rows, resume_from_cache=True), 1)


class TestInvalidJudgeResponses:
    async def run(self, stubs: Any) -> list[dict[str, Any]]:
        rows = [stubs.flat("a", n=n) for n in range(3)]
        fail_where(stubs, lambda body: {"reward": 0.0, "invalid_judge_response": True} if body["n"] == 1 else None)
        await stubs.run(rows)
        stubs.servers["a_env"].seen.clear()
        stubs.servers["a_env"].answer = stubs.reward()
        return rows

    async def test_are_rollouts_by_default(self, stubs: Any) -> None:
        rows = await self.run(stubs)
        assert_whole(stubs, await stubs.run(rows, resume_from_cache=True), 3)
        assert stubs.servers["a_env"].seen == []

    async def test_become_failures_and_are_run_again(self, stubs: Any) -> None:
        rows = await self.run(stubs)
        stubs.output.chmod(0o640)
        summary = await stubs.run(rows, resume_from_cache=True, retry_invalid_judge_responses=True)
        assert_whole(stubs, summary, 3)
        assert [(body["n"], body["_ng_attempt_index"]) for body in stubs.servers["a_env"].seen] == [(1, 1)]
        (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
        assert (failure["_ng_failure_class"], failure["_ng_migrated_invalid_judge_response"]) == ("judge_invalid", True)
        assert stubs.output.stat().st_mode & 0o777 == 0o640
        assert "1 with an invalid judge response are run again" in notes(stubs)

    async def test_that_were_moved_before_a_kill_are_not_moved_twice(self, stubs: Any, tmp_path: Path) -> None:
        rows = await self.run(stubs)
        deliverables = tmp_path / "deliverables"
        deliverables.mkdir()
        (deliverables / "report.md").touch()
        lines = [{**line, "deliverables_dir": str(deliverables)} for line in stubs.read(stubs.output)]
        stubs.write(stubs.output, lines)
        before = stubs.output.read_bytes()
        await stubs.run(rows, resume_from_cache=True, retry_invalid_judge_responses=True)
        assert stubs.servers["a_env"].seen[0]["reuse_cached_deliverable"] is True
        stubs.output.write_bytes(before)  # killed between the two files
        stubs.servers["a_env"].seen.clear()
        summary = await stubs.run(rows, resume_from_cache=True, retry_invalid_judge_responses=True)
        assert_whole(stubs, summary, 3)
        assert [body["_ng_attempt_index"] for body in stubs.servers["a_env"].seen] == [1]
        assert len(stubs.read(stubs.beside("_failures.jsonl"))) == 1


async def test_an_input_that_changes_while_it_is_read_is_refused(stubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gym_compose.driver import inputs
    from gym_compose.tasks.rows import read_rows

    rows = [stubs.flat("a", n=n) for n in range(3)]
    path = Path(stubs.request(rows).input_jsonl_fpath)
    read = read_rows

    def grow(*args: Any, **kwargs: Any) -> Any:
        for number, row in enumerate(read(*args, **kwargs)):
            if number == 1:
                with path.open("ab") as file:
                    file.write(orjson.dumps(stubs.flat("a", late=1)) + b"\n")
            yield row

    monkeypatch.setattr(inputs, "read_rows", grow)
    with pytest.raises(InvalidInputError, match="changed while it was read"):
        await stubs.run(path)
    assert list(stubs.output.parent.iterdir()) == []
