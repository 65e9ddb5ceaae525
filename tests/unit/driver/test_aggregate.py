"""Metrics from servers: what is sent, what is written, what is counted beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import web

from gym_compose.driver.aggregate import aggregate
from gym_compose.driver.counting import Counting
from gym_compose.driver.errors import AggregationError, OutputFailedError
from gym_compose.driver.metrics_file import MetricsFile, parse_answer
from gym_compose.driver.output import OutputPaths
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.wire.settings import Settings

SETTINGS = Settings(aggregate_seconds=30.0)
ANSWER: dict[str, Any] = {
    "group_level_metrics": [{"a": [1, 2], "b": {}}, {}],
    "agent_metrics": {"mean/reward": 0.5},
    "key_metrics": {"k": 'x\n"y'},
    "perf_summary": None,
}


class Server:
    """An environment server that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, Any]]] = []
        self.answer: Any = ANSWER
        self.status = 200

    @asynccontextmanager
    async def running(self, name: str = "e", agent: str = "a") -> AsyncIterator[dict[str, EnvironmentServer]]:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/aggregate_metrics", self._aggregate)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            yield {name: EnvironmentServer(name, "x", f"http://127.0.0.1:{port}", (agent,), agent, None)}
        finally:
            await runner.cleanup()

    async def _aggregate(self, request: web.Request) -> web.Response:
        self.asked.append((await request.json())["verify_responses"])
        return web.Response(body=orjson.dumps(self.answer), status=self.status, content_type="application/json")


def record(task: int, rollout: int, **more: Any) -> dict[str, Any]:
    return {
        "reward": 1.0,
        **more,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "a"},
        "_ng_environment_server": "e",
    }


def write(path: Path, records: list[dict[str, Any]]) -> OutputPaths:
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in records))
    return OutputPaths(path)


async def test_records_go_out_sorted_and_light_and_the_answer_is_the_file(tmp_path: Path) -> None:
    server = Server()
    heavy = {"response": {"usage": {"total_tokens": 1}, "output": ["long"]}, "responses_create_params": {"input": "x"}}
    paths = write(tmp_path / "r.jsonl", [record(1, 0), record(0, 1), record(0, 0, **heavy)])
    async with server.running() as servers:
        done = await aggregate([paths], paths.aggregate, servers, SETTINGS)
    assert [(sent["_ng_task_index"], sent["_ng_rollout_index"]) for sent in server.asked[0]] == [(0, 0), (0, 1), (1, 0)]
    assert server.asked[0][0]["response"] == {"usage": {"total_tokens": 1}}
    expected: dict[str, Any] = {"agent_ref": {"name": "a"}, "_ng_environment_server": "e"}
    expected |= {name: ANSWER.get(name) for name in ("agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics")}
    assert paths.aggregate.read_bytes() == orjson.dumps([expected], option=orjson.OPT_INDENT_2)
    assert done.entries[0]["key_metrics"] == ANSWER["key_metrics"]
    assert {path.name for path in tmp_path.iterdir()} == {"r.jsonl", "r_aggregate_metrics.json"}


async def test_many_records_leave_in_pieces(tmp_path: Path) -> None:
    server = Server()
    paths = write(tmp_path / "r.jsonl", [record(task, 0, text="x" * 1000) for task in range(1000)])
    async with server.running() as servers:
        await aggregate([paths], paths.aggregate, servers, SETTINGS)
    assert [sent["_ng_task_index"] for sent in server.asked[0]] == list(range(1000))


@pytest.mark.parametrize(("status", "answer", "why"), [(500, "boom", "answered 500"), (200, [1], "no aggregate")])
async def test_a_server_without_metrics_leaves_no_file(status: int, answer: Any, why: str, tmp_path: Path) -> None:
    server = Server()
    server.status, server.answer = status, answer
    paths = write(tmp_path / "r.jsonl", [record(0, 0)])
    async with server.running() as servers:
        with pytest.raises(AggregationError, match=why):
            await aggregate([paths], paths.aggregate, servers, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


async def test_a_server_that_is_gone(tmp_path: Path) -> None:
    async with Server().running() as servers:
        pass
    paths = write(tmp_path / "r.jsonl", [record(0, 0)])
    with pytest.raises(AggregationError, match="no aggregate metrics from 'e'"):
        await aggregate([paths], paths.aggregate, servers, SETTINGS)


async def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    class Silent(Server):
        async def _aggregate(self, request: web.Request) -> web.Response:
            await asyncio.Event().wait()
            raise AssertionError

    paths = write(tmp_path / "r.jsonl", [record(0, 0)])
    async with Silent().running() as servers:
        with pytest.raises(AggregationError, match=r"no answer in 0\.2 s"):
            await aggregate([paths], paths.aggregate, servers, Settings(aggregate_seconds=0.2))


async def test_one_rollout_in_two_shards_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    server = Server()
    shards = [write(tmp_path / "one.jsonl", [record(0, 0)]), write(tmp_path / "two.jsonl", [record(1, 0), record(0, 0)])]
    async with server.running() as servers:
        with pytest.raises(AggregationError, match=r"0:0 of 'e' is there twice") as caught:
            await aggregate(shards, tmp_path / "m.json", servers, SETTINGS)
    assert "one.jsonl" in str(caught.value)
    assert "two.jsonl" in str(caught.value)
    assert server.asked == []


async def test_a_record_without_a_stamp_goes_to_the_server_of_its_agent_and_one_without_a_name_nowhere(tmp_path: Path) -> None:
    server = Server()
    unstamped = {"reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}
    paths = write(tmp_path / "r.jsonl", [unstamped, {"reward": 1.0, "_ng_task_index": 1, "_ng_rollout_index": 0}])
    async with server.running() as servers:
        await aggregate([paths], paths.aggregate, servers, SETTINGS)
    assert server.asked == [[unstamped]]


async def test_a_server_that_does_not_run_is_named_with_those_that_do(tmp_path: Path) -> None:
    paths = write(tmp_path / "r.jsonl", [{**record(0, 0), "_ng_environment_server": "other"}])
    async with Server().running() as servers:
        with pytest.raises(AggregationError, match=r"'other', which does not run.*Running: e"):
            await aggregate([paths], paths.aggregate, servers, SETTINGS)


@pytest.mark.parametrize("line", [b'{"reward":1}\n', b"[1]\n", b"{\n", b'{"_ng_task_index":"a","_ng_rollout_index":0}\n'])
async def test_a_line_that_is_no_rollout(line: bytes, tmp_path: Path) -> None:
    paths = write(tmp_path / "r.jsonl", [])
    paths.rollouts.write_bytes(line)
    with pytest.raises(OutputFailedError, match="cannot be read back"):
        await aggregate([paths], paths.aggregate, {}, SETTINGS)


# Counting (contract-data 4.5)


async def count(tmp_path: Path, counting: Counting, *, inputs: list[dict[str, Any]], failures: list[dict[str, Any]]) -> tuple[Any, Any]:
    server = Server()
    paths = write(tmp_path / "r.jsonl", [record(1, 0, level="hard")])
    write(paths.failures, failures)
    write(paths.materialized, inputs)
    async with server.running() as servers:
        done = await aggregate([paths], paths.aggregate, servers, SETTINGS, counting)
    return server.asked[0], done.counted


def row(task: int, **more: Any) -> dict[str, Any]:
    return {"responses_create_params": {}, **more, "_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}


async def test_failures_of_the_classes_count_as_zeros_with_their_tasks_fields(tmp_path: Path) -> None:
    failed = {**record(0, 0), "_ng_failure_class": "judge_failed", "_ng_failure_http_status": 500, "failure_kind": "x", "mask_sample": True}
    del failed["reward"]
    other = {**record(2, 0), "_ng_failure_class": "skipped"}
    sent, counted = await count(tmp_path, Counting(("judge_failed",)), inputs=[row(0, level="easy", unseen=3)], failures=[failed, other])
    assert [line["_ng_task_index"] for line in sent] == [0, 1]
    assert sent[0] == {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "a"},
        "_ng_environment_server": "e",
        "mask_sample": False,
        "reward": 0.0,
        "level": "easy",
    }
    assert (counted.failed, counted.missing) == (1, 0)


async def test_a_failure_keeps_its_reward_and_a_success_hides_it(tmp_path: Path) -> None:
    failures = [{**record(0, 0, reward=0.3), "_ng_failure_class": "c"}, {**record(1, 0), "_ng_failure_class": "c"}]
    sent, counted = await count(tmp_path, Counting(("c",)), inputs=[], failures=failures)
    assert [line["reward"] for line in sent] == [0.3, 1.0]
    assert counted.failed == 1


async def test_rows_without_a_trace_count_as_zeros(tmp_path: Path) -> None:
    failures = [{**record(3, 0), "_ng_failure_class": "c"}]
    inputs = [row(0), row(1), row(3), {"_ng_task_index": 4, "_ng_rollout_index": 0}]
    sent, counted = await count(tmp_path, Counting(missing=True), inputs=inputs, failures=failures)
    assert [(line["_ng_task_index"], line["reward"]) for line in sent] == [(0, 0.0), (1, 1.0)]
    assert counted.missing == 1
    assert counted.warnings == ["1 rows of r_materialized_inputs.jsonl name no agent and no environment server: not counted"]


async def test_without_an_inventory_nothing_is_missing_and_it_is_said(tmp_path: Path) -> None:
    server = Server()
    paths = write(tmp_path / "r.jsonl", [record(0, 0)])
    async with server.running() as servers:
        done = await aggregate([paths], paths.aggregate, servers, SETTINGS, Counting(missing=True))
    assert "is not there" in done.counted.warnings[0]


# The file


def answer_of(value: Any) -> Any:
    return msgspec.json.decode(orjson.dumps(value), type=dict[str, msgspec.Raw])


@pytest.mark.parametrize("value", [[], [1], [[], {}, {"a": []}], {}, {"a": [{"b": "ü\\n"}]}, None, 1.5, "x"])
def test_a_value_is_written_as_orjson_would(value: Any, tmp_path: Path) -> None:
    with MetricsFile(tmp_path / "m.json") as file:
        file.add({"h": 1}, answer_of({"v": value}), ("v", "w"))
        file.add({"h": {}}, answer_of({"v": value}), ("v",))
    expected = [{"h": 1, "v": value, "w": None}, {"h": {}, "v": value}]
    assert (tmp_path / "m.json").read_bytes() == orjson.dumps(expected, option=orjson.OPT_INDENT_2)


def test_a_file_without_entries(tmp_path: Path) -> None:
    with MetricsFile(tmp_path / "m.json"):
        pass
    assert (tmp_path / "m.json").read_bytes() == b"[]"


def test_an_error_leaves_the_earlier_file(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("old")
    with pytest.raises(KeyError), MetricsFile(tmp_path / "m.json"):
        raise KeyError
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_an_empty_answer_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with open(tmp_path / "a", "rb") as file, pytest.raises(ValueError, match="empty"):
        parse_answer(file)
