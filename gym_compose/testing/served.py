"""One native server inside a test's process: no socket, no container, its peers played by the test.

    app = load_app(Path(__file__).parents[1])
    agent, resources = AgentPeer("4"), ResourcesPeer(lambda body: {"reward": 1.0})
    with Served(app.MyEnvironment, {"agent_server": {...}, …}, peers={"my_agent": agent, "my_resources": resources}) as served:
        answer = served.post("/run", episode({"question": "2+2"}))
    assert answer.json()["result"]["reward"] == 1.0
    assert agent.opened == agent.closed == 1

The server is the real one: its routes, validation, sessions and errors. Its calls to peers end in the test instead of a connection.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import orjson

from gym_compose.serving.client import UNBOUNDED, HttpClient, Reply, encode
from gym_compose.serving.prefix import split_prefix
from gym_compose.serving.server import Server
from gym_compose.serving.session import read_cookies
from gym_compose.wire.deadline import Deadline

Json = dict[str, Any]
Handler = Callable[[Json], Any]

_PORT = 80


def load_app(directory: Path, entrypoint: str = "app.py") -> ModuleType:
    """The module of a server directory, under a name of its own: tests of several servers run in one process, and each has an ``app.py``.

    The directory joins ``sys.path``, as it does when the server runs. Raises FileNotFoundError when there is no entry point.
    """
    file = (directory / entrypoint).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"no entry point {file}")
    name = f"gym_app_{file.parent.parent.name}_{file.parent.name}_{file.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@dataclass(frozen=True)
class PeerAnswer:
    """What a peer answers: any JSON value, a status, cookies to set."""

    body: Any = None
    status: int = 200
    cookies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PeerCall:
    """What a peer was asked. ``path`` is without a rollout prefix, which stands in ``rollout_prefix``."""

    path: str
    body: Json
    cookies: Mapping[str, str]
    rollout_prefix: str = ""


@dataclass
class Peer:
    """A server that is played: ``answers`` by path, each a JSON value, a PeerAnswer, or a function of the body that returns one (or is a
    coroutine function, for a peer that takes its time). ``calls`` keeps what came."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[PeerCall] = field(default_factory=list)

    async def answer(self, call: PeerCall) -> PeerAnswer:
        """A path that has no answer is a 404, as a real server's would be."""
        self.calls.append(call)
        if call.path not in self.answers:
            return PeerAnswer({"detail": "Not Found"}, 404)
        found = self.answers[call.path]
        if callable(found):
            found = found(call.body)
            if inspect.isawaitable(found):
                found = await found
        return found if isinstance(found, PeerAnswer) else PeerAnswer(found)

    def paths(self) -> list[str]:
        return [call.path for call in self.calls]


def response(text: str, **fields: Any) -> Json:
    """A whole Responses object with one message; ``fields`` replace its own."""
    message = {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return {
        "id": "resp_test",
        "created_at": 0,
        "model": "test",
        "object": "response",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }


class AgentPeer(Peer):
    """An agent with sessions. ``turns`` are its answers in order, a text or a whole response each; the last one is repeated."""

    def __init__(self, *turns: str | Json) -> None:
        super().__init__()
        self.turns = list(turns)
        self.opened = 0
        self.closed = 0
        self.answers |= {
            "/v1/agent_sessions": self._open,
            "/v1/responses": self._respond,
            "/v1/agent_sessions/close": self._close,
        }

    def _open(self, body: Json) -> PeerAnswer:
        self.opened += 1
        return PeerAnswer({"agent_session_id": body["agent_session_id"]}, cookies={"agent_session": body["agent_session_id"]})

    def _respond(self, _: Json) -> Json:
        turn = self.turns[0] if len(self.turns) == 1 else self.turns.pop(0)
        return response(turn) if isinstance(turn, str) else turn

    def _close(self, body: Json) -> Json:
        self.closed += 1
        return {"agent_session_id": body["agent_session_id"], "agent_observations": None, "resources_cookies": None}


class ResourcesPeer(Peer):
    """A resources server with typed sessions. ``verdict`` is what ``/verify`` answers: a mapping, or a function of its body."""

    def __init__(self, verdict: Json | Handler) -> None:
        super().__init__()
        self.opened = 0
        self.closed = 0
        self.answers |= {"/seed_session": self._open, "/verify": verdict, "/close_session": self._close}

    def _open(self, body: Json) -> PeerAnswer:
        self.opened += 1
        session = body.get("resources_session_id", "")
        return PeerAnswer({"resources_session_id": session} if session else {}, cookies={"resources_session": session or "legacy"})

    def _close(self, body: Json) -> Json:
        self.closed += 1
        return {"resources_session_id": body["resources_session_id"]}


class _PeerClient(HttpClient):
    """A client whose hosts are the played peers."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        super().__init__()
        self._peers = peers

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        deadline: Deadline = UNBOUNDED,  # noqa: ARG002 - a played peer answers at once
        answer_seconds: float | None = None,  # noqa: ARG002
        retry_refused: bool = True,  # noqa: ARG002
    ) -> Reply:
        parts = urlsplit(url)
        body = encode(json) if json is not None else data or b""
        sent = dict(cookies or {})
        sent.update(read_cookies((headers or {}).get("cookie", "")))
        prefix, path = split_prefix(parts.path)
        answer = await self._peers[parts.hostname or ""].answer(PeerCall(path, orjson.loads(body) if body else {}, sent, prefix))
        set_cookies = tuple(("set-cookie", f"{name}={value}; path=/") for name, value in answer.cookies.items())
        return Reply(answer.status, set_cookies, orjson.dumps(answer.body), method, url)


class Served:
    """A context manager around one instance of ``server``. ``block`` is its config block without address and entry point; ``config`` are
    further top-level keys. Raises InvalidInputError, as the process would at its start, when the block does not fit."""

    def __init__(
        self,
        server: type[Server],
        block: Mapping[str, Any],
        *,
        instance: str = "served",
        peers: Mapping[str, Peer] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        peers = peers or {}
        address = {"entrypoint": "app.py", "port": _PORT}
        # The type's name decides nothing here: position counts (contract-servers 1.1).
        merged: Json = {name: {"peers": {"peer": {**address, "host": name}}} for name in peers}
        merged |= {**(config or {}), instance: {"servers": {"server": {**block, **address, "host": instance}}}, "dry_run": False}
        self.server = server.from_config(merged, instance, environ={}, http=_PeerClient(peers))
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app=self.server.app(), raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url=f"http://{instance}")

    def __enter__(self) -> Self:
        self._runner.run(self.server.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._end())
        self._runner.close()

    async def _end(self) -> None:
        await self.server.stop()
        await self._http.aclose()

    def request(self, method: str, path: str, body: Any = None, cookies: Mapping[str, str] | None = None) -> httpx.Response:
        """One request. Cookies of earlier answers are not sent: give those of the session that is meant, as servers do among each other."""
        self._http.cookies.clear()
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
        content = None if body is None else orjson.dumps(body)
        if content is not None:
            headers["content-type"] = "application/json"
        return self._runner.run(self._http.request(method, path, content=content, headers=headers))

    def post(self, path: str, body: Any = None, cookies: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("POST", path, body, cookies)

    def get(self, path: str, cookies: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, None, cookies)


def episode(task_input: Any, *, rollout_id: str = "0-0", attempt: int = 0, taskset: str = "test", task_id: str = "0") -> Json:
    """The body of an environment server's ``/run`` for one task."""
    return {
        "episode_id": {"rollout_id": rollout_id, "attempt": attempt},
        "task": {"task_id": {"taskset": taskset, "task_id": task_id}, "task_input": task_input},
    }
