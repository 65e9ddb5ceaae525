"""A Responses request as a Chat Completions request (contract-servers 4.3).

What the chat dialect cannot say is refused, never dropped: ``ConversionError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

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
    "temperature",
    "top_p",
    "top_logprobs",
    "user",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})


class ConversionError(NotImplementedError):
    """A part of the request that Chat Completions have no word for."""


def to_chat_request(params: Mapping[str, Any]) -> Json:
    """``params`` holds the fields that the caller set. The result has no ``model``.

    ``metadata.extra_body``, a JSON object as text, goes into the body itself: that is how ``num_repeats_add_seed`` reaches an endpoint.
    Raises ConversionError; ValueError for an ``extra_body`` that is no JSON object.
    """
    for name in _REFUSED:
        if params.get(name):
            raise ConversionError(f"{name} cannot be sent through /v1/chat/completions")
    body: Json = {"messages": _messages(params.get("input"), params.get("instructions"))}
    for name in _SAME:
        if params.get(name) is not None:
            body[name] = params[name]
    if body.get("top_logprobs") is not None:
        body["logprobs"] = True
    if params.get("max_output_tokens") is not None:
        body["max_tokens"] = params["max_output_tokens"]
    body |= _reasoning(params.get("reasoning")) | _text(params.get("text")) | _tools(params)
    extra = (params.get("metadata") or {}).get("extra_body")
    if extra is not None:
        body |= _extra_body(extra)
    return body


def _extra_body(text: str) -> Json:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"metadata.extra_body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("metadata.extra_body is not a JSON object")
    return parsed


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
    form = text.get("format") or {}
    match form.get("type"):
        case "json_schema":
            schema = {name: form[name] for name in ("name", "description", "schema", "strict") if form.get(name) is not None}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        case "json_object":
            body["response_format"] = {"type": "json_object"}
    return body


def _tools(params: Mapping[str, Any]) -> Json:
    tools, choice = params.get("tools") or [], params.get("tool_choice")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise ConversionError("tool_choice forces a tool, but the request has no tools")
        return {}
    body: Json = {"tools": [_tool(tool) for tool in tools]}
    if params.get("parallel_tool_calls") is not None:
        body["parallel_tool_calls"] = params["parallel_tool_calls"]
    if isinstance(choice, str):
        body["tool_choice"] = choice
    elif isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind not in ("function", "custom"):
            raise ConversionError(f"a tool_choice of type {kind!r} cannot be sent through /v1/chat/completions")
        body["tool_choice"] = {"type": kind, kind: {"name": choice.get("name")}}
    return body


def _tool(tool: Mapping[str, Any]) -> Json:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise ConversionError(f"a tool of type {kind!r} cannot be sent through /v1/chat/completions")
    if tool.get("defer_loading"):
        raise ConversionError("defer_loading cannot be sent through /v1/chat/completions")
    fields = ("name", "description", "parameters", "strict") if kind == "function" else ("name", "description", "format")
    return {"type": kind, kind: {name: tool[name] for name in fields if tool.get(name) is not None}}


def _messages(given: object, instructions: str | None) -> list[Json]:
    items: Sequence[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or [])  # type: ignore[call-overload]
    lead = [instructions] if instructions else []
    start = 0
    while start < len(items) and _kind(items[start]) == "message" and items[start].get("role") in ("system", "developer"):
        lead.append(_plain_text(items[start]))
        start += 1
    messages: list[Json] = [{"role": "system", "content": "\n\n".join(lead)}] if lead else []
    builder = _Messages(messages)
    for item in items[start:]:
        builder.add(item)
    return builder.finish()


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "message")


class _Messages:
    """Collects messages; consecutive items of the assistant become one."""

    def __init__(self, messages: list[Json]) -> None:
        self._messages = messages
        self._assistant: Json | None = None
        self._thoughts: list[str] = []

    def add(self, item: Mapping[str, Any]) -> None:
        match _kind(item):
            case "message":
                self._add_message(item)
            case "reasoning":
                self._thoughts.append(_thought(item))
            case "function_call":
                call = {"id": item.get("call_id"), "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}
                self._turn().setdefault("tool_calls", []).append(call)
            case "function_call_output":
                self.finish()
                self._messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": _output_text(item.get("output"))})
            case other:
                raise ConversionError(f"an input item of type {other!r} cannot be sent through /v1/chat/completions")

    def _add_message(self, item: Mapping[str, Any]) -> None:
        if item.get("phase"):
            raise ConversionError("the phase of a message cannot be sent through /v1/chat/completions")
        role = item.get("role")
        if role == "assistant":
            turn = self._turn()
            for name, text in _assistant_texts(item):
                turn[name] = (turn.get(name) or "") + text
            return
        self.finish()
        if role == "user":
            self._messages.append({"role": "user", "content": _user_content(item.get("content"))})
        else:
            self._messages.append({"role": "system", "content": _plain_text(item)})

    def _turn(self) -> Json:
        if self._assistant is None:
            self._assistant = {"role": "assistant", "content": None}
        if self._thoughts:
            thoughts = "".join(f"<think>{thought}</think>" for thought in self._thoughts)
            self._assistant["content"] = (self._assistant["content"] or "") + thoughts
            self._thoughts = []
        return self._assistant

    def finish(self) -> list[Json]:
        if self._thoughts:
            self._turn()
        if self._assistant is not None:
            self._messages.append(self._assistant)
            self._assistant = None
        return self._messages


def _thought(item: Mapping[str, Any]) -> str:
    parts = item.get("summary") or item.get("content") or []
    return "\n".join(str(part.get("text", "")) for part in parts)


def _assistant_texts(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    content = item.get("content")
    if isinstance(content, str):
        return [("content", content)]
    return [
        ("refusal", str(part.get("refusal", ""))) if part.get("type") == "refusal" else ("content", str(part.get("text", "")))
        for part in content or []
    ]


def _plain_text(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    texts = []
    for part in content or []:
        if part.get("type", "text") not in _TEXT_PARTS:
            raise ConversionError(f"a {part.get('type')} in a {item.get('role')} message cannot be sent through /v1/chat/completions")
        texts.append(str(part.get("text", "")))
    return "".join(texts)


def _user_content(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts = [_user_part(part) for part in content or []]  # type: ignore[attr-defined]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _user_part(part: Mapping[str, Any]) -> Json:
    kind = part.get("type", "text")
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "input_image" and part.get("image_url") and not part.get("file_id"):
        image = {"url": part["image_url"]} | ({"detail": part["detail"]} if part.get("detail") else {})
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and part.get("file_data") and not part.get("file_id"):
        file = {name: part[name] for name in ("filename", "file_data") if part.get(name)}
        return {"type": "file", "file": file}
    raise ConversionError(f"an {kind} by id or URL cannot be sent through /v1/chat/completions")


def _output_text(output: object) -> str:
    if isinstance(output, str):
        return output
    texts = []
    for part in output or []:  # type: ignore[attr-defined]
        if part.get("type", "text") not in _TEXT_PARTS:
            raise ConversionError(f"a {part.get('type')} in a tool's output cannot be sent through /v1/chat/completions")
        texts.append(str(part.get("text", "")))
    return "".join(texts)
