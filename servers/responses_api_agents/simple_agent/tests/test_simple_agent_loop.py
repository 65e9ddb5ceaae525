from __future__ import annotations

import json
from typing import Any

import pytest
from simple_agent_loop import Loop

from gym_compose.wire.items import JsonObject
from gym_compose.wire.responses import ResponsesObject

USER: JsonObject = {"role": "user", "content": "q"}


def _message(text: str = "done") -> JsonObject:
    return {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _call(name: str = "add", arguments: str = '{"a": 1}', call_id: str = "c1") -> JsonObject:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _answer(*output: JsonObject, cached: int | None = 1, **fields: Any) -> ResponsesObject:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    basics = {
        "id": "r",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return ResponsesObject.model_validate({**basics, "output": list(output), "usage": usage, **fields})


class Script:
    """A model that says its lines, and tools that say what they were asked."""

    def __init__(self, *answers: ResponsesObject) -> None:
        self.answers = list(answers)
        self.conversations: list[list[JsonObject]] = []
        self.calls: list[tuple[str, Any]] = []

    async def ask(self, conversation: list[JsonObject], /) -> ResponsesObject:
        self.conversations.append(conversation)
        return self.answers.pop(0)

    async def call_tool(self, name: str, arguments: Any, /) -> str:
        self.calls.append((name, arguments))
        return f"out of {name}"


async def _run(script: Script, **options: Any) -> ResponsesObject:
    return await Loop(**options).run([USER], script.ask, script.call_tool)


async def test_a_message_ends_the_loop() -> None:
    script = Script(_answer(_message()))
    response = await _run(script)
    assert [item["type"] for item in response.output] == ["message"]
    assert script.conversations == [[USER]]


async def test_tool_outputs_follow_all_calls_of_a_turn_and_go_to_the_next() -> None:
    script = Script(_answer(_call("a", call_id="1"), _call("b", "{}", call_id="2")), _answer(_message()))
    response = await _run(script)
    assert [(item["type"], item.get("call_id")) for item in response.output] == [
        ("function_call", "1"),
        ("function_call", "2"),
        ("function_call_output", "1"),
        ("function_call_output", "2"),
        ("message", None),
    ]
    assert script.calls == [("a", {"a": 1}), ("b", {})]
    assert script.conversations[1] == [USER, *response.output[:4]]


async def test_usage_is_summed_and_an_unknown_detail_makes_the_sum_unknown() -> None:
    response = await _run(Script(_answer(_call()), _answer(_call()), _answer(_message())))
    assert response.usage == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 15,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 45,
    }
    response = await _run(Script(_answer(_call()), _answer(_message(), cached=None)))
    assert response.usage is not None
    assert response.usage["input_tokens_details"] == {"cached_tokens": None}


async def test_the_object_is_that_of_the_last_turn() -> None:
    response = await _run(Script(_answer(_call(), id="first"), _answer(_message(), id="last", created_at=9)))
    assert (response.id, response.created_at) == ("last", 9)


@pytest.mark.parametrize("arguments", ["{", "", "not json"])
async def test_arguments_that_are_not_json_reach_no_tool(arguments: str) -> None:
    script = Script(_answer(_call(arguments=arguments)), _answer(_message()))
    response = await _run(script)
    assert script.calls == []
    assert json.loads(response.output[1]["output"])["error"].startswith("Invalid tool call arguments: JSONDecodeError(")


async def test_an_incomplete_answer_ends_the_loop_before_its_tools() -> None:
    script = Script(_answer(_call(), incomplete_details={"reason": "max_output_tokens"}))
    response = await _run(script)
    assert script.calls == []
    assert [item["type"] for item in response.output] == ["function_call"]


@pytest.mark.parametrize(("steps", "asked"), [(1, 1), (2, 2), (None, 3), (0, 3)])
async def test_max_steps_bounds_the_turns(steps: int | None, asked: int) -> None:
    script = Script(_answer(_call()), _answer(_call()), _answer(_message()))
    response = await _run(script, max_steps=steps)
    assert len(script.conversations) == asked
    assert response.output[-1]["type"] == ("message" if asked == 3 else "function_call_output")


async def test_without_execution_calls_stay_unanswered() -> None:
    script = Script(_answer(_call()))
    response = await _run(script, execute_tools=False)
    assert script.calls == []
    assert [item["type"] for item in response.output] == ["function_call"]


@pytest.mark.parametrize(
    ("output", "reason"), [([], "empty_output"), ([{"type": "reasoning", "id": "r", "summary": []}], "incomplete_reasoning")]
)
async def test_a_turn_that_says_nothing_is_incomplete(output: list[JsonObject], reason: str) -> None:
    response = await _run(Script(_answer(*output, metadata={"k": "v"})))
    assert response.status == "incomplete"
    assert response.metadata is not None
    assert response.metadata["k"] == "v"
    assert response.metadata["ng_termination_reason"] == reason
