"""The opaque relay (contract-config 5.7, contract-data case 74)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from starlette.responses import Response

from gym_compose.serving import AgentServerReference, Call, Endpoint, EnvironmentServer, EnvironmentServerConfig
from gym_compose.serving.relay import relay


class Relay(EnvironmentServer):
    config: EnvironmentServerConfig
    target: ClassVar[str] = "agent"

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("POST", "/run", self.forward)]

    async def forward(self, body: bytes, call: Call) -> Response:
        return await relay(self.client, AgentServerReference(type="responses_api_agents", name="agent"), "/run", call)


@contextlib.asynccontextmanager
async def agent(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(next(line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")))
        seen.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()


CHUNKED_500 = (
    b"HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\nX-Mine: 1\r\nKeep-Alive: x\r\n"
    b'Set-Cookie: A=1; path=/\r\nSet-Cookie: B=2; path=/; httponly\r\n\r\n4\r\n"boo\r\n2\r\nm"\r\n0\r\n\r\n'
)


async def relayed(deploy: Any, port: int) -> Any:
    merged = {"agent": {"responses_api_agents": {"a": {"host": "127.0.0.1", "port": port}}}}
    return await deploy(merged, env=("es", Relay, {"cleanup_timeout_seconds": 1}))


async def test_status_body_and_each_cookie_come_back_and_the_length_is_set(deploy: Any) -> None:
    async with agent(CHUNKED_500) as (port, _):
        servers = await relayed(deploy, port)
        answer = await servers.post("env", "/run", {"a": 1})
    assert (answer.status_code, answer.content) == (500, b'"boom"')
    assert answer.headers.get_list("set-cookie") == ["A=1; path=/", "B=2; path=/; httponly"]
    assert answer.headers["content-length"] == "6"
    assert answer.headers["x-mine"] == "1"
    assert "transfer-encoding" not in answer.headers
    assert "keep-alive" not in answer.headers


async def test_the_bytes_and_headers_of_the_request_go_on(deploy: Any) -> None:
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    body = b'{ "not":  "reformatted", "n": 1e400 }'
    async with agent(ok) as (port, seen):
        servers = await relayed(deploy, port)
        headers = {"content-type": "application/json", "x-trace": "t", "accept-encoding": "identity"}
        await servers.post("env", "/run", content=body, headers=headers, cookies={"A": "1", "B": "x=="})
    head, _, sent = seen[0].partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert sent == body
    assert b"x-trace: t" in lines
    assert b"cookie: a=1; b=x==" in lines
    assert f"host: 127.0.0.1:{port}".encode() in lines
    assert sum(line.startswith(b"content-length") for line in lines) == 1


@pytest.mark.parametrize("status", [200, 404, 422, 503])
async def test_any_status_passes(deploy: Any, status: int) -> None:
    async with agent(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\n{}" % status) as (port, _):
        servers = await relayed(deploy, port)
        assert (await servers.post("env", "/run", {})).status_code == status


async def test_an_agent_that_breaks_off_is_a_500_that_says_so(deploy: Any) -> None:
    async with agent(b"") as (port, seen):
        servers = await relayed(deploy, port)
        answer = await servers.post("env", "/run", {})
    assert answer.status_code == 500
    assert "PeerDropped" in answer.json()
    assert len(seen) == 1
