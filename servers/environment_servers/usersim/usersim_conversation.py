"""One conversation between a user and an assistant: what each of them sees, what was said, and when it is over. It knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from usersim_input import ConversationPlan

from gym_compose.wire.items import JsonObject
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject, add_usage

StopReason = Literal["user_stop", "assistant_stop", "end_tool", "max_turns", "assistant_error"]

STOP_KEY: Final = "usersim_stop"
"""Key of ``response.metadata`` that says why the conversation ended; the resources server reads it."""
ERROR_KEY: Final = "usersim_error"
_METADATA_LIMIT = 512
"""Characters of a metadata value, as the Responses API has it."""


@dataclass(frozen=True)
class Rules:
    """When a conversation is over. ``max_turns``: messages of the user that the assistant answers, at most."""

    max_turns: int
    user_stop_words: tuple[str, ...]
    assistant_stop_words: tuple[str, ...] = ()
    end_tools: tuple[str, ...] = ()


@dataclass
class Conversation:
    """Who said what. ``say_as_user`` and ``say_as_assistant`` take turns until ``stop`` is set.

    ``items`` are those of the assistant's conversation: the user's messages as input, its own output as it came, tools included. The user
    sees texts only, with the roles swapped, as it is a model too.
    """

    params: ResponsesCreateParams
    plan: ConversationPlan
    rules: Rules
    opening_prompt: str
    items: list[JsonObject] = field(default_factory=list)
    turns: int = 0
    stop: StopReason | None = None
    error: str | None = None
    _seen_by_user: list[JsonObject] = field(default_factory=list)
    _last: ResponsesObject | None = None
    _usage: JsonObject | None = None

    def __post_init__(self) -> None:
        if self.plan.user.opening is None:
            self._seen_by_user.append(_message("user", self.opening_prompt))

    def user_params(self) -> JsonObject:
        """The request for the user's next message: its instructions, then the conversation as it sees it."""
        seen = [_message("system", self.plan.user.instructions), *self._seen_by_user]
        return {**self.plan.role_request_params.get("user", {}), "input": seen}

    def assistant_params(self) -> JsonObject:
        """The request for the assistant's next answer: the row's params, those of its role, all that was said and done."""
        given = {**self.params.given_fields(), **self.plan.role_request_params.get("assistant", {})}
        return {**given, "input": [*self.params.items(), *self.items]}

    def say_as_user(self, text: str) -> None:
        """The user's next message. A stop word ends the conversation; what stands before it is still said, and is not answered."""
        said, stopped = _before_stop_word(text, self.rules.user_stop_words)
        if said:
            self.items.append(_message("user", said))
            self._seen_by_user.append(_message("assistant", said))
        if stopped:
            self.stop = "user_stop"

    def say_as_assistant(self, response: ResponsesObject) -> None:
        """The assistant's answer to the user's last message. One without a text is an error of the assistant."""
        self.turns += 1
        self.items.extend(response.output)
        self._last = response
        self._usage = add_usage(self._usage, response.usage)
        text = response.output_text().strip()
        if text:
            self._seen_by_user.append(_message("user", text))
        called = {call["name"] for call in response.function_calls()}
        if not called.isdisjoint(self.rules.end_tools):
            self.stop = "end_tool"
        elif not text:
            self.fail(f"the assistant said nothing in turn {self.turns} (status {response.status})")
        elif any(word in text for word in self.rules.assistant_stop_words):
            self.stop = "assistant_stop"
        elif self.turns >= self.rules.max_turns:
            self.stop = "max_turns"

    def fail(self, reason: str) -> None:
        """The assistant cannot go on, and that is its own fault: the conversation is over and will be judged as it is."""
        self.stop = "assistant_error"
        self.error = reason

    def response(self, episode: str) -> JsonObject:
        """The whole conversation as one Responses object, for the verdict and the record: the assistant's last one, with ``output`` (both
        sides, from the first message on), ``usage`` of all the assistant's turns and why it ended in ``metadata``. ``episode`` names it
        when the assistant never answered."""
        last = self._last
        base = _unanswered(episode) if last is None else last.full()
        metadata = {**(base.get("metadata") or {}), STOP_KEY: str(self.stop)}
        if self.error is not None:
            metadata[ERROR_KEY] = self.error[:_METADATA_LIMIT]
        return {**base, "output": list(self.items), "usage": self._usage, "metadata": metadata}


def invocation(role: str, turn: int, response: Mapping[str, Any]) -> JsonObject:
    """One call of an agent for the record, without the texts, which stand in the conversation. Turns count from 1."""
    return {"role": role, "turn": turn} | {key: response.get(key) for key in ("id", "model", "status", "usage")}


def _before_stop_word(text: str, words: Sequence[str]) -> tuple[str, bool]:
    places = [place for place in (text.find(word) for word in words) if place >= 0]
    return (text[: min(places)].strip(), True) if places else (text.strip(), False)


def _message(role: str, text: str) -> JsonObject:
    return {"type": "message", "role": role, "content": text}


def _unanswered(episode: str) -> JsonObject:
    return {
        "id": f"usersim-{episode}",
        "created_at": 0.0,
        "model": "none",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "failed",
    }
