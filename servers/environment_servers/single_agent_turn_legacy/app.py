"""The episode of ``single_agent_turn`` behind the flat ``/run`` of an agent (contract-data 2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gym_compose.serving import EnvironmentServer, Episode, SingleAgentTurn, SingleAgentTurnConfig, TurnInput
from gym_compose.serving.endpoint import Endpoint, InvalidBody
from gym_compose.wire.episodes import EpisodeFailure, EpisodeRequest, MaterializedTask, SingleAgentTurnFailure
from gym_compose.wire.failures import ENVIRONMENT_SERVER_FAILED
from gym_compose.wire.flat_task import TASK_SOURCE, episode_of, task_id_of, task_input_of
from gym_compose.wire.run_body import (
    AGENT_OBSERVATIONS,
    AGENT_REF,
    FAILURE_CLASS,
    FAILURE_MESSAGE,
    FAILURE_PARTIAL_RESPONSE,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
)

Row = dict[str, Any]
_Request = EpisodeRequest[TurnInput]


class SingleAgentTurnLegacyEnvironmentServer(EnvironmentServer):
    """Takes flat rows, and episode requests too; the answer is flat either way."""

    config: SingleAgentTurnConfig
    task_input = TurnInput

    def setup(self) -> None:
        self._protocol = SingleAgentTurn(self, self.config)

    async def run(self, episode: Episode[Any]) -> Row:
        return await self._protocol.run(episode)

    def _run_endpoint(self) -> Endpoint:
        return Endpoint("POST", "/run", self._flat_route)

    async def _flat_route(self, body: Row) -> Row:
        """A row that belongs to another server, or has no identity, raises: a 500, and no record of this episode. Fields that do not fit
        are a 422."""
        try:
            request = _Request.model_validate(body) if "episode_id" in body and "task" in body else self._request_of(body)
        except ValidationError as error:
            raise InvalidBody(error) from None
        result, failure = await self.conduct(request)
        return self._flat(result, failure)

    def _request_of(self, row: Row) -> _Request:
        source = self._source_of(row)
        task = MaterializedTask[TurnInput](task_id=task_id_of(row, source), task_input=TurnInput.model_validate(task_input_of(row)))
        return _Request(episode_id=episode_of(row), task=task)

    def _source_of(self, row: Row) -> str:
        """The taskset: who declared the row's dataset. Raises ValueError when that is none of the instances that are bound here, or when
        the row names another agent."""
        config = self.config
        bound = (config.resources_server.name, config.agent_server.name, config.name)
        source = row.get(TASK_SOURCE, config.resources_server.name)
        if not isinstance(source, str) or source not in bound:
            raise ValueError(f"task_source {source!r} of the row is none of {', '.join(bound)}, which {config.name} is bound to")
        agent = row.get(AGENT_REF)
        name = agent.get("name") if isinstance(agent, Mapping) else agent
        if agent is not None and name != config.agent_server.name:
            raise ValueError(f"agent_ref {name!r} of the row is not {config.agent_server.name}, the agent of {config.name}")
        return source

    def _flat(self, result: Row | None, failure: EpisodeFailure | None) -> Row:
        agent = {"name": self.config.agent_server.name}
        if failure is not None:
            row: Row = {
                FAILURE_CLASS: ENVIRONMENT_SERVER_FAILED,
                FAILURE_TERMINAL: failure.terminal,
                FAILURE_MESSAGE: failure.failure_reason,
                FAILURE_STAGE: failure.stage,
                AGENT_REF: agent,
            }
            if isinstance(failure, SingleAgentTurnFailure) and failure.partial_response is not None:
                row[FAILURE_PARTIAL_RESPONSE] = failure.partial_response
            return row
        row = dict(result or {})
        if row.get(AGENT_OBSERVATIONS) is None:
            row.pop(AGENT_OBSERVATIONS, None)
        return {**row, AGENT_REF: agent}


if __name__ == "__main__":
    SingleAgentTurnLegacyEnvironmentServer.run_webserver()
