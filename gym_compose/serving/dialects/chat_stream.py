"""Streaming ``/v1/chat/completions``: extensions dropped from the request, the completion replayed as chunks (contract-servers 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gym_compose.serving.dialects.errors import message_of, status_of
from gym_compose.serving.dialects.events import DONE, event
from gym_compose.wire.chat import EXTENSIONS, ChatCompletionCreateParams

Json = dict[str, Any]

_DROPPED: Final = EXTENSIONS | {"stream", "stream_options"}
_KEPT: Final = frozenset(ChatCompletionCreateParams.model_fields) - _DROPPED


def sanitised(body: Mapping[str, Any]) -> tuple[Json, bool]:
    """``body`` as a strict body is written, and whether the client asked for a chunk with the usage."""
    options = body.get("stream_options")
    wants_usage = bool(isinstance(options, dict) and options.get("include_usage"))
    return {name: value for name, value in body.items() if name in _KEPT}, wants_usage


def completion_events(completion: Json, *, with_usage: bool) -> Iterator[bytes]:
    """A whole completion as chunks: role, reasoning, content, refusal, calls, finish for each choice; the usage; ``[DONE]``."""
    head: Json = {"id": completion.get("id"), "object": "chat.completion.chunk"}
    head |= {name: completion.get(name) for name in ("created", "model")}
    if completion.get("system_fingerprint") is not None:
        head["system_fingerprint"] = completion["system_fingerprint"]
    for index, choice in enumerate(completion.get("choices") or ()):
        for delta in _deltas(choice.get("message") or {}):
            yield event({**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]})
        yield event({**head, "choices": [{"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}]})
    if with_usage and completion.get("usage") is not None:
        yield event({**head, "choices": [], "usage": completion["usage"]})
    yield DONE


def _deltas(message: Mapping[str, Any]) -> Iterator[Json]:
    yield {"role": message.get("role") or "assistant"}
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        yield {"reasoning_content": reasoning}
    for name in ("content", "refusal"):
        if message.get(name):
            yield {name: message[name]}
    if message.get("tool_calls"):
        yield {"tool_calls": [_call(index, call) for index, call in enumerate(message["tool_calls"])]}


def _call(index: int, call: Mapping[str, Any]) -> Json:
    function = call.get("function") or {}
    return {
        "index": index,
        "id": call.get("id"),
        "type": call.get("type") or "function",
        "function": {"name": function.get("name"), "arguments": function.get("arguments") or ""},
    }


def failure_events(error: Exception) -> Iterator[bytes]:
    """A failure after the answer's head is gone."""
    status = status_of(error)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    yield event({"error": {"message": f"HTTP {status}: {message_of(error)}", "type": kind, "code": status}}, "error")
