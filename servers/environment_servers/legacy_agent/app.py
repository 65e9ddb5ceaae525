"""A relay to one agent that conducts its rollouts itself (contract-data 2.7)."""

from __future__ import annotations

import logging

from pydantic import Field
from starlette.responses import Response

from gym_compose.serving import AgentServerReference, Call, Endpoint, EnvironmentServer, EnvironmentServerConfig
from gym_compose.serving.relay import relay

_log = logging.getLogger(__name__)
_LIMITS = ("max_concurrent_episodes", "queue_timeout_seconds", "default_episode_timeout_seconds", "cleanup_timeout_seconds")


class LegacyAgentConfig(EnvironmentServerConfig):
    """The four limits are accepted, because every environment server has them, and have no effect here."""

    agent_server: AgentServerReference
    default_episode_timeout_seconds: float | None = Field(default=21600.0, gt=0)
    cleanup_timeout_seconds: float = Field(default=180.0, gt=0)


class LegacyAgentEnvironmentServer(EnvironmentServer):
    """Neither reads nor limits what it hands on."""

    config: LegacyAgentConfig

    def setup(self) -> None:
        fields = LegacyAgentConfig.model_fields
        idle = [name for name in _LIMITS if getattr(self.config, name) != fields[name].default]
        if idle:
            _log.warning("%s: a relay does not enforce %s; the agent keeps its own limits", self.config.name, ", ".join(idle))

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/run", self._relay_run),
            Endpoint("POST", "/aggregate_metrics", self._aggregate_route),
        ]

    async def _relay_run(self, body: bytes, call: Call) -> Response:  # noqa: ARG002 - the relay takes the bytes from the call
        return await relay(self.client, self.config.agent_server, "/run", call)


if __name__ == "__main__":
    LegacyAgentEnvironmentServer.run_webserver()
