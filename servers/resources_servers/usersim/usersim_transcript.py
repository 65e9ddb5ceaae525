"""A conversation as its environment server hands it over: one Responses object with both sides in ``output``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gym_compose.wire.responses import ResponsesObject

STOP_KEY = "usersim_stop"
ERROR_KEY = "usersim_error"


@dataclass
class Message:
    """What one side said in a turn; ``tools`` are the calls that the assistant made before it, by name."""

    turn: int
    role: str
    text: str
    tools: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"turn": self.turn, "role": self.role, "text": self.text, **({"tools": self.tools} if self.tools else {})}


@dataclass(frozen=True)
class Transcript:
    """The messages in order. A turn begins with a message of the user; ``turns`` are those that the assistant answered."""

    messages: tuple[Message, ...]
    stop: str
    error: str | None
    output: tuple[dict[str, Any], ...]

    @property
    def turns(self) -> int:
        return len({message.turn for message in self.messages if message.role == "assistant"})

    def said_by_assistant(self) -> list[str]:
        return [message.text for message in self.messages if message.role == "assistant"]

    @classmethod
    def of(cls, response: ResponsesObject) -> Transcript:
        """Several messages and calls of the assistant in one turn are one message. ``stop`` is ``unknown`` where nobody says it."""
        messages: list[Message] = []
        for item in response.output:
            spoken = item["type"] == "message"
            role = item["role"] if spoken else "assistant"
            if role == "user":
                messages.append(Message(messages[-1].turn + 1 if messages else 1, "user", _text(item["content"])))
                continue
            if not messages or messages[-1].role != "assistant":
                messages.append(Message(messages[-1].turn if messages else 1, "assistant", ""))
            if spoken:
                messages[-1].text = "\n".join(filter(None, (messages[-1].text, _text(item["content"]))))
            elif item["type"] == "function_call":
                messages[-1].tools.append(item["name"])
        metadata = response.metadata or {}
        return cls(tuple(messages), metadata.get(STOP_KEY, "unknown"), metadata.get(ERROR_KEY), tuple(response.output))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
