"""Input items of a Responses request as the messages of a chat (contract-servers 4.3).

Consecutive items of the assistant become one message, thoughts in ``<think>…</think>`` before its text. Instructions and the system and
developer messages that lead become one system message, since many chat templates take one only, and only in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_compose.serving.dialects.errors import ConversionError
from gym_compose.wire.items import TOKEN_EXTRA, TOKEN_FIELDS

Json = dict[str, Any]

_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_LEADING = ("system", "developer")


def to_messages(given: Any, instructions: str | None = None, *, with_tokens: bool = False) -> list[Json]:
    """Messages of ``input`` (text or items). Raises ConversionError for what a chat has no word for."""
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    builder = _Messages(with_tokens)
    for item in given or ():
        builder.add(item)
    messages = builder.finish()
    if instructions:
        lead = [instructions]
        while messages and messages[0]["role"] in _LEADING:
            lead.append(_plain(messages.pop(0)["content"]))
        messages.insert(0, {"role": "system", "content": "\n\n".join(lead)})
    return messages


def think(texts: Sequence[str]) -> str:
    """Thoughts as a model writes them before its text; empty ones are left out."""
    return "".join(f"<think>{text}</think>" for text in texts if text)


class _Messages:
    """Collects messages; what the assistant says in a row is kept back until somebody else speaks."""

    def __init__(self, with_tokens: bool) -> None:
        self._messages: list[Json] = []
        self._with_tokens = with_tokens
        self._turn: Json | None = None
        self._tokens: Json = {}

    def add(self, item: Mapping[str, Any]) -> None:
        match item.get("type") or ("message" if item.get("role") else None):
            case "message":
                self._add_message(item)
            case "reasoning":
                self._say("content", think([str(entry.get("text", "")) for entry in item.get("summary") or ()]))
            case "function_call":
                if item.get("namespace") is not None:
                    raise ConversionError("the namespace of a function call cannot be sent through /v1/chat/completions")
                self._call(item.get("call_id"), item["name"], item["arguments"])
            case "function_call_output":
                self._tool_message(item.get("call_id"), _tool_content(item.get("output")))
            case other:
                raise ConversionError(
                    f"an input item of type {other!r} cannot be sent through /v1/chat/completions",
                )
        if self._with_tokens and TOKEN_FIELDS[0] in item and self._turn is not None:
            self._tokens = {name: item[name] for name in (*TOKEN_FIELDS, TOKEN_EXTRA) if item.get(name) is not None}

    def _add_message(self, item: Mapping[str, Any]) -> None:
        if item.get("phase") is not None:
            raise ConversionError("the phase of a message cannot be sent through /v1/chat/completions")
        role, content = item.get("role"), item.get("content")
        if role == "assistant":
            self._say("content", "")
            for name, text in _assistant_texts(content):
                self._say(name, text)
            for call in item.get("tool_calls") or ():  # items without a type may be messages of a chat
                self._call(call.get("id"), call["function"]["name"], call["function"]["arguments"])
        elif role == "tool":
            self._tool_message(item.get("tool_call_id"), content)
        elif role in ("user", "system", "developer"):
            self.finish()
            parts = content if isinstance(content, str) else [_part(part) for part in content or ()]
            self._messages.append({"content": parts, "role": role})
        else:
            raise ConversionError(f"a message of role {role!r} cannot be sent through /v1/chat/completions")

    def _say(self, name: str, text: str) -> None:
        if self._turn is None:
            self._turn = {"content": "", "refusal": "", "tool_calls": []}
        self._turn[name] += text

    def _call(self, call_id: Any, name: str, arguments: str) -> None:
        self._say("content", "")
        assert self._turn is not None
        self._turn["tool_calls"].append({"id": call_id, "function": {"arguments": arguments, "name": name}, "type": "function"})

    def _tool_message(self, call_id: Any, content: Any) -> None:
        self.finish()
        self._messages.append({"content": content, "role": "tool", "tool_call_id": call_id})

    def finish(self) -> list[Json]:
        """All messages so far; what the assistant was saying is said."""
        if self._turn is not None:
            message: Json = {"content": self._turn["content"] or None, "role": "assistant"}
            message |= {name: self._turn[name] for name in ("tool_calls", "refusal") if self._turn[name]}
            self._messages.append(message | self._tokens)
        self._turn, self._tokens = None, {}
        return self._messages


def _assistant_texts(content: Any) -> list[tuple[str, str]]:
    if content is None or isinstance(content, str):
        return [("content", content or "")]
    texts = []
    for part in content:
        found = [(name, part[key]) for key, name in (("text", "content"), ("refusal", "refusal")) if isinstance(part.get(key), str)]
        if not found:
            raise ConversionError(f"a {part.get('type')} in an assistant message cannot be sent through /v1/chat/completions")
        texts.extend(found)
    return texts


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _part(part: Mapping[str, Any]) -> Json:
    kind = part.get("type", "text")
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": part["text"]}
    if kind == "input_image" and part.get("image_url"):
        url, detail = _url(part["image_url"]), part.get("detail") or "auto"
        if url and detail != "original":
            return {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    if kind == "input_video":
        url = _url(part.get("video_url") or part.get("video"))
        if url:
            return {"type": "video_url", "video_url": {"url": url}}
    if kind == "input_file" and part.get("file_data") and not part.get("file_id"):
        return {"type": "file", "file": {name: part[name] for name in ("filename", "file_data") if part.get(name)}}
    raise ConversionError(f"an {kind} of this form (by id, or without its data) cannot be sent through /v1/chat/completions")


def _url(value: Any) -> Any:
    return value.get("url") if isinstance(value, Mapping) else value


def _tool_content(output: Any) -> Any:
    if not isinstance(output, list):
        return output
    for part in output:
        if part.get("type") != "input_text":
            raise ConversionError(f"a {part.get('type')} in a tool's output cannot be sent through /v1/chat/completions")
    return [{"type": "text", "text": part["text"]} for part in output]
