"""The Messages API to Responses and back (contract-servers 4.1, 8.36)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.serving.dialects import ConversionError, InvalidModelAnswer, to_message, to_responses_params
from gym_compose.serving.dialects.messages_answer import message_events
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

HEAD: dict[str, Any] = {"id": "resp_1", "created_at": 1, "model": "m", "object": "response"}
HEAD |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'}


def _response(*output: dict[str, Any], **fields: Any) -> ResponsesObject:
    return ResponsesObject.model_validate({**HEAD, "output": list(output), **fields})


TEXTS = [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]


def test_a_conversation_becomes_items_in_order() -> None:
    params = to_responses_params(
        {
            "model": "claude",
            "max_tokens": 9,
            "top_k": 4,
            "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
            "tools": [{"name": "add", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any"},
            "messages": [
                {"role": "user", "content": "q"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "text", "text": "now"},
                        {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "content": TEXTS},
                        {"type": "text", "text": "see"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    ],
                },
            ],
        }
    )  # fmt: skip
    ResponsesCreateParams.model_validate(params)
    assert params["instructions"] == "a\nb"
    assert (params["model"], params["max_output_tokens"], params["tool_choice"]) == ("claude", 9, "required")
    assert params["tools"][0]["strict"] is False
    kinds = [item["type"] for item in params["input"]]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output", "message"]
    assert params["input"][1]["encrypted_content"] == "s"
    assert params["input"][2]["content"] == "now"
    assert params["input"][3]["arguments"] == '{"a":1}'
    assert params["input"][4]["output"] == "1\n2"
    assert params["input"][5]["content"][1] == {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([{"type": "image", "source": {"type": "url", "url": "https://h/i.png"}}], "only base64"),
        ([{"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": ""}}], "image/tiff"),
        ([{"type": "document"}], "document"),
        ([{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "document"}]}], "document"),
        (["text"], "no request of the Messages API"),
        ([{"type": "tool_use"}], "no request of the Messages API"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name(content: Any, named: str) -> None:
    with pytest.raises(ConversionError, match=named):
        to_responses_params({"messages": [{"role": "user", "content": content}]})


def test_a_response_becomes_a_message_with_its_id() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]}
    message = to_message(_response(thought, said, CALL), "claude")
    assert message == {
        "id": "resp_1",
        "content": [
            {"signature": "", "thinking": "hm", "type": "thinking"},
            {"text": "hi", "type": "text"},
            {"id": "c", "input": {"a": 1}, "name": "add", "type": "tool_use"},
        ],
        "model": "claude",
        "role": "assistant",
        "stop_reason": "tool_use",
        "type": "message",
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    names = [line.split(b"\n")[0].removeprefix(b"event: ").decode() for line in message_events(message)]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", *block * 3, "message_delta", "message_stop"]


@pytest.mark.parametrize(("reason", "stop"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal")])
def test_a_cut_off_answer_says_why(reason: str, stop: str) -> None:
    assert to_message(_response(CALL, incomplete_details={"reason": reason}), None)["stop_reason"] == stop


@pytest.mark.parametrize("arguments", ["[]", "{"])
def test_arguments_that_are_no_object_are_an_error_of_the_model(arguments: str) -> None:
    with pytest.raises(InvalidModelAnswer):
        to_message(_response({**CALL, "arguments": arguments}), None)


def test_an_item_that_a_message_cannot_hold_is_refused() -> None:
    with pytest.raises(ConversionError, match="web_search_call"):
        to_message(_response({"type": "web_search_call", "id": "w"}), None)
