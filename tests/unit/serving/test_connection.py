"""Plain connections: what goes over the wire, what is kept, what is understood of an answer."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.serving.connection import BrokenConnectionError, NoConnectionError, PlainPool, head_of, plain_target


@pytest.mark.parametrize(
    ("method", "url", "split"),
    [
        ("POST", "http://policy-model.gym:8000/v1/responses", ("policy-model.gym:8000", "/v1/responses")),
        ("GET", "http://127.0.0.1:1", ("127.0.0.1:1", "/")),
        ("POST", "http://[::1]:80/x?a=%20b", ("[::1]:80", "/x?a=%20b")),
        ("POST", "https://endpoint/v1", None),
        ("POST", "http://user:secret@host/v1", None),
        ("POST", "http://host/with blank", None),
        ("POST", "http://host/../x", None),
        ("POST", "http://host/x#part", None),
        ("POST", "http://höst/x", None),
        ("POST", "http://host?x", None),
        ("HEAD", "http://host/", None),
    ],
)
def test_what_these_connections_carry(method: str, url: str, split: tuple[str, str] | None) -> None:
    assert plain_target(method, url) == split


def test_the_head_of_a_request() -> None:
    head = head_of("POST", "h:1", "/x", {"accept": "text/plain", "x-one": "é", "content-length": "9", "host": "other"}, 2)
    assert head == b"POST /x HTTP/1.1\r\nhost: h:1\r\naccept: text/plain\r\nx-one: \xe9\r\ncontent-length: 2\r\n\r\n"
    assert head_of("GET", "h", "/", {}, None) == b"GET / HTTP/1.1\r\nhost: h\r\naccept: */*\r\n\r\n"


@given(st.text(), st.sampled_from("\r\n\x00"), st.text())
def test_no_header_ends_its_line(before: str, bad: str, after: str) -> None:
    with pytest.raises(ValueError, match="a header holds"):
        head_of("POST", "h", "/", {"x-one": before + bad + after}, 0)


class Server:
    """Writes ``answers`` in turn, one for each request; counts connections. ``closes``: ends the connection after each."""

    def __init__(self, *answers: bytes, closes: bool = False) -> None:
        self.answers = list(answers)
        self.closes = closes
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answers.pop(0))
                await writer.drain()
                if self.closes:
                    break
        writer.close()


def sockets(address: Any) -> socket.socket:
    made = socket.socket(address[0], address[1], address[2])
    made.setblocking(False)
    return made


@contextlib.asynccontextmanager
async def pool(server: Server, *, keep_alive: float = 5.0, **limits: int) -> AsyncIterator[Callable[[], Any]]:
    """A call of the server: ``await call()`` is its answer."""
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    authority = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    plain = PlainPool(sockets, keep_alive=keep_alive, **limits)

    def call() -> Any:
        return plain.exchange(authority, head_of("GET", authority, "/", {}, None), lambda: None)

    try:
        yield call
    finally:
        plain.close()
        listening.close()
        for writer in server.writers:
            writer.close()
        await asyncio.sleep(0.01)


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK, 200, b"{}"),
        (CHUNKED, 200, b"{}"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"{}"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", 500, b""),
    ],
)
async def test_answers_whose_end_is_known_leave_their_connection_open(answer: bytes, status: int, body: bytes) -> None:
    server = Server(answer, answer)
    async with pool(server) as call:
        for _ in range(2):
            assert (await call())[::2] == (status, body)
    assert server.connections == 1


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate"])
async def test_a_compressed_body_is_unpacked(encoding: str) -> None:
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = {"gzip": gzip.compress(b"{}"), "deflate": zlib.compress(b"{}"), "raw deflate": raw.compress(b"{}") + raw.flush()}[encoding]
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding.split()[-1]}\r\ncontent-length: {len(packed)}\r\n\r\n".encode()
    async with pool(Server(head + packed)) as call:
        assert (await call())[2] == b"{}"


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with pool(Server(b"HTTP/1.1 200 OK\r\n\r\nall of it", closes=True)) as call:
        assert (await call())[2] == b"all of it"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope",
    ],
)
async def test_an_answer_that_breaks_off_or_is_none_is_an_error(answer: bytes) -> None:
    async with pool(Server(answer, closes=True)) as call:
        with pytest.raises(BrokenConnectionError):
            await call()


async def test_a_server_that_closes_is_connected_to_again() -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
    server = Server(closing, OK, OK, closes=True)
    async with pool(server) as call:
        for _ in range(3):
            assert (await call())[0] == 200
            await asyncio.sleep(0.01)
    assert server.connections == 3


async def test_an_end_that_the_loop_has_not_read_yet_is_seen_before_a_request_is_written() -> None:
    server = Server(OK, OK)
    async with pool(server) as call:
        await call()
        # The kernel has the end of the connection at once; the loop would read it in its next turn, and there is none before the call.
        raw = server.writers[0].transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(raw.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        assert (await call())[0] == 200
    assert server.connections == 2


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    server = Server(OK, OK)
    async with pool(server, keep_alive=0.02) as call:
        await call()
        await asyncio.sleep(0.1)
        await call()
    assert server.connections == 2


async def test_a_cancelled_request_leaves_nothing_to_the_next_one() -> None:
    server = Server(b"", OK)  # the first is never answered
    async with pool(server) as call:
        first = asyncio.ensure_future(call())
        await asyncio.sleep(0.05)
        first.cancel()
        assert (await call())[0] == 200
    assert server.connections == 2


async def test_requests_beyond_a_limit_wait_for_their_turn() -> None:
    server = Server(*[OK] * 6)
    async with pool(server, limit_per_host=1, limit=5) as call:
        await asyncio.gather(*(call() for _ in range(6)))
    assert server.connections == 1


async def test_nobody_there_is_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        authority = f"127.0.0.1:{listener.getsockname()[1]}"
    plain = PlainPool(sockets, keep_alive=1.0)
    with pytest.raises(NoConnectionError):
        await plain.exchange(authority, b"", lambda: None)
    plain.close()
