"""The six calls of one agent turn: seed, agent session, answer, agent close, verdict, resources close (contract-data 2.5).

| # | call                                   | on failure                                                                  |
|---|----------------------------------------|-----------------------------------------------------------------------------|
| 1 | resources ``/seed_session``            | stage ``seed``                                                              |
| 2 | agent ``/v1/agent_sessions``           | stage ``agent``                                                             |
| 3 | agent ``/ng-rollout/<key>/v1/responses`` | stage ``agent``                                                           |
| 4 | agent ``/v1/agent_sessions/close``     | stage ``cleanup``, no verdict; tried once more in the cleanup               |
| 5 | resources ``/verify``                  | stage ``verification``                                                      |
| 6 | resources ``/close_session``           | logged, tried once more; the verdict stands                                 |
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from gym_compose.serving.client import PeerError, Reference, Reply, ServerClient
from gym_compose.serving.config import first_block
from gym_compose.serving.episode import CleanupHandle, Episode, HandledEpisodeError
from gym_compose.serving.prefix import rollout_path
from gym_compose.wire.episodes import (
    AgentCloseRequest,
    AgentCloseResponse,
    AgentSeedRequest,
    AgentSeedResponse,
    DirectHTTPToolAccess,
    MCPConnection,
    MCPToolAccess,
    ResourcesCloseRequest,
    ResourcesSeedRequest,
    ResourcesSeedResponse,
    SingleAgentTurnFailure,
    ToolAccess,
)
from gym_compose.wire.failures import FailureStage, cut_reason
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject
from gym_compose.wire.run_body import AGENT_OBSERVATIONS

Transport = Literal["direct_http", "mcp"]


class TurnInput(BaseModel):
    """``task_input`` of a turn: strict params, and the task's data. Flat fields beside them are folded into ``task_data``; one that says
    something else there is a 422."""

    model_config = ConfigDict(extra="forbid")

    responses_create_params: ResponsesCreateParams
    task_data: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        flat = {key: entry for key, entry in value.items() if key not in ("responses_create_params", "task_data")}
        data = value.get("task_data", {})
        if not isinstance(data, dict):
            return value
        for key in flat.keys() & data.keys():
            if flat[key] != data[key]:
                raise ValueError(f"field {key!r} stands in task_data and beside it with different values")
        folded: dict[str, Any] = {"task_data": {**data, **flat}}
        if "responses_create_params" in value:
            folded["responses_create_params"] = value["responses_create_params"]
        return folded


class TurnError(Exception):
    """A peer answered, but not what the protocol asks for. Not retryable: it would do so again."""


def _retryable(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (isinstance(error, PeerError) and error.retryable)


def _parse(model: type[BaseModel], reply: Reply) -> Any:
    try:
        return model.model_validate_json(reply.raise_for_status().body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TurnError(f"{reply.method} {reply.url}: the answer is no {model.__name__} ({where}: {first['msg']})") from None


@dataclass
class SingleAgentTurn:
    """The protocol, bound to a resources server and an agent. ``token_capture`` adds the capture segment to the path of call 3."""

    client: ServerClient
    resources_server: Reference
    agent_server: Reference
    transports: tuple[Transport, ...] = ()
    token_capture: bool = False

    @classmethod
    def from_config(
        cls,
        client: ServerClient,
        merged: Mapping[str, Any],
        resources_server: Reference,
        agent_server: Reference,
        transports: tuple[Transport, ...],
    ) -> Self:
        """``token_capture`` as the merged config says it for that agent (contract-data 1.16)."""
        capture = merged.get("token_id_capture") or {}
        block = first_block(dict(merged), agent_server.name)
        wanted = isinstance(capture, dict) and bool(capture.get("enabled"))
        own = block is not None and bool(block[2].get("token_id_capture"))
        return cls(client, resources_server, agent_server, transports, wanted and (bool(capture.get("all_agents")) or own))

    async def run(self, episode: Episode[TurnInput]) -> dict[str, Any]:
        """The verify answer, all its fields kept, with ``ng_agent_observations``. Raises HandledEpisodeError saying the stage."""
        return await _Turn(self, episode).run()


@dataclass
class _Turn:
    """One run of the protocol: ids, cookies, and what the closes brought."""

    protocol: SingleAgentTurn
    episode: Episode[TurnInput]
    resources_session_id: str = field(default_factory=lambda: f"resources-session-{uuid.uuid4().hex}")
    agent_session_id: str = field(default_factory=lambda: f"agent-session-{uuid.uuid4().hex}")
    resources_cookies: dict[str, str] = field(default_factory=dict)
    agent_cookies: dict[str, str] = field(default_factory=dict)
    observations: dict[str, Any] | None = None
    partial: dict[str, Any] | None = None

    async def run(self) -> dict[str, Any]:
        stage: FailureStage = "seed"
        try:
            resources = self.episode.on_exit("resources session", self.close_resources)
            seed = await self.seed_resources()
            accesses = self.grants(seed)
            stage = "agent"
            agent = self.episode.on_exit("agent session", self.close_agent)
            await self.seed_agent(seed, accesses)
            answer = await self.ask_agent()
            stage = "cleanup"
            self.partial = answer
            await agent.close()
            stage = "verification"
            result = await self.verify(answer)
        except HandledEpisodeError:
            raise
        except Exception as error:
            raise self.failure(stage, error) from error
        self._retry_once(resources)
        result[AGENT_OBSERVATIONS] = self.observations
        return result

    def _retry_once(self, resources: CleanupHandle) -> None:
        # Cleanups run last first: this one, and if it fails the registered one once more. The verdict stands either way.
        self.episode.on_exit("resources session after the verdict", resources.close)

    def failure(self, stage: FailureStage, error: Exception) -> HandledEpisodeError:
        text = str(error) or type(error).__name__
        return HandledEpisodeError(
            SingleAgentTurnFailure(
                failure_reason=cut_reason(text),
                terminal=not _retryable(error),
                stage=stage,
                partial_response=self.partial if stage in ("cleanup", "verification") else None,
            )
        )

    async def _post(self, server: Reference, path: str, json: Any, cookies: Mapping[str, str] | None = None) -> Reply:
        return await self.protocol.client.post(server, path, json=json, cookies=cookies)

    async def seed_resources(self) -> ResourcesSeedResponse:
        request = ResourcesSeedRequest.model_construct(
            resources_session_id=self.resources_session_id,
            episode_id=self.episode.id,
            task_id=self.episode.task_id,
            task_data=self.episode.task_input.task_data,
        )
        reply = await self._post(self.protocol.resources_server, "/seed_session", request)
        reply.raise_for_status()
        self.resources_cookies = reply.cookies
        if not self.resources_cookies:
            raise TurnError(f"POST {reply.url}: the answer to the seed sets no session cookie")
        seed: ResourcesSeedResponse = _parse(ResourcesSeedResponse, reply)
        if seed.resources_session_id != self.resources_session_id:
            raise TurnError(f"POST {reply.url}: the answer to the seed is for another session")
        return seed

    def grants(self, seed: ResourcesSeedResponse) -> list[ToolAccess]:
        """How the agent reaches the tools. Raises TurnError when the resources server lacks a transport that the config asks for."""
        name = self.protocol.resources_server.name
        base_url = self.protocol.client.base_url(self.protocol.resources_server).rstrip("/")
        accesses: list[ToolAccess] = []
        if "direct_http" in self.protocol.transports:
            accesses.append(
                DirectHTTPToolAccess.model_validate(
                    {"name": f"{name}.direct_http", "required": True, "base_url": base_url, "cookies": self.resources_cookies}
                )
            )
        if "mcp" in self.protocol.transports:
            tools = seed.resources_tools
            if tools is None:
                raise TurnError(f"resources_tool_transports asks for mcp, and {name} serves no tools over MCP (expose_tools_over_mcp)")
            if tools.transport != "http":
                raise TurnError(f"{name} offers its tools over MCP transport {tools.transport!r}, which no agent here speaks")
            url = f"{base_url}/{tools.url_path.lstrip('/')}"
            connection = MCPConnection.model_validate({"url": url, "headers": tools.headers})
            accesses.append(MCPToolAccess(name=tools.server_name, required=True, connection=connection))
        return accesses

    async def seed_agent(self, seed: ResourcesSeedResponse, accesses: list[ToolAccess]) -> None:
        request = AgentSeedRequest(
            agent_session_id=self.agent_session_id,
            episode_id=self.episode.id,
            task_id=self.episode.task_id,
            tool_accesses=accesses,
            sandbox_access=seed.sandbox_access,
        )
        reply = await self._post(self.protocol.agent_server, "/v1/agent_sessions", request.model_dump(mode="json"))
        answer: AgentSeedResponse = _parse(AgentSeedResponse, reply)
        if answer.agent_session_id != self.agent_session_id:
            raise TurnError(f"POST {reply.url}: the answer is for another session")
        self.agent_cookies = reply.cookies

    async def ask_agent(self) -> dict[str, Any]:
        path = rollout_path(self.episode.id.capture_key, "/v1/responses", token_capture=self.protocol.token_capture)
        params = self.episode.task_input.responses_create_params.given_fields()
        reply = await self._post(self.protocol.agent_server, path, params, self.agent_cookies)
        answer: ResponsesObject = _parse(ResponsesObject, reply)
        self.agent_cookies = reply.cookies or self.agent_cookies
        return answer.full()

    async def close_agent(self) -> None:
        request = AgentCloseRequest(agent_session_id=self.agent_session_id, episode_id=self.episode.id)
        reply = await self._post(self.protocol.agent_server, "/v1/agent_sessions/close", request.model_dump(), self.agent_cookies)
        receipt: AgentCloseResponse = _parse(AgentCloseResponse, reply)
        if receipt.agent_session_id != self.agent_session_id:
            raise TurnError(f"POST {reply.url}: the receipt is for another session")
        self.observations = receipt.agent_observations
        if receipt.resources_cookies is not None:
            self.resources_cookies = receipt.resources_cookies

    async def verify(self, answer: dict[str, Any]) -> dict[str, Any]:
        body = {
            **self.episode.task_input.task_data,
            "responses_create_params": self.episode.task_input.responses_create_params.given_fields(),
            "response": answer,
        }
        reply = await self._post(self.protocol.resources_server, "/verify", body, self.resources_cookies)
        result = reply.raise_for_status().json()
        if not isinstance(result, dict) or isinstance(result.get("reward"), bool) or not isinstance(result.get("reward"), int | float):
            raise TurnError(f"POST {reply.url}: the verdict has no numeric reward")
        return result

    async def close_resources(self) -> None:
        request = ResourcesCloseRequest(resources_session_id=self.resources_session_id, episode_id=self.episode.id)
        reply = await self._post(self.protocol.resources_server, "/close_session", request.model_dump(), self.resources_cookies)
        reply.raise_for_status()
