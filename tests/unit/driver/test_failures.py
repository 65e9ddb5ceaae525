"""Replies that are none, what ends a run because of them, and what NeMo Gym's own rules make of them (contract-data 1.11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from gym_compose.wire.settings import Settings

QUICK_RETRY = Settings(run_retry_seconds=0.01, connect_retry_seconds=0.01, probe_interval_seconds=0.1)
Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def raw_server(stubs: Any) -> AsyncIterator[Callable[[Talk], Awaitable[list[bytes]]]]:
    """Puts a server in the place of ``a_env`` that answers ``GET`` well and each ``POST`` by ``talk``; gives the list of ``POST``s."""
    servers: list[asyncio.Server] = []

    async def start(talk: Talk) -> list[bytes]:
        seen: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while head := await reader.readuntil(b"\r\n\r\n"):
                    if head.startswith(b"GET"):
                        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                        continue
                    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                    seen.append(await reader.readexactly(length))
                    await talk(writer)
                    break
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        stubs.config["a_env"]["environment_servers"]["legacy_agent"]["port"] = server.sockets[0].getsockname()[1]
        return seen

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


async def closes_at_once(_writer: asyncio.StreamWriter) -> None:
    return None


async def closes_in_the_middle(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"reward":')
    await writer.drain()


async def closes_in_a_chunk(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n50\r\n{"reward":')
    await writer.drain()


async def speaks_no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize("talk", [closes_at_once, closes_in_the_middle, closes_in_a_chunk, speaks_no_http])
async def test_an_answer_that_breaks_off_is_a_failed_row_and_is_not_sent_again(stubs: Any, raw_server: Any, talk: Talk) -> None:
    seen = await raw_server(talk)
    summary = await stubs.run([stubs.flat("a"), stubs.flat("b")])
    assert summary.counts.model_dump() == {"requested": 2, "completed": 1, "failed": 1, "unresolved": 0}
    assert len(seen) == 1
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert (failure["_ng_failure_class"], failure["_ng_failure_kind"]) == ("agent_request_failed", "transport_peer_drop")
    assert failure["_ng_failure_http_status"] is None


async def test_a_reply_of_ten_megabytes_is_a_reply(stubs: Any) -> None:
    text = "z" * 10_000_000
    stubs.servers["a_env"].answer = lambda _body: web.json_response({"reward": 0.5, "text": text})
    summary = await stubs.run([stubs.flat("a")], disable_aggregation=True)
    assert summary.counts.completed == 1
    (record,) = stubs.read(stubs.output)
    assert (record["reward"], record["text"]) == (0.5, text)


async def test_ten_megabytes_that_are_no_json_are_quoted_in_part(stubs: Any) -> None:
    stubs.servers["a_env"].answer = lambda _body: web.Response(body=b"<" * 10_000_000)
    await stubs.run([stubs.flat("a"), stubs.flat("b")])
    (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
    assert failure["_ng_failure_response_body"] == "<" * 2000 + "…"
    assert failure["_ng_failure_kind"] == "agent_run_error"


async def test_more_failures_than_allowed_end_the_run_and_are_all_stored(stubs: Any) -> None:
    stubs.servers["a_env"].answer = lambda _body: web.json_response("boom", status=500)
    rows = [stubs.flat("a", n=n) for n in range(20)]
    summary = await stubs.run(rows, max_failures=0.1, num_samples_in_parallel=1)
    assert summary.exit_code == 7
    assert "3 of 20 rollouts failed (3 agent_run_error), more than the 2 that max_failures allows" in (summary.error or "")
    assert summary.counts.model_dump() == {"requested": 20, "completed": 0, "failed": 3, "unresolved": 17}
    assert summary.unresolved == {"run_ended": 17}
    assert len(stubs.read(stubs.beside("_failures.jsonl"))) == 3


async def test_as_many_failures_as_allowed_do_not(stubs: Any) -> None:
    good = stubs.reward()
    stubs.servers["a_env"].answer = lambda body: web.json_response("boom", status=500) if body.get("mark") else good(body)
    summary = await stubs.run([stubs.flat("a", mark=1), stubs.flat("a")], max_failures=1)
    assert summary.exit_code == 0


def drops_once(stubs: Any) -> Any:
    good, dropped = stubs.reward(), []

    def answer(body: dict[str, Any]) -> Any:
        if body["_ng_task_index"] not in dropped:
            dropped.append(body["_ng_task_index"])
            return web.Response(headers={"x-drop": "1"})
        return good(body)

    return answer


def attempts(stubs: Any) -> list[tuple[str, str | None]]:
    """The journal's attempts in the order in which they left, with their outcomes."""
    lines = stubs.read(stubs.beside("_journal.jsonl"))
    ended = {line["attempt_id"]: line["outcome"] for line in lines if line["event"] == "ended"}
    return [(line["attempt_id"], ended.get(line["attempt_id"])) for line in lines if line["event"] == "sent"]


async def test_a_server_that_declares_its_episodes_idempotent_gets_a_lost_one_again(stubs: Any) -> None:
    stubs.config["compose"] = {"servers": {"a_env": {"idempotent_episodes": True}}}
    stubs.servers["a_env"].answer = drops_once(stubs)
    summary = await stubs.run([stubs.flat("a"), stubs.flat("a", n=1)], settings=QUICK_RETRY, num_samples_in_parallel=1)
    assert summary.counts.model_dump() == {"requested": 2, "completed": 2, "failed": 0, "unresolved": 0}
    assert len(stubs.servers["a_env"].seen) == 4
    assert [outcome for _, outcome in attempts(stubs)] == ["retried", "completed"] * 2
    assert len({attempt for attempt, _ in attempts(stubs)}) == 4, "each sending is an attempt of its own"


class TestStrictCompatibility:
    async def test_a_failed_request_ends_the_run_and_is_stored_nowhere(self, stubs: Any) -> None:
        good = stubs.reward()
        stubs.servers["a_env"].answer = lambda body: web.json_response("boom", status=422) if body.get("mark") else good(body)
        rows = [stubs.flat("a"), stubs.flat("a", mark=1), stubs.flat("a", n=2)]
        summary = await stubs.run(rows, strict_compatibility=True, num_samples_in_parallel=1)
        assert summary.exit_code == 1
        assert "task 1, rollout 0: agent_run_error" in (summary.error or "")
        assert summary.counts.model_dump() == {"requested": 3, "completed": 1, "failed": 0, "unresolved": 2}
        assert stubs.read(stubs.beside("_failures.jsonl")) == []

    @pytest.mark.parametrize(
        ("status", "body", "stored"),
        [
            (500, b'"boom"', ("agent_run_error", "ClientResponseError", 500, '"boom"')),
            (503, b'"boom"', ("agent_request_failed", "ClientResponseError", 503, '"boom"')),
            (200, b"<html>", ("agent_run_error", "JSONDecodeError", 200, None)),
        ],
    )
    async def test_what_comes_of_a_failed_request_with_and_without_a_sidecar(
        self, stubs: Any, status: int, body: bytes, stored: tuple[Any, ...]
    ) -> None:
        """Edge cases 28 and 29 as NeMo Gym has them; what came back before is kept, as always here."""
        good = stubs.reward()
        stubs.servers["a_env"].answer = lambda sent: web.Response(status=status, body=body) if sent.get("mark") else good(sent)
        rows = [stubs.flat("a"), stubs.flat("a", mark=1)]
        summary = await stubs.run(rows, strict_compatibility=True, num_samples_in_parallel=1)
        assert (summary.exit_code, summary.counts.completed, summary.counts.failed) == (1, 1, 0)
        assert stored[0] in (summary.error or "")
        summary = await stubs.run(rows, strict_compatibility=True, route_failures_to_sidecar=True)
        assert (summary.exit_code, summary.counts.completed, summary.counts.failed) == (0, 1, 1)
        (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
        names = ("class", "type", "http_status", "response_body")
        assert tuple(failure[f"_ng_failure_{name}"] for name in names) == stored
        assert "_ng_failure_kind" not in failure

    async def test_the_kind_of_an_episodes_failure_is_dropped(self, stubs: Any) -> None:
        """Edge case 25 as NeMo Gym has it."""
        failure = {
            "failure_reason": "why",
            "terminal": False,
            "stage": "seed",
            "failure_kind": "session_lost",
            "partial_response": {"id": 1},
        }

        def answer(body: dict[str, Any]) -> web.Response:
            reply = {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"]}
            return web.json_response({**reply, "result": None, "failure": failure})

        stubs.servers["native"].answer = answer
        await stubs.run([stubs.mat("ts", "t"), stubs.flat("a")], strict_compatibility=True)
        (stored,) = stubs.read(stubs.beside("_failures.jsonl"))
        assert {key: stored[key] for key in stored if key.startswith("_ng_failure")} == {
            "_ng_failure_class": "environment_server_failed",
            "_ng_failure_terminal": False,
            "_ng_failure_message": "why",
            "_ng_failure_stage": "seed",
            "_ng_failure_partial_response": {"id": 1},
        }

    async def test_route_failures_to_sidecar_stores_it_as_nemo_gym_does(self, stubs: Any) -> None:
        good = stubs.reward()
        stubs.servers["a_env"].answer = lambda body: web.Response(body=b"<html>") if body.get("mark") else good(body)
        rows = [stubs.flat("a"), stubs.flat("a", mark=1)]
        summary = await stubs.run(rows, strict_compatibility=True, route_failures_to_sidecar=True)
        assert summary.exit_code == 0
        (failure,) = stubs.read(stubs.beside("_failures.jsonl"))
        assert [key for key in failure if key.startswith("_ng_failure")] == [
            *("_ng_failure_class", "_ng_failure_type", "_ng_failure_message"),
            *("_ng_failure_http_status", "_ng_failure_response_body"),
        ]
        assert failure["_ng_failure_response_body"] is None

    async def test_a_reply_that_breaks_the_protocol_ends_the_run_all_the_same(self, stubs: Any) -> None:
        def answer(body: dict[str, Any]) -> web.Response:
            reply = {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], "result": {"_ng_y": 1}, "failure": None}
            return web.json_response(reply)

        stubs.servers["native"].answer = answer
        summary = await stubs.run([stubs.mat("ts", "t")], strict_compatibility=True, route_failures_to_sidecar=True)
        assert summary.exit_code == 1
        assert "reserved" in (summary.error or "")

    async def test_a_broken_connection_is_made_again(self, stubs: Any) -> None:
        stubs.servers["a_env"].answer = drops_once(stubs)
        summary = await stubs.run([stubs.flat("a")], strict_compatibility=True, settings=QUICK_RETRY)
        assert summary.counts.completed == 1
        assert len(stubs.servers["a_env"].seen) == 2
