"""The participants of an episode: its session at a resources server and its sessions at agents (contract-data 2.4, 2.5, 2.9).

An environment server makes them with ``EnvironmentServer.resources_session`` and ``agent_session``:

    resources = self.resources_session(episode, self.config.resources_server)
    user = self.agent_session(episode, self.config.user_agent, alias="user", resources=resources)
    await resources.open(task_data)
    await user.open()
    answer = await user.respond({"input": "hello"})
    await user.close()
    result = await resources.verify({"response": answer})

Each registers its close before it seeds, under an id of its own choice, so that a session whose answer was lost is closed too. A call that
fails raises ParticipantError: the failure of the episode, with its stage.

| call                    | stage          |
|-------------------------|----------------|
| resources ``open``      | seed           |
| agent ``open, respond`` | agent          |
| agent ``close``         | cleanup        |
| resources ``verify``    | verification   |
| resources ``close``     | cleanup        |
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from gym_compose.serving.client import UNBOUNDED, PeerError, PeerStatusError, Reference, Reply, ServerClient
from gym_compose.serving.config import first_block
from gym_compose.serving.episode import CleanupHandle, Episode, HandledEpisodeError
from gym_compose.serving.prefix import rollout_path
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.episodes import (
    AgentCloseRequest,
    AgentCloseResponse,
    AgentSeedRequest,
    AgentSeedResponse,
    DirectHTTPToolAccess,
    EpisodeFailure,
    MCPConnection,
    MCPToolAccess,
    ResourcesCloseRequest,
    ResourcesSeedRequest,
    ResourcesSeedResponse,
    SandboxAccess,
    ToolAccess,
)
from gym_compose.wire.failures import FailureStage, cut_reason
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

Transport = Literal["direct_http", "mcp"]

SEED_PATH: Final = "/seed_session"
VERIFY_PATH: Final = "/verify"
CLOSE_PATH: Final = "/close_session"
AGENT_SEED_PATH: Final = "/v1/agent_sessions"
AGENT_CLOSE_PATH: Final = "/v1/agent_sessions/close"
RESPONSES_PATH: Final = "/v1/responses"


class ProtocolError(Exception):
    """A peer answered, but not what the protocol asks for. Not retryable: it would do so again."""


class ParticipantError(HandledEpisodeError):
    """A call to a participant failed. Left alone it is the episode's failure: its stage, whether another attempt may fare better, and the
    text of the cause. ``server`` is the instance that was called, ``status`` its HTTP status when it answered with an error."""

    def __init__(self, server: str, stage: FailureStage, cause: Exception, *, retryable: bool) -> None:
        reason = cut_reason(str(cause) or type(cause).__name__)
        super().__init__(EpisodeFailure(failure_reason=reason, terminal=not retryable, stage=stage))
        self.server = server
        self.stage = stage
        self.cause = cause
        self.status = cause.status if isinstance(cause, PeerStatusError) else None


def is_retryable(error: Exception) -> bool:
    """Whether another attempt of the episode may fare better: no answer, 408, 425, 429 and 500 and above (contract-data 2.5)."""
    return isinstance(error, TimeoutError) or (isinstance(error, PeerError) and error.retryable)


def captures_tokens(merged: Mapping[str, Any], agent: str) -> bool:
    """Whether calls of ``agent`` are recorded for training, as the merged config says it (contract-data 1.16)."""
    capture = merged.get("token_id_capture")
    if not isinstance(capture, Mapping) or not capture.get("enabled"):
        return False
    block = first_block(dict(merged), agent)
    return bool(capture.get("all_agents")) or (block is not None and bool(block[2].get("token_id_capture")))


def _parse(model: type[BaseModel], reply: Reply) -> Any:
    try:
        return model.model_validate_json(reply.raise_for_status().body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(f"{reply.method} {reply.url}: the answer is no {model.__name__} ({where}: {first['msg']})") from None


@dataclass
class _Session:
    """What both kinds have: where it is, under which id, and the cookies that name it there."""

    client: ServerClient
    episode: Episode[Any]
    server: Reference
    session_id: str = ""
    cookies: dict[str, str] = field(default_factory=dict)
    _handle: CleanupHandle | None = None

    async def _post(
        self, path: str, json: Any, cookies: Mapping[str, str] | None = None, deadline: Deadline = UNBOUNDED, *, closes: bool = False
    ) -> Reply:
        # A close is not kept for a server that is not there: its sessions went with it, and the slot of the episode is waited for.
        try:
            return await self.client.post(self.server, path, json=json, cookies=cookies, deadline=deadline, retry_refused=not closes)
        except asyncio.CancelledError:
            self.episode.given_up.append(f"{self.server.name} {path}")
            raise

    @contextlib.contextmanager
    def _stage(self, stage: FailureStage) -> Iterator[None]:
        try:
            yield
        except HandledEpisodeError:
            raise
        except Exception as error:
            raise ParticipantError(self.server.name, stage, error, retryable=is_retryable(error)) from error

    def _registered(self) -> CleanupHandle:
        if self._handle is None:
            raise RuntimeError(f"the session {self.session_id} at {self.server.name} was not opened")
        return self._handle


@dataclass
class ResourcesSession(_Session):
    """One session at a resources server. ``cookies`` name it; an agent's close replaces them when its receipt brings others.

    ``prefix`` stands before every path: the rollout, where the config asks for it (``observability_enabled``, contract-data 1.15).
    """

    prefix: str = ""

    def __post_init__(self) -> None:
        self.session_id = self.session_id or f"resources-session-{uuid.uuid4().hex}"

    async def open(self, task_data: dict[str, Any]) -> ResourcesSeedResponse:
        """Seed the session with the task's data. Raises ParticipantError, stage ``seed``: also when the answer sets no cookie, or is for
        another session."""
        self._handle = self.episode.on_exit(f"resources session at {self.server.name}", self._close)
        request = ResourcesSeedRequest.model_construct(
            resources_session_id=self.session_id, episode_id=self.episode.id, task_id=self.episode.task_id, task_data=task_data
        )
        with self._stage("seed"):
            reply = await self._post(self.prefix + SEED_PATH, request)
            reply.raise_for_status()
            self.cookies = reply.cookies
            if not self.cookies:
                raise ProtocolError(f"POST {reply.url}: the answer to the seed sets no session cookie")
            seed: ResourcesSeedResponse = _parse(ResourcesSeedResponse, reply)
            if seed.resources_session_id != self.session_id:
                raise ProtocolError(f"POST {reply.url}: the answer to the seed is for another session")
        return seed

    def grants(self, seed: ResourcesSeedResponse, transports: Sequence[Transport]) -> list[ToolAccess]:
        """How an agent reaches this session's tools. Raises ParticipantError, stage ``seed``, when the server lacks a transport that is
        asked for."""
        name = self.server.name
        base_url = self.client.base_url(self.server).rstrip("/")
        accesses: list[ToolAccess] = []
        if "direct_http" in transports:
            accesses.append(
                DirectHTTPToolAccess.model_validate(
                    {"name": f"{name}.direct_http", "required": True, "base_url": base_url, "cookies": self.cookies}
                )
            )
        if "mcp" in transports:
            with self._stage("seed"):
                tools = seed.resources_tools
                if tools is None:
                    raise ProtocolError(
                        f"resources_tool_transports asks for mcp, and {name} serves no tools over MCP (expose_tools_over_mcp)"
                    )
                if tools.transport != "http":
                    raise ProtocolError(f"{name} offers its tools over MCP transport {tools.transport!r}, which no agent here speaks")
            url = f"{base_url}/{tools.url_path.lstrip('/')}"
            connection = MCPConnection.model_validate({"url": url, "headers": tools.headers})
            accesses.append(MCPToolAccess(name=tools.server_name, required=True, connection=connection))
        return accesses

    async def verify(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict, all its fields kept. Raises ParticipantError, stage ``verification``: also when it has no numeric reward."""
        with self._stage("verification"):
            reply = await self._post(self.prefix + VERIFY_PATH, body, self.cookies)
            result = reply.raise_for_status().json()
            if not isinstance(result, dict) or isinstance(result.get("reward"), bool) or not isinstance(result.get("reward"), int | float):
                raise ProtocolError(f"POST {reply.url}: the verdict has no numeric reward")
        return result

    async def close(self) -> None:
        """Close now, within ``cleanup_timeout_seconds``; once that has succeeded the cleanup does not close again. For protocols whose
        answer needs it; others leave it to the cleanup. Raises ParticipantError, stage ``cleanup``."""
        with self._stage("cleanup"):
            await self._registered().close()

    def close_with_retry(self) -> None:
        """Let the cleanup try twice: after a verdict, a close that fails must not erase it."""
        self._registered().tries = 2

    async def _close(self) -> None:
        request = ResourcesCloseRequest(resources_session_id=self.session_id, episode_id=self.episode.id)
        reply = await self._post(self.prefix + CLOSE_PATH, request.model_dump(), self.cookies, closes=True)
        reply.raise_for_status()


@dataclass
class AgentParticipant(_Session):
    """One session at an agent server, for any number of turns.

    ``alias`` tells several agents of an episode apart in ids and logs. ``resources``: whose cookies the receipt of the close may replace.
    ``token_capture`` adds the capture segment to the path of its turns. ``cookie_required``: a seed that sets no cookie is a failure.
    """

    alias: str = ""
    resources: ResourcesSession | None = None
    token_capture: bool = False
    cookie_required: bool = False
    receipt: AgentCloseResponse | None = None
    """What the close brought: observations, cookies. None until it has succeeded."""

    def __post_init__(self) -> None:
        self.session_id = self.session_id or f"agent-session-{self.alias}{'-' if self.alias else ''}{uuid.uuid4().hex}"

    async def open(self, tool_accesses: Sequence[ToolAccess] = (), sandbox_access: SandboxAccess | None = None) -> None:
        """Begin the session with these grants. Raises ParticipantError, stage ``agent``."""
        self._handle = self.episode.on_exit(f"agent session at {self.server.name}", self._close)
        with self._stage("agent"):
            request = AgentSeedRequest(
                agent_session_id=self.session_id,
                episode_id=self.episode.id,
                task_id=self.episode.task_id,
                tool_accesses=list(tool_accesses),
                sandbox_access=sandbox_access,
            )
            reply = await self._post(AGENT_SEED_PATH, request.model_dump(mode="json"))
            answer: AgentSeedResponse = _parse(AgentSeedResponse, reply)
            if answer.agent_session_id != self.session_id:
                raise ProtocolError(f"POST {reply.url}: the answer is for another session")
            self.cookies = reply.cookies
            if self.cookie_required and not self.cookies:
                raise ProtocolError(f"POST {reply.url}: the answer sets no session cookie")

    async def respond(self, params: ResponsesCreateParams | Mapping[str, Any], *, deadline: Deadline = UNBOUNDED) -> dict[str, Any]:
        """One turn: the agent's answer to these params, all its fields. An answer with status ``failed`` is an answer.

        ``deadline`` bounds this turn beside the episode's own. Raises ParticipantError, stage ``agent``.
        """
        path = rollout_path(self.episode.id.capture_key, RESPONSES_PATH, token_capture=self.token_capture)
        given = params.given_fields() if isinstance(params, ResponsesCreateParams) else dict(params)
        with self._stage("agent"):
            reply = await self._post(path, given, self.cookies, deadline)
            answer: ResponsesObject = _parse(ResponsesObject, reply)
        self.cookies = reply.cookies or self.cookies
        return answer.full()

    async def close(self) -> AgentCloseResponse:
        """Close now, within ``cleanup_timeout_seconds``, and return the receipt; the cleanup tries once more when this fails.
        Raises ParticipantError, stage ``cleanup``."""
        with self._stage("cleanup"):
            await self._registered().close()
        assert self.receipt is not None
        return self.receipt

    async def _close(self) -> None:
        request = AgentCloseRequest(agent_session_id=self.session_id, episode_id=self.episode.id)
        reply = await self._post(AGENT_CLOSE_PATH, request.model_dump(), self.cookies, closes=True)
        receipt: AgentCloseResponse = _parse(AgentCloseResponse, reply)
        if receipt.agent_session_id != self.session_id:
            raise ProtocolError(f"POST {reply.url}: the receipt is for another session")
        self.receipt = receipt
        if receipt.resources_cookies is not None and self.resources is not None:
            self.resources.cookies = receipt.resources_cookies
