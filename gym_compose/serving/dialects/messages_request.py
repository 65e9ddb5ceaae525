"""A request of the Messages API as a Responses request (contract-servers 4.1): images by base64 only, unknown blocks refused."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gym_compose.serving.dialects.errors import ConversionError

Json = dict[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SAME = {"model": "model", "max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p"}
_CHOICES = {"auto": "auto", "none": "none", "any": "required"}


def to_responses_params(body: Mapping[str, Any]) -> Json:
    """Fields that no backend here has (``top_k``, ``thinking``, ``cache_control``, …) are left out: clients send them with every request.

    Raises ConversionError for a block, an image or a tool choice that cannot be expressed, and for a body of the wrong shape.
    """
    try:
        params: Json = {"input": _items(body.get("messages") or [])}
        instructions = _instructions(body.get("system"))
        if instructions:
            params["instructions"] = instructions
        params |= {ours: body[theirs] for theirs, ours in _SAME.items() if body.get(theirs) is not None}
        tools = [_tool(tool) for tool in body.get("tools") or ()]
        if tools:
            params["tools"] = tools
        if body.get("tool_choice") is not None:
            params["tool_choice"] = _choice(body["tool_choice"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConversionError(f"the body is no request of the Messages API ({type(error).__name__}: {error})") from None
    return params


def _instructions(system: Any) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    return "\n".join(block["text"] for block in system if block.get("type") == "text" and block.get("text"))


def _items(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    items: list[Json] = []
    for message in messages:
        content = message.get("content", "")
        if isinstance(content, str):
            items.append(_message(message["role"], content))
        else:
            _add_blocks(message["role"], content, items)
    return items


def _message(role: str, content: Any) -> Json:
    return {"role": role, "content": content, "type": "message"}


def _add_blocks(role: str, blocks: Sequence[Mapping[str, Any]], items: list[Json]) -> None:
    """Texts and images in a row are one message, every other block is an item; the order stays."""
    parts: list[Json] = []

    def flush() -> None:
        if parts:
            alone = len(parts) == 1 and parts[0]["type"] == "input_text"
            items.append(_message(role, parts[0]["text"] if alone else list(parts)))
            parts.clear()

    for block in blocks:
        kind = block.get("type")
        if kind in ("text", "image"):
            parts.append(_part(block))
            continue
        flush()
        match kind:
            case "tool_use":
                arguments = orjson.dumps(block.get("input", {})).decode()
                call = {"arguments": arguments, "call_id": block["id"], "name": block["name"], "type": "function_call"}
                items.append({**call, "id": block["id"], "status": "completed"})
            case "tool_result":
                output = _output(block.get("content") or "")
                items.append({"call_id": block["tool_use_id"], "output": output, "type": "function_call_output"})
            case "thinking":
                summary = [{"text": block.get("thinking", ""), "type": "summary_text"}]
                item = {"id": f"rs_{uuid.uuid4().hex}", "summary": summary, "type": "reasoning"}
                items.append({**item, "encrypted_content": block.get("signature")})
            case other:
                raise ConversionError(f"a block of type {other!r} has no place in a Responses request")
    flush()


def _part(block: Mapping[str, Any]) -> Json:
    if block["type"] == "text":
        return {"type": "input_text", "text": block.get("text", "")}
    source = block.get("source") or {}
    if source.get("type") != "base64":
        raise ConversionError(f"an image by {source.get('type')!r}: only base64 images are taken")
    if source.get("media_type") not in IMAGE_TYPES:
        raise ConversionError(f"an image of type {source.get('media_type')!r}: only {', '.join(sorted(IMAGE_TYPES))} are taken")
    return {"type": "input_image", "image_url": f"data:{source['media_type']};base64,{source['data']}", "detail": "auto"}


def _output(content: Any) -> Any:
    if isinstance(content, str):
        return content
    if all(block.get("type") == "text" for block in content):
        return "\n".join(block.get("text", "") for block in content)
    for block in content:
        if block.get("type") not in ("text", "image"):
            raise ConversionError(f"a block of type {block.get('type')!r} in a tool's result has no place in a Responses request")
    return [_part(block) for block in content]


def _tool(tool: Mapping[str, Any]) -> Json:
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": tool.get("input_schema") or {"type": "object", "properties": {}},
        "strict": False,
    }


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "name": choice["name"]}
    if kind not in _CHOICES:
        raise ConversionError(f"a tool_choice of type {kind!r} has no place in a Responses request")
    return _CHOICES[kind]
