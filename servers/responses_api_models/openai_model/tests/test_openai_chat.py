from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from openai_chat_answer import InvalidCompletionError, to_response
from openai_chat_request import ConversionError, to_chat_request

from gym_compose.wire.responses import ResponsesObject

TOOL = {"type": "function", "name": "add", "description": "d", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}", "id": None, "status": None}
USER = {"role": "user", "content": "q"}


def _reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


def _said(text: str) -> dict[str, Any]:
    return {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ("q", [USER]),
        (
            [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, USER],
            [{"role": "system", "content": "a\n\nb"}, USER],
        ),
        ([USER, {"role": "developer", "content": "later"}], [USER, {"role": "system", "content": "later"}]),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
            [{"role": "user", "content": "ab"}],
        ),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u", "detail": "low"}],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}],
                }
            ],
        ),
        (
            [
                USER,
                _reasoning("hm"),
                CALL,
                {**CALL, "call_id": "d"},
                {"type": "function_call_output", "call_id": "c", "output": "4"},
                _said("four"),
            ],
            [
                USER,
                {
                    "role": "assistant",
                    "content": "<think>hm</think>",
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                        {"id": "d", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "4"},
                {"role": "assistant", "content": "four"},
            ],
        ),
        ([USER, _said("a"), _said("b")], [USER, {"role": "assistant", "content": "ab"}]),
        ([USER, _reasoning("only")], [USER, {"role": "assistant", "content": "<think>only</think>"}]),
    ],
)
def test_input_becomes_messages(given: Any, messages: list[Any]) -> None:
    assert to_chat_request({"input": given})["messages"] == messages


def test_instructions_come_first_in_the_one_system_message() -> None:
    body = to_chat_request({"input": [{"role": "system", "content": "b"}, USER], "instructions": "a"})
    assert body["messages"][0] == {"role": "system", "content": "a\n\nb"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"max_output_tokens": 5, "temperature": 0.0, "top_p": 0.5}, {"max_tokens": 5, "temperature": 0.0, "top_p": 0.5}),
        ({"reasoning": {"effort": "low", "summary": None}}, {"reasoning_effort": "low"}),
        (
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
        ),
        ({"text": {"format": {"type": "text"}}}, {}),
        (
            {"tools": [TOOL], "parallel_tool_calls": False, "tool_choice": {"type": "function", "name": "add"}},
            {
                "tools": [
                    {"type": "function", "function": {"name": "add", "description": "d", "parameters": {"type": "object"}, "strict": True}}
                ],
                "parallel_tool_calls": False,
                "tool_choice": {"type": "function", "function": {"name": "add"}},
            },
        ),
        ({"tools": [], "parallel_tool_calls": True, "tool_choice": "auto"}, {}),
        ({"metadata": {"extra_body": '{"seed": 3}', "k": "v"}}, {"seed": 3}),
        ({"top_logprobs": 2}, {"top_logprobs": 2, "logprobs": True}),
    ],
)
def test_parameters_are_renamed(params: dict[str, Any], expected: dict[str, Any]) -> None:
    body = to_chat_request({"input": "q", **params})
    assert {name: value for name, value in body.items() if name != "messages"} == expected


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"background": True}, "background"),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["x"]}, "include"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "defer_loading"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp"}}, "mcp"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{**USER, "phase": "commentary"}]}, "phase"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input_file"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input_image"),
        ({"input": [{"role": "system", "content": [{"type": "input_image", "image_url": "u"}]}]}, "input_image"),
    ],
)
def test_what_chat_cannot_say_is_refused_by_name(params: dict[str, Any], named: str) -> None:
    with pytest.raises(ConversionError, match=named):
        to_chat_request({"input": "q", **params})


@pytest.mark.parametrize("extra", ["{", "[]"])
def test_an_extra_body_that_is_no_object_is_refused(extra: str) -> None:
    with pytest.raises(ValueError, match=r"metadata\.extra_body is not"):
        to_chat_request({"input": "q", "metadata": {"extra_body": extra}})


def _ids() -> Any:
    numbers = count()
    return lambda: str(next(numbers))


def _completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}}
    return {"id": "c", "created": 7, "model": "m", "choices": [{"message": message, "finish_reason": finish}], "usage": usage}


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        ({"content": "hi"}, ["message"]),
        ({"content": None}, ["message"]),
        (
            {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]},
            ["function_call"],
        ),
        ({"content": "hi", "reasoning_content": "hm"}, ["reasoning", "message"]),
        ({"content": None, "refusal": "no"}, ["message"]),
    ],
)
def test_an_answer_becomes_a_valid_responses_object(message: dict[str, Any], kinds: list[str]) -> None:
    params = {"input": "q", "temperature": 0.5, "tools": [TOOL], "tool_choice": "auto"}
    response = ResponsesObject.model_validate(to_response(_completion(message), params, _ids()))
    assert [item["type"] for item in response.output] == kinds
    assert (response.id, response.created_at, response.temperature, response.status) == ("resp_0", 7, 0.5, "completed")
    assert response.usage is not None
    assert response.usage["input_tokens_details"] == {"cached_tokens": 1}
    assert response.usage["output_tokens_details"] == {"reasoning_tokens": None}


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_off_answer_is_incomplete(finish: str, reason: str) -> None:
    response = to_response(_completion({"content": "h"}, finish), {}, _ids())
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": reason}


def test_thoughts_in_the_text_are_taken_out_when_asked() -> None:
    message = {"content": "<think>a</think>\n<think>b</think>answer"}
    parsed = to_response(_completion(message), {}, _ids(), parse_thoughts=True)["output"]
    assert [part["text"] for part in parsed[0]["summary"]] == ["a", "b"]
    assert parsed[1]["content"][0]["text"] == "answer"
    assert to_response(_completion(message), {}, _ids())["output"][0]["content"][0]["text"] == message["content"]


@pytest.mark.parametrize(
    "completion", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": {"tool_calls": [{"type": "custom"}]}}]}]
)
def test_what_is_no_completion_is_refused(completion: dict[str, Any]) -> None:
    with pytest.raises(InvalidCompletionError):
        to_response(completion, {}, _ids())
