"""The servers behind an environment server at next to no cost, which count what is asked of them.

``python -m bench.stub_participants PORT DELAY`` plays a resources server and an agent at once (or either), legacy ``/run`` included, and
prints ``ready``. A turn of the agent takes DELAY seconds. ``GET /counts`` answers a ``Counts`` as JSON. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools
import orjson

from gym_compose.testing.served import response

_ANSWER = response("done")
_VERDICT = {"responses_create_params": {"input": "x"}, "response": _ANSWER, "reward": 1.0, "mask_sample": False}


@dataclass
class Counts:
    """``seeded``: when each rollout's resources session was asked for, in seconds of the monotonic clock, which processes share."""

    resources_opened: int = 0
    resources_closed: int = 0
    agents_opened: int = 0
    agents_closed: int = 0
    most_agents_open: int = 0
    most_turns: int = 0
    turns: int = 0
    seeded: dict[str, float] = field(default_factory=dict)


class Stub:
    """State of one process. Sessions count once, however often they are opened or closed."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._resources: set[str] = set()
        self._agents: set[str] = set()
        self._turning = 0
        self.counts = Counts()

    async def answer(self, path: str, body: bytes) -> tuple[Any, str]:
        """JSON value and Set-Cookie value."""
        if path.startswith("/ng-rollout/"):
            path = "/" + path.split("/", 3)[3]
        counts = self.counts
        match path:
            case "/seed_session":
                seed = orjson.loads(body)
                session = seed["resources_session_id"]
                counts.seeded[seed["episode_id"]["rollout_id"]] = time.monotonic()
                self._resources.add(session)
                counts.resources_opened += 1
                return {"resources_session_id": session}, f"resources={session}"
            case "/close_session":
                session = orjson.loads(body)["resources_session_id"]
                if session in self._resources:
                    self._resources.remove(session)
                    counts.resources_closed += 1
                return {"resources_session_id": session}, ""
            case "/v1/agent_sessions":
                session = orjson.loads(body)["agent_session_id"]
                self._agents.add(session)
                counts.agents_opened += 1
                counts.most_agents_open = max(counts.most_agents_open, len(self._agents))
                return {"agent_session_id": session}, f"agent={session}"
            case "/v1/agent_sessions/close":
                session = orjson.loads(body)["agent_session_id"]
                if session in self._agents:
                    self._agents.remove(session)
                    counts.agents_closed += 1
                return {"agent_session_id": session, "agent_observations": None, "resources_cookies": None}, ""
            case "/v1/responses" | "/run":
                counts.turns += 1
                self._turning += 1
                counts.most_turns = max(counts.most_turns, self._turning)
                try:
                    if self._delay:
                        await asyncio.sleep(self._delay)
                finally:
                    self._turning -= 1
                return (_ANSWER if path == "/v1/responses" else _VERDICT), ""
            case "/verify":
                return _VERDICT, ""
            case "/counts":
                return asdict(counts), ""
        return {"status": "ok"}, ""


class Connection(asyncio.Protocol):
    """One connection; a client waits for an answer before it asks again."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._body = b"", b""

    def connection_lost(self, _: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url, b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(self._path.decode(), self._body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, path: str, body: bytes) -> None:
        value, cookie = await self._stub.answer(path, body)
        content = orjson.dumps(value)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        if cookie:
            head += f"set-cookie: {cookie}; path=/\r\n"
        self._transport.write(f"{head}\r\n".encode() + content)


async def serve(port: int, delay: float) -> None:
    """Serve on ``port`` of loopback until standard input ends."""
    stub = Stub(delay)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(stub), "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


def main(argv: list[str]) -> int:
    asyncio.run(serve(int(argv[0]), float(argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
