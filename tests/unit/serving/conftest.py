"""Servers on real sockets inside the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn

from gym_compose.serving.client import HttpClient
from gym_compose.serving.process import uvicorn_config
from gym_compose.serving.server import Server
from gym_compose.wire.settings import Settings

TYPES = {"rs": "resources_servers", "ag": "responses_api_agents", "ms": "responses_api_models", "es": "environment_servers"}
Spec = tuple[str, type[Server], Mapping[str, Any]]


class InLoop(uvicorn.Server):
    """Without signal handlers: the loop is the test's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Deployed:
    """Running servers by instance name."""

    http: httpx.AsyncClient
    servers: dict[str, Server] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.servers[name]

    async def post(self, name: str, path: str, body: Any = None, **kwargs: Any) -> httpx.Response:
        """POST without a jar: only the given cookies are sent."""
        self.http.cookies.clear()
        if body is not None:
            kwargs["json"] = body
        if "cookies" in kwargs:
            kwargs.setdefault("headers", {})["cookie"] = "; ".join(f"{key}={value}" for key, value in kwargs.pop("cookies").items())
        return await self.http.post(self.urls[name] + path, **kwargs)

    async def get(self, name: str, path: str, **kwargs: Any) -> httpx.Response:
        self.http.cookies.clear()
        return await self.http.get(self.urls[name] + path, **kwargs)


Deploy = Callable[..., Awaitable[Deployed]]


@pytest.fixture
async def deploy() -> AsyncIterator[Deploy]:
    """``await deploy(name=("rs", ServerClass, {block}), …)``; everything is stopped afterwards."""
    stack = contextlib.AsyncExitStack()

    async def start(extra: Mapping[str, Any] | None = None, settings: Settings | None = None, **specs: Spec) -> Deployed:
        sockets: dict[str, socket.socket] = {}
        merged: dict[str, Any] = {"head_server": {"host": "127.0.0.1", "port": 1}, "dry_run": False, **(extra or {})}
        for name, (kind, cls, block) in specs.items():
            listener = socket.create_server(("127.0.0.1", 0))
            sockets[name] = listener
            merged[name] = {
                TYPES[kind]: {
                    cls.__name__.lower(): {"entrypoint": "app.py", "host": "127.0.0.1", "port": listener.getsockname()[1], **block}
                }
            }
        deployed = Deployed(await stack.enter_async_context(httpx.AsyncClient(timeout=20)))
        for name, (_, cls, _) in specs.items():
            server = cls.from_config(merged, name, environ={}, settings=settings or Settings(), http=HttpClient())
            running = InLoop(uvicorn_config(server))
            task = asyncio.create_task(running.serve(sockets=[sockets[name]]))
            stack.push_async_callback(_stop, running, task)
            while not running.started:
                assert not task.done(), f"{name} did not start"
                await asyncio.sleep(0.005)
            deployed.servers[name] = server
            deployed.urls[name] = f"http://127.0.0.1:{sockets[name].getsockname()[1]}"
        return deployed

    async with stack:
        yield start


async def _stop(running: uvicorn.Server, task: asyncio.Task[None]) -> None:
    running.should_exit = True
    await task
