"""A Responses request as a Chat Completions request (contract-servers 4.3).

What the chat dialect cannot say is refused, never dropped: ``ConversionError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gym_compose.serving.dialects.chat_messages import to_messages
from gym_compose.serving.dialects.errors import ConversionError

Json = dict[str, Any]

_REFUSED = (
    "background",
    "context_management",
    "conversation",
    "include",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "truncation",
)
_SAME = (
    "model",
    "temperature",
    "top_p",
    "top_logprobs",
    "user",
    "store",
    "metadata",
    "moderation",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "stream_options",
)


def to_chat_request(params: Mapping[str, Any], *, with_tokens: bool = False) -> Json:
    """``params`` holds the fields that the caller set; null ones count as not set. ``with_tokens`` keeps the token ids that items of
    earlier answers carry. Raises ConversionError."""
    for name in _REFUSED:
        if params.get(name) is not None:
            raise ConversionError(f"{name} cannot be sent through /v1/chat/completions")
    body: Json = {"messages": to_messages(params.get("input"), params.get("instructions"), with_tokens=with_tokens)}
    for name in _SAME:
        if params.get(name) is not None:
            body[name] = params[name]
    if params.get("max_output_tokens") is not None:
        body["max_tokens"] = params["max_output_tokens"]
    return body | _reasoning(params.get("reasoning")) | _text(params.get("text")) | _tools(params)


def _reasoning(reasoning: Mapping[str, Any] | None) -> Json:
    if not reasoning:
        return {}
    unknown = sorted(name for name, value in reasoning.items() if name != "effort" and value is not None)
    if unknown:
        raise ConversionError(f"reasoning.{unknown[0]} cannot be sent through /v1/chat/completions")
    return {} if reasoning.get("effort") is None else {"reasoning_effort": reasoning["effort"]}


def _text(text: Mapping[str, Any] | None) -> Json:
    body: Json = {}
    if not text:
        return body
    if text.get("verbosity") is not None:
        body["verbosity"] = text["verbosity"]
    form = text.get("format") or {"type": "text"}
    match form.get("type"):
        case "json_schema":
            schema = {name: form[name] for name in ("name", "schema", "strict", "description") if form.get(name) is not None}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        case "json_object":
            body["response_format"] = {"type": "json_object"}
        case "text":
            pass
        case other:
            raise ConversionError(f"text.format of type {other!r} cannot be sent through /v1/chat/completions")
    return body


def _tools(params: Mapping[str, Any]) -> Json:
    tools, choice = params.get("tools") or [], _choice(params.get("tool_choice"))
    if not tools:
        if choice not in (None, "auto", "none"):
            raise ConversionError("tool_choice forces a tool, but the request has no tools")
        return {}
    body: Json = {"tools": [_tool(tool) for tool in tools]}
    if params.get("parallel_tool_calls") is not None:
        body["parallel_tool_calls"] = params["parallel_tool_calls"]
    if choice is not None:
        body["tool_choice"] = choice
    return body


def _choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = [_named(tool) for tool in choice.get("tools") or []]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}
    return _named(choice)


def _named(tool: Mapping[str, Any]) -> Json:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise ConversionError(f"a tool_choice of type {kind!r} cannot be sent through /v1/chat/completions")
    return {"type": kind, kind: {name: value for name, value in tool.items() if name != "type"}}


def _tool(tool: Mapping[str, Any]) -> Json:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise ConversionError(f"a tool of type {kind!r} cannot be sent through /v1/chat/completions")
    if tool.get("defer_loading"):
        raise ConversionError("defer_loading cannot be sent through /v1/chat/completions")
    if kind == "function":
        fields = ("name", "description", "parameters", "strict")
        return {"type": kind, kind: {name: tool[name] for name in fields if tool.get(name) is not None}}
    custom = {name: tool[name] for name in ("name", "description", "format") if tool.get(name) is not None}
    form = custom.get("format")
    if isinstance(form, Mapping) and form.get("type") == "grammar":
        custom["format"] = {"type": "grammar", "grammar": {name: value for name, value in form.items() if name != "type"}}
    return {"type": kind, kind: custom}
