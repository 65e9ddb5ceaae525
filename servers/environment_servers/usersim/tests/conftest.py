"""The example deployment inside the test's event loop: the servers of ``usersim_scripted.yaml`` on real sockets, any of them replaced."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import orjson
import pytest
import uvicorn
import yaml

from gym_compose.serving.client import HttpClient
from gym_compose.serving.process import uvicorn_config
from gym_compose.serving.server import Server

SERVERS = Path(__file__).resolve().parents[3]
RESOURCES = SERVERS / "resources_servers" / "usersim"
CLASSES = {
    "resources_servers/usersim": "UserSimResourcesServer",
    "environment_servers/usersim": "UserSimEnvironmentServer",
    "responses_api_agents/simple_agent": "SimpleAgent",
    "responses_api_models/scripted_model": "ScriptedModelServer",
}


class InLoop(uvicorn.Server):
    """Without signal handlers: the loop is the test's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def example_blocks() -> dict[str, Any]:
    """The server blocks of the two shipped configs, merged as ``_delete_key`` of the second says."""
    base = yaml.safe_load((RESOURCES / "configs" / "usersim.yaml").read_text())
    scripted = yaml.safe_load((RESOURCES / "configs" / "usersim_scripted.yaml").read_text())
    for instance in ("user_model", "policy_model"):
        block = scripted[instance]["responses_api_models"]["scripted_model"]
        block["dialogues"]["jsonl"] = str(SERVERS / block["dialogues"]["jsonl"])
        base[instance] = {"responses_api_models": {"scripted_model": block}}
    return {name: block for name, block in base.items() if name != "environment_server_routes"}


def example_rows(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (RESOURCES / "data" / f"example_{name}.jsonl").read_bytes().splitlines()]


def task(row: Mapping[str, Any], taskset: str = "usersim:orders") -> dict[str, Any]:
    """A row of a taskset as it is sent."""
    return {"task_id": {"taskset": taskset, "task_id": row["task_id"]}, "task_input": dict(row)}


class Example:
    """The shipped configs and rows."""

    blocks = staticmethod(example_blocks)

    @staticmethod
    def rows(name: str) -> dict[str, dict[str, Any]]:
        return {row["task_id"]: row for row in example_rows(name)}

    @staticmethod
    def task(task_id: str) -> dict[str, Any]:
        found = {name: (taskset, row) for taskset in ("orders", "bookings") for name, row in Example.rows(taskset).items()}
        taskset, row = found[task_id]
        return task(row, f"usersim:{taskset}")


@pytest.fixture
def example() -> Example:
    return Example()


@dataclass
class Chain:
    """Running servers by instance, and every request that reached one of them: ``(instance, path)`` in order."""

    http: httpx.AsyncClient
    servers: dict[str, Server] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)

    async def run(self, row: Mapping[str, Any], rollout: str = "0-0") -> dict[str, Any]:
        body = {"episode_id": {"rollout_id": rollout, "attempt": 0}, "task": task(row)}
        answer = await self.http.post(self.urls["usersim_environment"] + "/run", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert (found["result"] is None) != (found["failure"] is None)
        return found

    def paths(self, instance: str) -> list[str]:
        return [path for name, path in self.calls if name == instance]


MakeChain = Callable[..., Awaitable[Chain]]


@pytest.fixture
async def chain(load_app: Callable[[str], ModuleType]) -> AsyncIterator[MakeChain]:
    """``await chain(usersim_environment={fields}, policy_model={fields}, usersim_assistant=StubClass)``: fields replace those of the
    example's block, a class replaces the server."""
    stack = contextlib.AsyncExitStack()
    started: list[tuple[InLoop, asyncio.Task[None]]] = []

    async def start(**changes: Any) -> Chain:
        made = Chain(await stack.enter_async_context(httpx.AsyncClient(timeout=20)))
        merged: dict[str, Any] = {**example_blocks(), "head_server": {"host": "127.0.0.1", "port": 1}, "dry_run": False}
        classes: dict[str, type[Server]] = {}
        sockets: dict[str, socket.socket] = {}
        for instance, outer in example_blocks().items():
            ((server_type, inner),) = outer.items()
            ((implementation, block),) = inner.items()
            change = changes.pop(instance, {})
            directory = f"{server_type}/{implementation}"
            classes[instance] = change if isinstance(change, type) else getattr(load_app(directory), CLASSES[directory])
            sockets[instance] = socket.create_server(("127.0.0.1", 0))
            address = {"host": "127.0.0.1", "port": sockets[instance].getsockname()[1]}
            fields = {**block, **({} if isinstance(change, type) else change), **address}
            merged[instance] = {server_type: {implementation: fields}}
        assert not changes
        for instance, cls in classes.items():
            server = cls.from_config(merged, instance, environ={}, http=HttpClient())
            running = InLoop(uvicorn_config(server))
            running.config.app = _recording(running.config.app, instance, made.calls)
            serving = asyncio.create_task(running.serve(sockets=[sockets[instance]]))
            started.append((running, serving))
            while not running.started:
                assert not serving.done(), f"{instance} did not start"
                await asyncio.sleep(0.005)
            made.servers[instance] = server
            made.urls[instance] = f"http://127.0.0.1:{sockets[instance].getsockname()[1]}"
        return made

    async with stack:
        yield start
        for running, _ in started:
            running.should_exit = True
        await asyncio.gather(*(serving for _, serving in started))


def _recording(app: Any, instance: str, calls: list[tuple[str, str]]) -> Any:
    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            calls.append((instance, scope["path"]))
        await app(scope, receive, send)

    return recorded
