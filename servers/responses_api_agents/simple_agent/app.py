"""The reference agent: a loop of model and tools, alone (``/run``) or inside an episode (agent sessions). Contract-servers 3.2."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from simple_agent_loop import Loop

from gym_compose.serving import (
    AgentServer,
    AgentServerConfig,
    AgentSession,
    Call,
    ModelServerReference,
    ResourcesServerReference,
    RunRequest,
)
from gym_compose.serving.model import responses_object
from gym_compose.wire.episodes import AgentCloseResponse, AgentSeedRequest, DirectHTTPToolAccess
from gym_compose.wire.items import JsonObject
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

RESPONSES = "/v1/responses"
Cookies = dict[str, str]


class SimpleAgentConfig(AgentServerConfig):
    resources_server: ResourcesServerReference | None = None
    model_server: ModelServerReference
    max_steps: int | None = None
    execute_tools: bool = True


@dataclass
class SimpleAgentSession(AgentSession):
    """``access`` is where tools are called; ``cookies`` are those of the resources session, as its tools renew them. ``of_caller``: the
    caller granted it, so the cookies are of its resources session."""

    access: DirectHTTPToolAccess | None = None
    cookies: Cookies = field(default_factory=dict)
    of_caller: bool = False


class SimpleAgent(AgentServer):
    """One loop for each request; requests of one session share its resources cookies."""

    config: SimpleAgentConfig

    async def open_session(self, seed: AgentSeedRequest) -> SimpleAgentSession:
        if seed.sandbox_access is not None:
            raise ValueError("simple_agent cannot use a sandbox")
        accesses = self.tool_accesses(seed)
        required = [access.name for access in accesses if access.kind == "mcp" and access.required]
        if required:
            raise ValueError(f"simple_agent cannot use MCP, which {', '.join(required)} requires")
        direct = [access for access in accesses if isinstance(access, DirectHTTPToolAccess)]
        if len(direct) > 1:
            raise ValueError(
                f"simple_agent can use one direct HTTP grant, not {len(direct)}: {', '.join(access.name for access in direct)}"
            )
        access = direct[0] if direct else None
        cookies = dict(access.cookies) if access else {}
        return SimpleAgentSession(seed=seed, access=access, cookies=cookies, of_caller=access in seed.tool_accesses)

    async def close_session(self, session: AgentSession) -> AgentCloseResponse:
        assert isinstance(session, SimpleAgentSession)
        # The caller replaces the cookies of its resources session by these (contract-data 2.5). Without a grant of its own there are none
        # to hand back: null, where an empty mapping would take its session away before the verdict.
        cookies = session.cookies if session.of_caller else None
        return AgentCloseResponse(agent_session_id=session.seed.agent_session_id, resources_cookies=cookies)

    async def responses(self, params: ResponsesCreateParams, call: Call) -> ResponsesObject:
        session = self.agent_session(call)
        if session is not None:
            assert isinstance(session, SimpleAgentSession)
            tools: _Tools = _GrantedTools(self, session)
        else:
            if not self.config.execute_tools:
                raise ValueError("execute_tools: false is for agent sessions; this request belongs to none")
            tools = _ConfiguredTools(self, call)
        model = _Model(self, params, call)
        loop = Loop(max_steps=self.config.max_steps, execute_tools=self.config.execute_tools)
        response = await loop.run(params.items(), model.ask, tools.call)
        # Without a session the caller verifies with these cookies: those of the resources session, then the model's.
        for name, value in {**(tools.cookies if session is None else {}), **model.cookies}.items():
            call.set_cookie(name, value)
        return response

    async def run(self, body: RunRequest, call: Call) -> dict[str, Any] | bytes:
        resources = self.config.resources_server
        if resources is None:
            raise ValueError("/run needs a resources_server in the agent's config")
        if not self.config.execute_tools:
            raise ValueError("execute_tools: false is for agent sessions; /run executes tools")
        row = body.row()
        seeded = (await self.client.post(resources, "/seed_session", json=row, cookies=call.cookies)).raise_for_status()
        # The field's agent asks itself over HTTP here. What it would hear is this, one request later (docs/differences.md).
        inner = call.inner(seeded.cookies)
        row["response"] = (await self.responses(body.responses_create_params, inner)).full()
        if self.config.skip_verification:
            return {**row, "reward": self.config.skip_verification_reward, "verification_skipped": True}
        verified = (await self.client.post(resources, "/verify", json=row, cookies=inner.cookies_to_set)).raise_for_status()
        verdict = verified.json()
        if not isinstance(verdict, dict) or not isinstance(verdict.get("reward"), int | float):
            raise ValueError(f"{resources.name} answered /verify without a reward")
        return verified.body


class _Model:
    """The model's side of one loop. Its cookies go from call to call, no others are sent to it."""

    def __init__(self, agent: SimpleAgent, params: ResponsesCreateParams, call: Call) -> None:
        self._agent = agent
        self._params = params.given_fields()
        self._path = call.rollout_prefix + RESPONSES
        self.cookies: Cookies = {}

    async def ask(self, conversation: list[JsonObject], /) -> ResponsesObject:
        body = {**self._params, "input": conversation}
        reply = await self._agent.client.post(self._agent.config.model_server, self._path, json=body, cookies=self.cookies)
        self.cookies |= reply.raise_for_status().cookies
        return responses_object(reply.json())


class _Tools:
    """The tools' side of one loop: cookies that a tool sets are merged into those that the next one gets."""

    def __init__(self, agent: SimpleAgent) -> None:
        self._agent = agent
        self.cookies: Cookies = {}

    async def call(self, name: str, arguments: Any, /) -> str:
        raise NotImplementedError


class _ConfiguredTools(_Tools):
    """Legacy rollouts: the resources server of the config, with the cookies of the request."""

    def __init__(self, agent: SimpleAgent, call: Call) -> None:
        super().__init__(agent)
        self.cookies = dict(call.cookies)

    async def call(self, name: str, arguments: Any, /) -> str:
        resources = self._agent.config.resources_server
        if resources is None:
            raise RuntimeError(f"the model called tool {name!r}, and this agent has neither a resources_server nor an agent session")
        reply = await self._agent.client.post(resources, _path(name), json=_body(arguments), cookies=self.cookies)
        self.cookies |= reply.cookies
        return reply.text


class _GrantedTools(_Tools):
    """Agent sessions: the grant, and nothing that the config names, since only the grant belongs to this episode."""

    def __init__(self, agent: SimpleAgent, session: SimpleAgentSession) -> None:
        super().__init__(agent)
        self._session = session

    async def call(self, name: str, arguments: Any, /) -> str:
        session = self._session
        if session.access is None:
            raise RuntimeError(f"the model called tool {name!r}, and this agent session was granted no direct HTTP tools")
        url = str(session.access.base_url).rstrip("/") + _path(name)
        reply = await self._agent.client.http.request(
            "POST", url, json=_body(arguments), headers=session.access.headers, cookies=session.cookies
        )
        session.cookies |= reply.cookies
        return reply.text


def _path(name: str) -> str:
    """A model may call a tool anything; what would end the path is escaped."""
    return "/" + quote(name, safe="/")


def _body(arguments: Any) -> bytes:
    """By the standard library, which writes integers of any size, and null as a body of its own."""
    return json.dumps(arguments).encode()


if __name__ == "__main__":
    SimpleAgent.run_webserver()
