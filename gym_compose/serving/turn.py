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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gym_compose.serving.config import AgentServerReference, EnvironmentServerConfig, ResourcesServerReference
from gym_compose.serving.episode import Episode, HandledEpisodeError
from gym_compose.serving.participants import ParticipantError, Transport
from gym_compose.wire.episodes import SingleAgentTurnFailure
from gym_compose.wire.responses import ResponsesCreateParams
from gym_compose.wire.run_body import AGENT_OBSERVATIONS

if TYPE_CHECKING:
    from gym_compose.serving.environment import EnvironmentServer


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


class SingleAgentTurnConfig(EnvironmentServerConfig):
    """Block of an environment server that runs this protocol. ``resources_tool_transports``: how the agent is to reach the tools."""

    resources_server: ResourcesServerReference
    agent_server: AgentServerReference
    resources_tool_transports: list[Transport] = Field(default_factory=list)


@dataclass
class SingleAgentTurn:
    """The protocol, bound to the environment server that runs it, and to the resources server and the agent of a config."""

    environment: EnvironmentServer
    config: SingleAgentTurnConfig

    async def run(self, episode: Episode[TurnInput]) -> dict[str, Any]:
        """The verify answer, all its fields kept, with ``ng_agent_observations``. Raises HandledEpisodeError saying the stage; the failure
        holds the agent's answer as ``partial_response`` when there was one."""
        task = episode.task_input
        resources = self.environment.resources_session(episode, self.config.resources_server)
        agent = self.environment.agent_session(episode, self.config.agent_server, resources=resources)
        answer: dict[str, Any] | None = None
        try:
            seed = await resources.open(task.task_data)
            await agent.open(resources.grants(seed, self.config.resources_tool_transports), seed.sandbox_access)
            answer = await agent.respond(task.responses_create_params)
            receipt = await agent.close()
            given = task.responses_create_params.given_fields()
            result = await resources.verify({**task.task_data, "responses_create_params": given, "response": answer})
        except ParticipantError as error:
            raise HandledEpisodeError(SingleAgentTurnFailure(**error.failure.model_dump(), partial_response=answer)) from error
        resources.close_with_retry()
        result[AGENT_OBSERVATIONS] = receipt.agent_observations
        return result
