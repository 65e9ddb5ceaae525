from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from gym_compose.serving.dialects import ConversionError, InvalidModelAnswer, to_chat_request, to_response
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
        ("q", [{"role": "user", "content": [{"type": "text", "text": "q"}]}]),
        ([{"role": "developer", "content": "a"}, USER], [{"role": "developer", "content": "a"}, USER]),
        ([USER, {"role": "tool", "tool_call_id": "c", "content": "4"}], [USER, {"role": "tool", "tool_call_id": "c", "content": "4"}]),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{}"}}]}],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
                }
            ],
        ),
        (
            [{"role": "user", "content": [{"type": "input_video", "video_url": {"url": "u"}}]}],
            [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
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


def test_instructions_and_what_leads_are_one_system_message() -> None:
    lead = [{"role": "system", "content": "b"}, {"role": "developer", "content": [{"type": "input_text", "text": "c"}]}]
    body = to_chat_request({"input": [*lead, USER, lead[0]], "instructions": "a"})
    assert body["messages"] == [{"role": "system", "content": "a\n\nb\n\nc"}, USER, lead[0]]


def test_token_ids_of_earlier_answers_ride_along_when_asked() -> None:
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    given = {"input": [USER, {**_said("a"), **tokens}, USER]}
    assert to_chat_request(given, with_tokens=True)["messages"][1] == {"role": "assistant", "content": "a", **tokens}
    assert to_chat_request(given)["messages"][1] == {"role": "assistant", "content": "a"}


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
        ({"metadata": {"k": "v"}, "top_logprobs": 2, "model": "m"}, {"metadata": {"k": "v"}, "top_logprobs": 2, "model": "m"}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}},
            {
                "tools": [
                    {"type": "function", "function": {"name": "add", "description": "d", "parameters": {"type": "object"}, "strict": True}}
                ],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "add"}}]},
                },
            },
        ),
        (
            {"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "d"}}]},
            {
                "tools": [
                    {
                        "type": "custom",
                        "custom": {"name": "c", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "d"}}},
                    }
                ]
            },
        ),
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
        ({"input": [{**CALL, "namespace": "n"}]}, "namespace"),
        ({"text": {"format": {"type": "grammar"}}}, "grammar"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "original"}]}]}, "input_image"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]}, "input_image"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input_file"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input_image"),
    ],
)
def test_what_chat_cannot_say_is_refused_by_name(params: dict[str, Any], named: str) -> None:
    with pytest.raises(ConversionError, match=named):
        to_chat_request({"input": "q", **params})


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
    response = ResponsesObject.model_validate(to_response(_completion(message), params, ids=_ids()))
    assert [item["type"] for item in response.output] == kinds
    assert (response.id, response.created_at, response.temperature, response.status) == ("resp_0", 7, 0.5, "completed")
    assert response.usage is not None
    assert response.usage["input_tokens_details"] == {"cached_tokens": 1}
    assert response.usage["output_tokens_details"] == {"reasoning_tokens": None}


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_off_answer_is_incomplete(finish: str, reason: str) -> None:
    response = to_response(_completion({"content": "h"}, finish), {}, ids=_ids())
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": reason}


def test_thoughts_in_the_text_are_taken_out_when_asked() -> None:
    message = {"content": "<think>a</think>\n<think>b</think>answer"}
    parsed = to_response(_completion(message), {}, parse_thoughts=True)["output"]
    assert [part["text"] for part in parsed[0]["summary"]] == ["a", "b"]
    assert parsed[1]["content"][0]["text"] == "\nanswer"
    assert to_response(_completion(message), {})["output"][0]["content"][0]["text"] == message["content"]
    only = to_response(_completion({"content": "<think>a</think>"}), {}, parse_thoughts=True)["output"]
    assert [item["type"] for item in only] == ["reasoning"]


def test_token_ids_stand_on_the_last_item() -> None:
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    message = {"content": "a", "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{}"}}], **tokens}
    output = to_response(_completion(message), {}, with_tokens=True)["output"]
    assert "prompt_token_ids" not in output[0]
    assert {name: output[1][name] for name in tokens} == tokens
    assert "prompt_token_ids" not in to_response(_completion(message), {})["output"][1]


@pytest.mark.parametrize(
    "completion", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": {"tool_calls": [{"type": "custom"}]}}]}]
)
def test_what_is_no_completion_is_refused(completion: dict[str, Any]) -> None:
    with pytest.raises(InvalidModelAnswer):
        to_response(completion, {})
