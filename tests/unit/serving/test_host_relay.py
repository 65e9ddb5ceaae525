"""The host relay: bytes both ways, ends said, endpoints that are away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from gym_compose.serving.host_relay import CHUNK, Relay, main, serve
from gym_compose.wire.errors import PrerequisiteError

TARGET, GATEWAY = "127.0.0.1", "127.0.0.2"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((TARGET, 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def endpoint() -> AsyncIterator[int]:
    """Says back what it is told once it has been told all of it, then ``end``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read() + b"end")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, TARGET, 0)
    yield int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()


@pytest.fixture
async def relay(endpoint: int) -> AsyncIterator[Relay]:
    relay = Relay(GATEWAY, TARGET, [endpoint])
    await relay.start()
    yield relay
    await relay.stop()


async def ask(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(GATEWAY, port)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_bytes_go_both_ways_and_each_end_is_said(relay: Relay, endpoint: int) -> None:
    assert relay.addresses == ((GATEWAY, endpoint),)
    assert await ask(endpoint, b"hello ") == b"hello end"


async def test_many_clients_and_long_bodies(relay: Relay, endpoint: int) -> None:
    bodies = [bytes([number]) * (CHUNK * 3 + number) for number in range(20)]
    assert await asyncio.gather(*(ask(endpoint, body) for body in bodies)) == [body + b"end" for body in bodies]


async def test_a_client_of_an_endpoint_that_is_away_is_hung_up_on(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    relay = Relay(GATEWAY, TARGET, [port])
    await relay.start()
    assert await ask(port, b"") == b""
    assert f"{TARGET}:{port}: " in capsys.readouterr().err
    await relay.stop()


async def test_two_relays_share_a_port(relay: Relay, endpoint: int) -> None:
    other = Relay(GATEWAY, TARGET, [endpoint])
    await other.start()
    assert {await ask(endpoint, b"x") for _ in range(8)} == {b"xend"}
    await other.stop()


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind((GATEWAY, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PrerequisiteError, match=rf"127\.0\.0\.2:{port}: cannot listen"):
            await Relay(GATEWAY, TARGET, [port]).start()


async def test_it_serves_until_it_is_told_to_stop(endpoint: int, capsys: pytest.CaptureFixture[str]) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(serve(Relay(GATEWAY, TARGET, [endpoint]), stop))
    await asyncio.sleep(0)
    while "relays" not in capsys.readouterr().out:
        await asyncio.sleep(0.01)
    stop.set()
    await running
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(GATEWAY, endpoint)


def test_the_command_says_in_one_line_why_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--listen", "203.0.113.7", "--target", "localhost", "9"]) == PrerequisiteError("x").exit_code
    assert capsys.readouterr().err.startswith("Error: 203.0.113.7:9: cannot listen")
