"""Agent servers: the loop that turns model calls and tool calls into one answer (contract-servers 2.2, 3.2)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from gym_compose.serving.call import Call
from gym_compose.serving.client import Reference
from gym_compose.serving.config import AgentServerConfig
from gym_compose.serving.endpoint import Endpoint
from gym_compose.serving.errors import HTTPError
from gym_compose.serving.server import Server
from gym_compose.wire.aggregation import AggregateHooks, aggregate_metrics, empty_metrics
from gym_compose.wire.episodes import (
    AgentCloseRequest,
    AgentCloseResponse,
    AgentSeedRequest,
    AgentSeedResponse,
    AggregateRequest,
    ToolAccess,
    overlay,
)
from gym_compose.wire.ids import EpisodeId
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject
from gym_compose.wire.sessions import AGENT_SESSION_KEY

_log = logging.getLogger(__name__)

RESPONSES_PATH = "/v1/responses"


class RunRequest(BaseModel):
    """Body of ``/run``: a flat row. Fields beside the params are the task's and are passed on untouched."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: ResponsesCreateParams

    def row(self) -> dict[str, Any]:
        """The row as it is sent to ``/seed_session`` and ``/verify``: params with all their fields, the rest as it came."""
        return {"responses_create_params": self.responses_create_params.full(), **(self.model_extra or {})}


@dataclass
class AgentSession:
    """State of one agent session. Subclass it for the state of a loop; ``seed`` is the body that began the session."""

    seed: AgentSeedRequest


@dataclass
class _Record:
    """What the server knows of one session id; ``lock`` orders seed and close of it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    session: AgentSession | None = None
    episode_id: EpisodeId | None = None
    closing: bool = False
    receipt: AgentCloseResponse | None = None
    forget_at: float = float("inf")


class AgentServer(Server):
    """Base of agent servers. Override ``responses`` and ``run``; ``open_session`` and ``close_session`` to take part in the episode
    protocol (without them the session routes answer 500, as the peer's do)."""

    prefix_paths: ClassVar[frozenset[str] | None] = frozenset({RESPONSES_PATH})

    config: AgentServerConfig

    def __init__(self, *args: Any, clock: Callable[[], float] = time.monotonic, **kwargs: Any) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}
        self._receipts: OrderedDict[str, _Record] = OrderedDict()
        super().__init__(*args, **kwargs)

    # What subclasses override.

    async def responses(self, params: ResponsesCreateParams, call: Call) -> ResponsesObject | dict[str, Any]:
        """``POST /v1/responses`` and its two prefixed twins. Cookies that the caller needs: ``call.set_cookie``; calls that belong to the
        same rollout: ``call.rollout_prefix + path``."""
        raise NotImplementedError

    async def run(self, body: RunRequest, call: Call) -> Any:
        """``POST /run``: seed, answer, verify; returns the verify answer (a mapping, or bytes to pass it on unread)."""
        raise NotImplementedError

    async def open_session(self, seed: AgentSeedRequest) -> AgentSession:
        """Begin an agent session; raise when a grant cannot be used."""
        raise NotImplementedError("this agent has no agent sessions")

    async def close_session(self, session: AgentSession) -> AgentCloseResponse:
        """End a session and report what it saw; raise when it cannot be released, the caller then asks again."""
        raise NotImplementedError("this agent has no agent sessions")

    def metric_hooks(self) -> AggregateHooks:
        return AggregateHooks()

    def metrics_server(self) -> Reference | None:
        """The server that aggregates in this one's place: the resources server, for agents that have one. None: this server itself."""
        return getattr(self.config, "resources_server", None)

    # What subclasses use.

    def agent_session(self, call: Call) -> AgentSession | None:
        """The open session that the request's cookie names; None when it names none. Raises HTTPError 409 when it is unknown or closed."""
        session_id = self._marker(call)
        if session_id is None:
            return None
        record = self._records.get(session_id)
        if record is None or record.session is None or record.closing:
            raise HTTPError(409, f"agent session {session_id!r} is unknown or closed")
        return record.session

    def tool_accesses(self, seed: AgentSeedRequest) -> list[ToolAccess]:
        """The grants of a session: those of the config, overlaid by name with those of its seed."""
        return overlay(self.config.tool_accesses, seed.tool_accesses)

    # Routes.

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", RESPONSES_PATH, self._responses_route),
            Endpoint("POST", "/run", self._run_route),
            Endpoint("POST", "/aggregate_metrics", self.aggregate),
            Endpoint("POST", "/v1/agent_sessions", self._seed_route),
            Endpoint("POST", "/v1/agent_sessions/close", self._close_route),
        ]

    async def _responses_route(self, body: ResponsesCreateParams, call: Call) -> Any:
        return await self.responses(body, call)

    async def _run_route(self, body: RunRequest, call: Call) -> Any:
        return await self.run(body, call)

    async def aggregate(self, body: AggregateRequest) -> Any:
        """Metrics: of the resources server where there is one, empty when nothing was verified, else this server's own."""
        if self.config.skip_verification:
            _log.warning("skip_verification is set: there is nothing to aggregate (disable_aggregation leaves the file out)")
            return empty_metrics()
        target = self.metrics_server()
        if target is not None:
            reply = await self.client.post(target, "/aggregate_metrics", json=body)
            return reply.raise_for_status().body
        return aggregate_metrics(body.verify_responses, self.metric_hooks())

    @staticmethod
    def _marker(call: Call) -> str | None:
        if AGENT_SESSION_KEY not in call.session:
            return None
        marker = call.session[AGENT_SESSION_KEY]
        if not isinstance(marker, str) or not marker:
            raise HTTPError(409, "the session cookie holds no agent session id")
        return marker

    @contextlib.asynccontextmanager
    async def _locked(self, session_id: str) -> AsyncIterator[_Record]:
        self._forget()
        while True:
            record = self._records.setdefault(session_id, _Record())
            async with record.lock:
                if self._records.get(session_id) is not record:
                    continue  # it was forgotten while this call waited for its lock
                try:
                    yield record
                finally:
                    if record.session is None and record.receipt is None:
                        self._records.pop(session_id, None)
                return

    def _forget(self) -> None:
        now = self._clock()
        while self._receipts:
            session_id, record = next(iter(self._receipts.items()))
            if record.forget_at > now:
                return
            del self._receipts[session_id]
            self._records.pop(session_id, None)

    async def _seed_route(self, body: AgentSeedRequest, call: Call) -> AgentSeedResponse:
        """Begin a session. The same body again is the same session; another body, a closing or closed one is a 409."""
        marker = self._marker(call)
        if marker is not None and marker != body.agent_session_id:
            raise HTTPError(409, "agent_session_id is not the one of the session cookie")
        async with self._locked(body.agent_session_id) as record:
            if record.receipt is not None or record.closing:
                raise HTTPError(409, f"agent session {body.agent_session_id!r} is closed or closing")
            if record.session is None:
                if marker is not None:
                    raise HTTPError(409, "the session cookie is of a session that is over")
                record.session = await self.open_session(body)
                record.episode_id = body.episode_id
            elif record.session.seed != body:
                raise HTTPError(409, f"agent session {body.agent_session_id!r} was begun with another body")
            call.session[AGENT_SESSION_KEY] = body.agent_session_id
            return AgentSeedResponse(agent_session_id=body.agent_session_id)

    async def _close_route(self, body: AgentCloseRequest, call: Call) -> AgentCloseResponse:
        """End a session; its receipt is kept for ``session_close_retry_window_seconds``. An unknown id succeeds and blocks a late seed."""
        if type(self).close_session is AgentServer.close_session:
            raise NotImplementedError("this agent has no agent sessions")
        marker = self._marker(call)
        if marker is not None and marker != body.agent_session_id:
            raise HTTPError(409, "agent_session_id is not the one of the session cookie")
        async with self._locked(body.agent_session_id) as record:
            if record.episode_id is not None and record.episode_id != body.episode_id:
                raise HTTPError(409, "episode_id is not the one that the session was begun with")
            if record.receipt is not None:
                return record.receipt
            if record.session is not None:
                record.closing = True  # stays so when the release fails: the session takes no more requests, only another close
                receipt = await self.close_session(record.session)
            elif marker is not None:
                raise HTTPError(409, "the receipt of this session has expired")
            else:
                receipt = AgentCloseResponse(agent_session_id=body.agent_session_id)
            record.session = None
            record.episode_id = body.episode_id
            record.receipt = receipt
            record.forget_at = self._clock() + self.config.session_close_retry_window_seconds
            self._receipts[body.agent_session_id] = record
            # The marker stays: a late request with this cookie must not pass for one without a session.
            call.session[AGENT_SESSION_KEY] = body.agent_session_id
            return receipt
