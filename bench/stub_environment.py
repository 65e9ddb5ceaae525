"""A deployment of one environment server that costs next to nothing: what is measured against it is whoever sends the rows.

``python -m bench.stub_environment REPLY`` answers every ``POST /run`` with the bytes of the file REPLY, plays the head server too, and
prints its URL. It parses no JSON and no header but the length, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httptools
import orjson

INSTANCE = "stub_environment"


def config(port: int) -> dict[str, Any]:
    """What the head says: an agent, and the environment server that fronts it."""
    return {
        "agent": {"responses_api_agents": {"stub": {"entrypoint": "app.py"}}},
        INSTANCE: {
            "environment_servers": {
                "legacy_agent": {
                    "entrypoint": "app.py",
                    "host": "127.0.0.1",
                    "port": port,
                    "agent_server": {"type": "responses_api_agents", "name": "agent"},
                }
            }
        },
    }


def answer(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One connection; answers are whole and made beforehand."""

    def __init__(self, answers: dict[bytes, bytes], otherwise: bytes) -> None:
        self._answers = answers
        self._otherwise = otherwise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_message_complete(self) -> None:
        self._transport.write(self._answers.get(self._path, self._otherwise))


async def serve(reply: bytes) -> None:
    """Serve on a free port of loopback until standard input ends."""
    loop = asyncio.get_running_loop()
    answers: dict[bytes, bytes] = {b"/": answer(b'{"status":"ok"}'), b"/readyz": answer(b'{"status":"ok"}'), b"/run": answer(reply)}
    missing = answer(b"{}", "404 Not Found")
    server = await loop.create_server(lambda: Connection(answers, missing), "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    # JSON is YAML, and the head's answer is a JSON string of YAML.
    answers[b"/global_config_dict_yaml"] = answer(orjson.dumps(orjson.dumps(config(port)).decode()))
    print(f"http://127.0.0.1:{port}", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


def main(argv: list[str]) -> int:
    asyncio.run(serve(Path(argv[0]).read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
