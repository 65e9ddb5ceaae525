"""What counts as an answer, on real sockets (contract-config 4.6)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gym_compose.controller.probe import HttpProber, ProbeResult

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def answering(raw: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()

    return talk


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def probe(url: str, seconds: float = 2.0) -> ProbeResult:
    async with HttpProber(4) as prober:
        return await prober.probe(url, seconds)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbroken off",
    ],
)
async def test_any_status_is_an_answer(raw: bytes) -> None:
    async with listening(answering(raw)) as port:
        result = await probe(f"http://127.0.0.1:{port}/")
    assert result.outcome == "answered"
    assert result.answers_as_server
    assert result.answers_as_endpoint


@pytest.mark.parametrize(("raw", "detail"), [(b"", "closed without an answer"), (b"SSH-2.0-x\r\n", "does not speak HTTP")])
async def test_a_connection_without_http_is_no_answer(raw: bytes, detail: str) -> None:
    async with listening(answering(raw)) as port:
        result = await probe(f"http://127.0.0.1:{port}/")
    assert result.outcome == "refused"
    assert detail in result.detail


async def test_nobody_there() -> None:
    async with listening(silent) as port:
        pass
    result = await probe(f"http://127.0.0.1:{port}/")
    assert (result.outcome, result.detail) == ("refused", "connection refused")
    assert not result.answers_as_endpoint


async def test_a_server_that_says_nothing_times_out() -> None:
    async with listening(silent) as port:
        result = await probe(f"http://127.0.0.1:{port}/", 0.2)
    assert result.outcome == "timeout"
    assert "0.2 s" in result.detail


async def test_a_name_that_does_not_resolve() -> None:
    assert (await probe("http://no-such-host.invalid/", 20)).outcome == "unresolvable"


async def test_a_tls_error_is_an_answer_of_an_endpoint_and_not_of_a_server() -> None:
    async with listening(answering(b"HTTP/1.1 400 Bad\r\n\r\n")) as port:
        context = ssl.create_default_context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        result = await probe(f"https://127.0.0.1:{port}/v1/models", 2)
    # the plain server waits for the end of a request that never comes in TLS, or answers what is no TLS
    assert result.outcome in ("tls", "timeout")
    assert not result.answers_as_server


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "nonsense"])
async def test_what_is_no_url_is_forgiven_an_endpoint(url: str) -> None:
    result = await probe(url)
    assert result.outcome == "invalid"
    assert result.answers_as_endpoint
    assert not result.answers_as_server


async def test_at_most_so_many_probes_at_once() -> None:
    active = peak = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        active -= 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()

    async with listening(talk) as port, HttpProber(3) as prober:
        await asyncio.gather(*(prober.probe(f"http://127.0.0.1:{port}/", 5) for _ in range(9)))
    assert peak == 3
