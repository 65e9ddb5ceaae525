"""A model plays the user, another is the assistant: an episode of two agents (contract-data 2.8; docs/usersim.md)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator
from usersim_conversation import Conversation, Rules, invocation
from usersim_input import UserSimInput, non_empty_words

from gym_compose.serving import (
    AgentParticipant,
    AgentServerReference,
    EnvironmentServer,
    EnvironmentServerConfig,
    Episode,
    HandledEpisodeError,
    ParticipantError,
    ResourcesServerReference,
    ResourcesSession,
)
from gym_compose.wire.episodes import EpisodeFailure
from gym_compose.wire.items import JsonObject
from gym_compose.wire.responses import ResponsesObject
from gym_compose.wire.run_body import AGENT_OBSERVATIONS

# Statuses that say "ask again" or "no such session": faults of the way, not of what the agent was asked (contract-data 2.8).
_NOT_THE_AGENTS_FAULT = frozenset({404, 408, 409, 425, 429})
_SESSION_LOST = frozenset({404, 409})


class UserSimConfig(EnvironmentServerConfig):
    """No ``agent_server``: the server fronts two agents, and a record is attributed to none (contract-data 1.5)."""

    resources_server: ResourcesServerReference
    user_agent: AgentServerReference
    assistant_agent: AgentServerReference
    resources_tool_transports: list[Literal["direct_http", "mcp"]] = Field(default_factory=list)
    """Grants for the assistant; the user has no tools."""
    actor_call_timeout_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    max_turns: int = Field(default=10, gt=0)
    """Messages of the user that are answered, at most; a task may ask for fewer."""
    user_stop_words: tuple[str, ...] = ("###STOP###",)
    opening_prompt: str = Field(default="You are connected to the assistant. Write your first message.", min_length=1)
    """What makes the user's model begin when the task fixes no first message."""

    @field_validator("user_stop_words")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return non_empty_words(value)


class UserSimEnvironmentServer(EnvironmentServer):
    """Seed, two agent sessions, the conversation, both closes (assistant first), verdict, close: in this order (contract-data 2.8)."""

    config: UserSimConfig
    task_input = UserSimInput

    async def run(self, episode: Episode[Any]) -> JsonObject:
        config, task = self.config, episode.task_input
        resources = self.resources_session(episode, config.resources_server)
        # The receipt of an agent without a grant holds no cookies: it must not take those of the resources session away.
        holder = resources if config.resources_tool_transports else None
        user = self.agent_session(episode, config.user_agent, alias="user_model", cookie_required=True, token_capture=False)
        assistant = self.agent_session(episode, config.assistant_agent, alias="assistant_model", resources=holder, cookie_required=True)
        seed = await resources.open(task.task_data)
        await user.open()
        await assistant.open(resources.grants(seed, config.resources_tool_transports), seed.sandbox_access)
        conversation = self._conversation(task)
        invocations = await self._talk(episode, conversation, user, assistant)
        await _closed(assistant)
        await _closed(user)
        response = conversation.response(episode.id.capture_key)
        params = task.responses_create_params.given_fields()
        result = await resources.verify({**task.task_data, "responses_create_params": params, "response": response})
        await _closed(resources)
        result["invocations"] = invocations
        receipt = assistant.receipt
        if receipt is not None and receipt.agent_observations is not None:
            result[AGENT_OBSERVATIONS] = receipt.agent_observations
        return result

    def _conversation(self, task: UserSimInput) -> Conversation:
        config, plan = self.config, task.plan
        rules = Rules(
            max_turns=min(config.max_turns, plan.max_turns or config.max_turns),
            user_stop_words=config.user_stop_words,
            assistant_stop_words=plan.assistant_stop_words,
            end_tools=plan.end_tools,
        )
        return Conversation(task.responses_create_params, plan, rules, config.opening_prompt)

    async def _talk(
        self, episode: Episode[Any], conversation: Conversation, user: AgentParticipant, assistant: AgentParticipant
    ) -> list[JsonObject]:
        """Both in turn until one of them ends it; returns the calls that were made. Raises ParticipantError."""
        made: list[JsonObject] = []
        opening = conversation.plan.user.opening
        while conversation.stop is None:
            turn = conversation.turns + 1
            if opening is not None:
                conversation.say_as_user(opening)
                opening = None
            else:
                said = await self._ask(user, conversation.user_params(), episode)
                made.append(invocation("user", turn, said))
                text = ResponsesObject.model_validate(said).output_text()
                if not text.strip():
                    raise _user_failed(f"the user's model said nothing in turn {turn} (status {said.get('status')})")
                conversation.say_as_user(text)
            if conversation.stop is not None:
                if not conversation.turns:
                    raise _user_failed("the user ended the conversation before the assistant had said anything")
                break
            try:
                answer = await self._ask(assistant, conversation.assistant_params(), episode)
            except ParticipantError as error:
                if not _is_own_fault(error):
                    raise
                conversation.fail(error.failure.failure_reason)
                break
            made.append(invocation("assistant", turn, answer))
            conversation.say_as_assistant(ResponsesObject.model_validate(answer))
        return made

    async def _ask(self, agent: AgentParticipant, params: JsonObject, episode: Episode[Any]) -> JsonObject:
        seconds = self.config.actor_call_timeout_seconds
        deadline = episode.deadline.within(seconds, f"an answer of {agent.server.name}")
        try:
            return await agent.respond(params, deadline=deadline)
        except ParticipantError as error:
            if error.status not in _SESSION_LOST:
                raise
            lost = error.failure.model_copy(update={"terminal": False, "failure_kind": "session_lost"})
            raise HandledEpisodeError(lost) from error


async def _closed(session: AgentParticipant | ResourcesSession) -> None:
    """Close now: this protocol answers when everybody is released. What could not be is the end of the episode, verdict or not."""
    try:
        await session.close()
    except ParticipantError as error:
        final = error.failure.model_copy(update={"terminal": True, "failure_kind": "session_release_failed"})
        raise HandledEpisodeError(final) from error


def _is_own_fault(error: ParticipantError) -> bool:
    """An answer of the assistant that refuses what it was asked: scored as its failure, not as one of the infrastructure."""
    status = error.status
    return status is not None and 400 <= status < 500 and status not in _NOT_THE_AGENTS_FAULT


def _user_failed(reason: str) -> HandledEpisodeError:
    """The simulator's fault: there is nothing to judge the assistant by, and another sample of the user may do better."""
    return HandledEpisodeError(EpisodeFailure(failure_reason=reason, terminal=False, stage="agent", failure_kind="agent_run_error"))


if __name__ == "__main__":
    UserSimEnvironmentServer.run_webserver()
