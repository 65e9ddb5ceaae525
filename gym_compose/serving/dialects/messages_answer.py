"""A Responses object as a message of the Messages API, whole or as the events of its stream (contract-servers 4.1)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gym_compose.serving.dialects.errors import ConversionError, InvalidModelAnswer, messages_error
from gym_compose.serving.dialects.events import event
from gym_compose.wire.responses import ResponsesObject

Json = dict[str, Any]

_STOPS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def to_message(response: ResponsesObject, model: str | None) -> Json:
    """The message keeps the response's id: whoever kept it can tell which answer it was. ``model`` is the name that the client asked for.

    Raises ConversionError for an item that a message cannot hold, InvalidModelAnswer for arguments that are no JSON object.
    """
    content: list[Json] = []
    for item in response.output:
        content.extend(_blocks(item))
    reason = (response.incomplete_details or {}).get("reason")
    stop = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    usage = response.usage or {}
    return {
        "id": response.id or f"msg_{uuid.uuid4().hex}",
        "content": content,
        "model": model or response.model,
        "role": "assistant",
        "stop_reason": _STOPS.get(str(reason), stop),
        "type": "message",
        "usage": {"input_tokens": usage.get("input_tokens", 0), "output_tokens": usage.get("output_tokens", 0)},
    }


def _blocks(item: Mapping[str, Any]) -> Iterator[Json]:
    match item["type"]:
        case "message":
            content = item["content"]
            for part in [{"type": "output_text", "text": content}] if isinstance(content, str) else content:
                if part.get("type") not in ("output_text", "refusal"):
                    raise ConversionError(f"a part of type {part.get('type')!r} has no place in a message")
                yield {"text": part["refusal"] if part["type"] == "refusal" else part["text"], "type": "text"}
        case "reasoning":
            for entry in item["summary"]:
                # A signature is required, and no open model gives one.
                yield {"signature": item.get("encrypted_content") or "", "thinking": entry["text"], "type": "thinking"}
        case "function_call":
            yield {"id": item["call_id"], "input": _input(item["arguments"]), "name": item["name"], "type": "tool_use"}
        case other:
            raise ConversionError(f"an output item of type {other!r} has no place in a message")


def _input(arguments: str) -> Json:
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise InvalidModelAnswer(f"the arguments of a tool call are not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise InvalidModelAnswer("the arguments of a tool call are not a JSON object")
    return parsed


def message_events(message: Json) -> Iterator[bytes]:
    """A whole message as the events of its stream."""
    yield _event("message_start", message={**message, "content": []})
    for index, block in enumerate(message["content"]):
        shell, delta = _stream_forms(block)
        yield _event("content_block_start", index=index, content_block=shell)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=stop, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield _event("message_stop")


def _stream_forms(block: Mapping[str, Any]) -> tuple[Json, Json]:
    """A block as it begins, and what is added to it."""
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        case "thinking":
            return {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": block["thinking"]}
    arguments = orjson.dumps(block["input"]).decode()
    return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": arguments}


def failure_events(error: Exception) -> Iterator[bytes]:
    """A failure after the answer's head is gone."""
    yield event(messages_error(error), "error")


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
