"""One episode of one agent: seed, one turn, verdict (contract-data 2.5). The six calls are in ``gym_compose.serving.turn``."""

from __future__ import annotations

from typing import Any

from gym_compose.serving import EnvironmentServer, Episode, SingleAgentTurn, SingleAgentTurnConfig, TurnInput


class SingleAgentTurnEnvironmentServer(EnvironmentServer):
    """Materialized rows only: ``task_input`` holds ``responses_create_params`` and ``task_data``."""

    config: SingleAgentTurnConfig
    task_input = TurnInput

    def setup(self) -> None:
        self._protocol = SingleAgentTurn(self, self.config)

    async def run(self, episode: Episode[Any]) -> dict[str, Any]:
        return await self._protocol.run(episode)


if __name__ == "__main__":
    SingleAgentTurnEnvironmentServer.run_webserver()
