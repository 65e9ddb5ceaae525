"""One episode of one agent: seed, one turn, verdict (contract-data 2.5). The six calls are in ``gym_compose.serving.turn``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gym_compose.serving import (
    AgentServerReference,
    EnvironmentServer,
    EnvironmentServerConfig,
    Episode,
    ResourcesServerReference,
    SingleAgentTurn,
    TurnInput,
)


class SingleAgentTurnConfig(EnvironmentServerConfig):
    resources_server: ResourcesServerReference
    agent_server: AgentServerReference
    resources_tool_transports: list[Literal["direct_http", "mcp"]] = Field(default_factory=list)


class SingleAgentTurnEnvironmentServer(EnvironmentServer):
    """Materialized rows only: ``task_input`` holds ``responses_create_params`` and ``task_data``."""

    config: SingleAgentTurnConfig
    task_input = TurnInput

    def setup(self) -> None:
        config = self.config
        self._protocol = SingleAgentTurn.from_config(
            self.client, self.merged, config.resources_server, config.agent_server, tuple(config.resources_tool_transports)
        )

    async def run(self, episode: Episode[Any]) -> dict[str, Any]:
        return await self._protocol.run(episode)

    def metrics_server(self) -> ResourcesServerReference:
        return self.config.resources_server


if __name__ == "__main__":
    SingleAgentTurnEnvironmentServer.run_webserver()
