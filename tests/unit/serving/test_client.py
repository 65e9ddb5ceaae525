"""The client: what is retried, what never is, what goes over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from gym_compose.serving import client as client_module
from gym_compose.serving.client import (
    HttpClient,
    LocalResourceError,
    PeerDropped,
    PeerStatusError,
    PeerTimeout,
    PeerUnreachable,
    PoolOptions,
    Reply,
    ServerClient,
)
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.settings import Settings

FAST = PoolOptions(connect_retry_seconds=0.02)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"


class RawServer:
    """Counts requests and answers each with fixed bytes, or breaks the connection."""

    def __init__(self, answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
                self.requests.append(head + await reader.readexactly(length))
                await self._answer(writer)
                if writer.is_closing():
                    break
        writer.close()


@contextlib.asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamWriter], Awaitable[None]], port: int = 0) -> AsyncIterator[tuple[str, RawServer]]:
    handler = RawServer(answer)
    server = await asyncio.start_server(handler, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", handler
    finally:
        server.close()
        for writer in handler.writers:
            writer.close()
        await asyncio.sleep(0)


async def answer_ok(writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    await writer.drain()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def test_a_refused_connection_is_tried_again_until_the_server_is_there() -> None:
    port = free_port()
    async with HttpClient(FAST) as client:
        call = asyncio.create_task(client.request("POST", f"http://127.0.0.1:{port}/run", json={"a": 1}))
        await asyncio.sleep(0.1)
        assert not call.done()
        async with raw(answer_ok, port) as (_, server):
            reply = await call
        assert reply.json() == {}
        assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/x", "http://no-such-host.invalid:{port}/x"])
async def test_no_connection_until_the_deadline_is_unreachable(url: str) -> None:
    async with HttpClient(FAST) as client:
        with pytest.raises(PeerUnreachable) as caught:
            await client.request("POST", url.format(port=free_port()), json={}, deadline=Deadline.after(0.3))
    assert caught.value.failure_kind == "transport_unreachable"
    assert caught.value.retryable


async def test_a_request_is_never_sent_again_after_the_connection_broke() -> None:
    async with HttpClient(FAST) as client, raw(hang_up) as (url, server):
        with pytest.raises(PeerDropped) as caught:
            await client.request("POST", url + "/tool", json={}, deadline=Deadline.after(5))
        await asyncio.sleep(0.1)
        assert len(server.requests) == 1
        assert caught.value.failure_kind == "transport_peer_drop"


async def test_a_body_that_breaks_off_is_a_drop() -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async with HttpClient(FAST) as client, raw(half) as (url, server):
        with pytest.raises(PeerDropped):
            await client.request("POST", url, json={})
        assert len(server.requests) == 1


async def test_a_deadline_that_passes_after_sending_is_a_timeout_and_no_retry() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0)

    async with HttpClient(FAST) as client, raw(silent) as (url, server):
        with pytest.raises(PeerTimeout, match=r"no answer in time \(verdict of 0-0\)"):
            await client.request("POST", url, json={}, deadline=Deadline.after(0.2, "verdict of 0-0"))
        assert len(server.requests) == 1


async def test_without_retries_a_refused_connection_is_an_error_at_once() -> None:
    async with HttpClient(PoolOptions(connect_retry_seconds=3600.0)) as http:
        with pytest.raises(PeerUnreachable, match="no connection"):
            await asyncio.wait_for(http.request("GET", f"http://127.0.0.1:{free_port()}/", retry_refused=False), 30)


async def test_the_time_for_an_answer_begins_with_the_connection() -> None:
    """Over one connection, each request waits for those before it, and that is not its time."""

    async def late(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        await answer_ok(writer)

    async with raw(late) as (url, _), HttpClient(PoolOptions(limit_per_host=1)) as http:
        replies = await asyncio.gather(*(http.request("POST", url, data=b"{}", answer_seconds=2.0) for _ in range(8)))
        assert [reply.status for reply in replies] == [200] * 8
        with pytest.raises(PeerTimeout, match=r"no answer in time \(0.1 s\)"):
            await http.request("POST", url, data=b"{}", answer_seconds=0.1)


async def test_no_file_descriptors_left_is_this_process_fault_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(client_module, "_socket_factory", lambda _: refuse)
    async with HttpClient(FAST) as client:
        with pytest.raises(LocalResourceError) as caught:
            await client.request("POST", "http://127.0.0.1:1/", json={})
    assert caught.value.failure_kind == "transport_local_resource"


async def test_only_the_given_cookies_are_sent_and_none_are_kept() -> None:
    async def sets(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nset-cookie: A___a=v1.x_y; path=/; httponly\r\n"
            b'set-cookie: B="q/=="; Path=/\r\nset-cookie: A___a=v2; path=/\r\nset-cookie: broken\r\n\r\n{}'
        )
        await writer.drain()

    async with HttpClient(FAST) as client, raw(sets) as (url, server):
        reply = await client.request("POST", url, json={}, cookies={"R": "1.2=", "M": "x"})
        assert reply.cookies == {"A___a": "v2", "B": "q/=="}
        await client.request("POST", url, json={})
    assert b"\r\ncookie: R=1.2=; M=x\r\n" in server.requests[0].replace(b"Cookie:", b"cookie:")
    assert b"cookie" not in server.requests[1].lower()


class _Body(BaseModel):
    a: int
    b: int | None = None


@pytest.mark.parametrize(
    ("json", "sent"), [({}, b"{}"), ({"a": None}, b'{"a":null}'), (_Body(a=1), b'{"a":1}'), (b'{"raw": 1}', b'{"raw": 1}')]
)
async def test_bodies(json: Any, sent: bytes) -> None:
    async with HttpClient(FAST) as client, raw(answer_ok) as (url, server):
        await client.request("POST", url, json=json, headers={"X-One": "1"})
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == sent
    assert b"content-type: application/json" in head.lower()
    assert b"x-one: 1" in head.lower()


def reply(status: int, body: bytes = b"why") -> Reply:
    return Reply(status, (("Content-Type", "text/plain"),), body, "POST", "http://x/y")


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (404, False), (408, True), (409, False), (422, False), (425, True), (429, True), (500, True), (503, True)],
)
def test_status_errors_quote_the_body_and_say_whether_to_try_again(status: int, retryable: bool) -> None:
    with pytest.raises(PeerStatusError, match=f"POST http://x/y answered {status}: why") as caught:
        reply(status).raise_for_status()
    assert caught.value.retryable is retryable
    assert caught.value.body == b"why"


def test_good_statuses_pass_and_headers_are_found_in_any_case() -> None:
    assert reply(204).raise_for_status().header("content-type") == "text/plain"
    assert reply(200).header("nope") is None


CONFIG = {
    "m": {"responses_api_models": {"openai_model": {"host": "m.gym", "port": 8000}}},
    "empty": {},
    "text": "x",
    "portless": {"resources_servers": {"r": {"host": "h"}}},
}


def test_addresses_come_from_the_config() -> None:
    client = ServerClient(CONFIG, HttpClient(), {})
    assert client.base_url("m") == "http://m.gym:8000"
    for missing in ("empty", "text", "portless", "nothing"):
        with pytest.raises(KeyError, match=f"no server instance '{missing}'"):
            client.base_url(missing)


def test_one_model_servers_address_may_come_from_the_environment() -> None:
    environ = {"NEMO_GYM_MODEL_SERVER_NAME": "m", "NEMO_GYM_MODEL_SERVER_BASE_URL": "http://elsewhere:1/"}
    assert ServerClient(CONFIG, HttpClient(), environ).base_url("m") == "http://elsewhere:1"
    assert ServerClient(CONFIG, HttpClient(), environ | {"NEMO_GYM_MODEL_SERVER_NAME": "other"}).base_url("m") == "http://m.gym:8000"


def test_pool_options_of_a_config() -> None:
    options = PoolOptions.from_config({"global_aiohttp_connector_limit_per_host": 7}, Settings())
    assert (options.limit, options.limit_per_host, options.keep_alive_seconds) == (0, 7, 4.0)


async def test_many_calls_at_once_share_the_pool() -> None:
    async with HttpClient(FAST) as client, raw(answer_ok) as (url, server):
        replies = await asyncio.gather(*(client.request("POST", url, json={}) for _ in range(500)))
    assert {one.status for one in replies} == {200}
    assert len(server.requests) == 500


@pytest.mark.parametrize("url", ["http://user:secret-one@127.0.0.1:1/v1", "http://127.0.0.1:1/v1?key=secret-one"])
async def test_an_error_does_not_show_what_a_url_keeps_secret(url: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(PeerUnreachable) as caught:
            await client.request("GET", url, deadline=Deadline.after(0.05))
    assert "127.0.0.1:1/v1" in str(caught.value)
    assert "secret-one" not in f"{caught.value} {caught.value.url}"


async def test_what_plain_connections_do_not_carry_goes_another_way_with_the_same_errors() -> None:
    answers = iter([answer_ok, hang_up])

    async def answer(writer: asyncio.StreamWriter) -> None:
        await next(answers)(writer)

    async with HttpClient(FAST) as client, raw(answer) as (url, server):
        outside = url.replace("http://", "http://user:secret-one@")
        assert (await client.request("POST", outside + "/v1", json={}, cookies={"A": "1"})).json() == {}
        with pytest.raises(PeerDropped):
            await client.request("POST", outside + "/v1", json={})
    assert len(server.requests) == 2
    assert b"authorization: basic" in server.requests[0].lower()


async def test_the_time_of_an_answer_counts_from_the_connection_on() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0)

    async with HttpClient(FAST) as client, raw(silent) as (url, _):
        with pytest.raises(PeerTimeout, match=r"no answer in time \(0.1 s\)"):
            await client.request("POST", url, json={}, answer_seconds=0.1)


async def test_a_refused_connection_is_an_error_at_once_where_the_caller_wants_that() -> None:
    async with HttpClient(PoolOptions(connect_retry_seconds=60.0)) as client:
        with pytest.raises(PeerUnreachable):
            await client.request("POST", f"http://127.0.0.1:{free_port()}/x", json={}, retry_refused=False)
