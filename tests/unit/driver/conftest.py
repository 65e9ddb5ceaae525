"""A deployment of stubs on loopback: a head server and environment servers whose answers a test gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from gym_compose.driver.progress import Event
from gym_compose.driver.run import collect
from gym_compose.wire.run import RunProgress, RunRequest, RunSummary, RunWarning
from gym_compose.wire.settings import Settings

Answer = Callable[[dict[str, Any]], Awaitable[web.StreamResponse] | web.StreamResponse]
PARAMS = {"input": "x"}
QUICK = Settings(run_head_seconds=2.0, run_silence_seconds=1.0, probe_interval_seconds=0.1, progress_interval_seconds=0.05)


def flat(agent: str | None = None, **extra: Any) -> dict[str, Any]:
    return {"responses_create_params": dict(PARAMS), **({} if agent is None else {"agent_ref": {"name": agent}}), **extra}


def mat(taskset: str, task: str, **extra: Any) -> dict[str, Any]:
    return {"task_id": {"taskset": taskset, "task_id": task}, "task_input": {"q": 1}, **extra}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def reward(value: float = 1.0) -> Answer:
    async def answer(body: dict[str, Any]) -> web.Response:
        if "episode_id" in body:
            result = {"reward": value, "response": {"id": "r", "usage": {"total_tokens": 3}}}
            reply = {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], "result": result, "failure": None}
        else:
            reply = {"responses_create_params": body["responses_create_params"], "response": {"id": "r"}, "reward": value}
        return web.json_response(reply)

    return answer


@dataclass
class StubServer:
    """One environment server. ``seen`` are the bodies of ``/run``, ``aggregated`` those of ``/aggregate_metrics``."""

    answer: Answer
    seen: list[dict[str, Any]] = field(default_factory=list)
    aggregated: list[dict[str, Any]] = field(default_factory=list)
    aggregate_status: int = 200
    active: int = 0
    peak: int = 0
    port: int = 0
    runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/", self._alive)
        app.router.add_post("/run", self._run)
        app.router.add_post("/aggregate_metrics", self._aggregate)
        self.runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _run(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.seen.append(body)
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            reply = self.answer(body)
            answered = reply if isinstance(reply, web.StreamResponse) else await reply
            if isinstance(answered, web.Response) and answered.headers.get("x-drop"):
                assert request.transport is not None
                request.transport.abort()
            return answered
        finally:
            self.active -= 1

    async def _aggregate(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.aggregated.append(body)
        if self.aggregate_status != 200:
            return web.json_response("boom", status=self.aggregate_status)
        rewards = [row["reward"] for row in body["verify_responses"] if "reward" in row]
        mean = {"mean/reward": sum(rewards) / len(rewards)} if rewards else {}
        document: dict[str, Any] = {
            "group_level_metrics": [],
            "agent_metrics": mean,
            "key_metrics": mean,
            "perf_summary": None,
            "repeat_level_metrics": [],
        }
        return web.json_response(document)


@dataclass
class Stubs:
    """The whole deployment, and ``run`` for a run against it."""

    directory: Path
    servers: dict[str, StubServer]
    config: dict[str, Any]
    ready: bool = True
    instances: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    runner: web.AppRunner | None = None
    events: list[Event] = field(default_factory=list)
    # importlib mode: tests cannot import this module, so they find its makers here
    flat = staticmethod(flat)
    mat = staticmethod(mat)
    reward = staticmethod(reward)
    read = staticmethod(read_lines)
    write = staticmethod(write_rows)

    async def start(self) -> None:
        for name, server in self.servers.items():
            await server.start()
            fields = next(iter(self.config[name]["environment_servers"].values()))
            fields |= {"host": "127.0.0.1", "port": server.port}
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/global_config_dict_yaml", self._config)
        app.router.add_get("/server_instances", self._instances)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        for server in self.servers.values():
            await server.stop()
        if self.runner is not None:
            await self.runner.cleanup()

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.ready:
            return web.json_response({"status": "ok"})
        return web.json_response({"status": "starting", "waiting": [{"name": "slow_server"}]}, status=503)

    async def _instances(self, _request: web.Request) -> web.Response:
        return web.json_response(self.instances)

    async def _config(self, _request: web.Request) -> web.Response:
        return web.json_response(yaml.safe_dump(self.config, sort_keys=False))

    @property
    def output(self) -> Path:
        return self.directory / "out" / "rollouts.jsonl"

    def beside(self, ending: str) -> Path:
        return self.output.with_name(f"rollouts{ending}")

    def request(self, rows: list[dict[str, Any]] | Path, **changes: Any) -> RunRequest:
        path = rows if isinstance(rows, Path) else write_rows(self.directory / "rows.jsonl", rows)
        fields = {"run_id": "run1", "head_url": self.url, "input_jsonl_fpath": str(path), "output_jsonl_fpath": str(self.output)}
        return RunRequest.model_validate({**fields, "num_samples_in_parallel": 4, **changes})

    async def run(
        self,
        rows: list[dict[str, Any]] | Path,
        *,
        stop: asyncio.Event | None = None,
        settings: Settings = QUICK,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        **changes: Any,
    ) -> RunSummary:
        self.events.clear()
        request = self.request(rows, **changes)
        return await collect(request, self.events.append, stop, settings=settings, environ=environ or {}, clock=clock)

    @property
    def progress(self) -> list[RunProgress]:
        return [event for event in self.events if isinstance(event, RunProgress)]

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, RunWarning)]


def agent_block(resources: str | None = None, implementation: str = "simple_agent", **extra: Any) -> dict[str, Any]:
    reference = {} if resources is None else {"resources_server": {"type": "resources_servers", "name": resources}}
    return {"responses_api_agents": {implementation: {"entrypoint": "app.py", **reference, **extra}}}


def resources_block(**extra: Any) -> dict[str, Any]:
    return {"resources_servers": {"rs_impl": {"entrypoint": "app.py", **extra}}}


def environment_block(implementation: str = "legacy_agent", **fields: Any) -> dict[str, Any]:
    return {"environment_servers": {implementation: {"entrypoint": "app.py", **fields}}}


def agent_reference(name: str) -> dict[str, str]:
    return {"type": "responses_api_agents", "name": name}


def default_config() -> dict[str, Any]:
    """Resources server ``rs``; agents ``a`` (on it) and ``b``, each behind a relay; ``native`` for the taskset ``ts``, with agent ``n``."""
    return {
        "rs": resources_block(),
        "a": agent_block("rs"),
        "b": agent_block(),
        "a_env": environment_block(agent_server=agent_reference("a")),
        "b_env": environment_block(agent_server=agent_reference("b")),
        "n": agent_block(),
        "native": environment_block(
            "single_agent_turn", agent_server={"name": "n"}, resources_server={"type": "resources_servers", "name": "rs"}
        ),
        "environment_server_routes": {"ts": "native"},
        "head_server": {"host": "127.0.0.1", "port": 11000},
    }


@dataclass(frozen=True)
class Blocks:
    """Makers of config blocks, for tests that need another config than the default."""

    agent = staticmethod(agent_block)
    resources = staticmethod(resources_block)
    environment = staticmethod(environment_block)
    reference = staticmethod(agent_reference)
    default = staticmethod(default_config)


@pytest.fixture
def blocks() -> Blocks:
    return Blocks()


@pytest.fixture
async def stubs(tmp_path: Path) -> AsyncIterator[Stubs]:
    names = ("a_env", "b_env", "native")
    deployment = Stubs(tmp_path, {name: StubServer(reward()) for name in names}, default_config())
    await deployment.start()
    yield deployment
    await deployment.stop()
