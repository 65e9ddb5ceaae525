"""What a server is built from: base classes of the four server types, sessions, episodes, the client, the in-container launcher.

A server directory holds an ``app.py`` that subclasses one of the bases and ends in ``if __name__ == "__main__": MyServer.run_webserver()``:

    from pydantic import BaseModel
    from gym_compose.serving import Call, ResourcesServer, ResourcesServerConfig, Verdict, VerifyRequest, tool

    class Weather(BaseModel):
        city: str

    class WeatherVerify(VerifyRequest):            # declares the row fields that /verify needs and echoes
        expected_count: int = 1

    class WeatherServer(ResourcesServer):
        config: ResourcesServerConfig              # or a subclass: the fields of the server's config block
        verify_model = WeatherVerify

        @tool                                      # POST /get_weather; @tool("name") for another name
        async def get_weather(self, body: Weather, call: Call) -> dict[str, str]:
            return {"city": body.city}             # a mapping, a pydantic model, text, bytes (JSON) or a starlette Response

        async def verify(self, body: WeatherVerify, call: Call) -> Verdict:
            calls = [item for item in body.response.output if item["type"] == "function_call"]
            return Verdict(reward=float(len(calls) == body.expected_count))

An agent calls its peers by the reference in its config:

        reply = await self.client.post(self.config.model_server, "/v1/responses", json=params.given_fields(), cookies=cookies)
        reply.raise_for_status()
        answer, cookies = reply.json(), reply.cookies

Importing this package imports nothing; names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.serving.agent import AgentServer as AgentServer
    from gym_compose.serving.agent import AgentSession as AgentSession
    from gym_compose.serving.agent import RunRequest as RunRequest
    from gym_compose.serving.call import Call as Call
    from gym_compose.serving.client import HttpClient as HttpClient
    from gym_compose.serving.client import PeerError as PeerError
    from gym_compose.serving.client import PeerStatusError as PeerStatusError
    from gym_compose.serving.client import Reply as Reply
    from gym_compose.serving.client import ServerClient as ServerClient
    from gym_compose.serving.config import AgentServerConfig as AgentServerConfig
    from gym_compose.serving.config import AgentServerReference as AgentServerReference
    from gym_compose.serving.config import EnvironmentServerConfig as EnvironmentServerConfig
    from gym_compose.serving.config import ModelServerConfig as ModelServerConfig
    from gym_compose.serving.config import ModelServerReference as ModelServerReference
    from gym_compose.serving.config import ResourcesServerConfig as ResourcesServerConfig
    from gym_compose.serving.config import ResourcesServerReference as ResourcesServerReference
    from gym_compose.serving.config import ServerConfig as ServerConfig
    from gym_compose.serving.config import ServerReference as ServerReference
    from gym_compose.serving.endpoint import Endpoint as Endpoint
    from gym_compose.serving.endpoint import catch_all_tool as catch_all_tool
    from gym_compose.serving.endpoint import tool as tool
    from gym_compose.serving.environment import EnvironmentServer as EnvironmentServer
    from gym_compose.serving.episode import Episode as Episode
    from gym_compose.serving.episode import HandledEpisodeError as HandledEpisodeError
    from gym_compose.serving.errors import HTTPError as HTTPError
    from gym_compose.serving.errors import JudgeError as JudgeError
    from gym_compose.serving.model import ModelServer as ModelServer
    from gym_compose.serving.participants import AgentParticipant as AgentParticipant
    from gym_compose.serving.participants import ParticipantError as ParticipantError
    from gym_compose.serving.participants import ResourcesSession as ResourcesSession
    from gym_compose.serving.resources import ResourcesServer as ResourcesServer
    from gym_compose.serving.resources import Verdict as Verdict
    from gym_compose.serving.resources import VerifyRequest as VerifyRequest
    from gym_compose.serving.server import Server as Server
    from gym_compose.serving.turn import SingleAgentTurn as SingleAgentTurn
    from gym_compose.serving.turn import SingleAgentTurnConfig as SingleAgentTurnConfig
    from gym_compose.serving.turn import TurnInput as TurnInput

_HOMES = {
    "agent": ("AgentServer", "AgentSession", "RunRequest"),
    "call": ("Call",),
    "client": ("HttpClient", "PeerError", "PeerStatusError", "Reply", "ServerClient"),
    "config": (
        "AgentServerConfig",
        "AgentServerReference",
        "EnvironmentServerConfig",
        "ModelServerConfig",
        "ModelServerReference",
        "ResourcesServerConfig",
        "ResourcesServerReference",
        "ServerConfig",
        "ServerReference",
    ),
    "endpoint": ("Endpoint", "catch_all_tool", "tool"),
    "environment": ("EnvironmentServer",),
    "episode": ("Episode", "HandledEpisodeError"),
    "errors": ("HTTPError", "JudgeError"),
    "model": ("ModelServer",),
    "participants": ("AgentParticipant", "ParticipantError", "ResourcesSession"),
    "resources": ("ResourcesServer", "Verdict", "VerifyRequest"),
    "server": ("Server",),
    "turn": ("SingleAgentTurn", "SingleAgentTurnConfig", "TurnInput"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
