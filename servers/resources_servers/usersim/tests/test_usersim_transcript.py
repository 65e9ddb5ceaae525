from __future__ import annotations

from typing import Any

from usersim_transcript import Transcript

from gym_compose.wire.responses import ResponsesObject

BASE = {"id": "r", "created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "m", "content": content}


def read(*output: dict[str, Any], **metadata: str) -> Transcript:
    return Transcript.of(ResponsesObject.model_validate({**BASE, "output": list(output), "metadata": metadata or None}))


def test_calls_and_messages_of_one_turn_are_one_message() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    thought = {"type": "reasoning", "id": "t", "summary": []}
    found = read(user("a"), thought, assistant("wait"), call, result, assistant("b"), user("c"), usersim_stop="user_stop")
    assert [message.as_json() for message in found.messages] == [
        {"turn": 1, "role": "user", "text": "a"},
        {"turn": 1, "role": "assistant", "text": "wait\nb", "tools": ["look"]},
        {"turn": 2, "role": "user", "text": "c"},
    ]
    assert (found.turns, found.stop, found.error) == (1, "user_stop", None)
    assert found.said_by_assistant() == ["wait\nb"]


def test_a_response_that_no_conversation_made_has_an_unknown_end() -> None:
    found = read(assistant("alone"))
    assert (found.stop, found.turns) == ("unknown", 1)
    assert read().messages == ()


def test_a_user_that_is_not_answered_counts_no_turn() -> None:
    found = read(user("a"), usersim_stop="assistant_error", usersim_error="why")
    assert (found.turns, found.stop, found.error) == (0, "assistant_error", "why")
