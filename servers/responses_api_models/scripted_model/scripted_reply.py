"""A scripted reply in the two dialects of the wire, and a chat conversation as the items that rules look at.

Nothing here asks a clock or a random source: ids are hashes, ``created`` is zero and tokens are words, so that equal requests get equal
answers and a run can be compared with another byte by byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from scripted_prompt import content_text, model_turns
from scripted_rules import ScriptedReply, ScriptedRequest

from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams

Json = dict[str, Any]

OUTCOME_KEY = "scripted_outcome"
_ECHOED = ("instructions", "max_output_tokens", "reasoning", "temperature", "text", "top_p", "user")


def identity(model: str, request: ScriptedRequest) -> str:
    """24 hex digits that differ between models, prompts, samples and turns."""
    material = [model, request.prompt, request.sample, model_turns(request.input)]
    return hashlib.sha256(orjson.dumps(material)).hexdigest()[:24]


def to_response(model: str, params: ResponsesCreateParams, request: ScriptedRequest, reply: ScriptedReply) -> Json:
    """The Responses object of ``reply``."""
    key = identity(model, request)
    output: list[Json] = [
        {
            "arguments": call.arguments,
            "call_id": f"call_{key}_{number}",
            "name": call.name,
            "type": "function_call",
            "id": f"fc_{key}_{number}",
            "status": "completed",
        }
        for number, call in enumerate(reply.calls)
    ]
    if reply.text is not None:
        content = [{"annotations": [], "text": reply.text, "type": "output_text"}]
        output.append({"id": f"msg_{key}", "content": content, "role": "assistant", "status": "completed", "type": "message"})
    metadata = {**(params.metadata or {}), **({OUTCOME_KEY: reply.outcome} if reply.outcome else {})}
    given, made = _words(request, reply)
    response: Json = {
        "id": f"resp_{key}",
        "created_at": 0.0,
        "metadata": metadata,
        "model": model,
        "object": "response",
        "output": output,
        "parallel_tool_calls": params.parallel_tool_calls,
        "tool_choice": params.tool_choice,
        "tools": params.tools,
        "status": "completed",
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        },
    }
    return response | {name: getattr(params, name) for name in _ECHOED if getattr(params, name) is not None}


def to_completion(model: str, request: ScriptedRequest, reply: ScriptedReply) -> Json:
    """The chat completion of ``reply``."""
    key = identity(model, request)
    message: Json = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{key}_{number}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for number, call in enumerate(reply.calls)
        ]
    given, made = _words(request, reply)
    return {
        "id": f"chatcmpl-{key}",
        "choices": [{"finish_reason": "tool_calls" if reply.calls else "stop", "index": 0, "logprobs": None, "message": message}],
        "created": 0,
        "model": model,
        "object": "chat.completion",
        "usage": {"completion_tokens": made, "prompt_tokens": given, "total_tokens": given + made},
    }


def chat_conversation(params: ChatCompletionCreateParams) -> list[Json]:
    """The messages of a chat as items of the Responses API."""
    items: list[Json] = []
    for message in params.messages:
        if message["role"] == "tool":
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": content_text(message["content"])})
            continue
        if message.get("content") is not None:
            items.append({"type": "message", "role": message["role"], "content": content_text(message["content"])})
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            items.append(
                {"type": "function_call", "call_id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
            )
    return items


def chat_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Json]:
    """Chat tools in the flat form of the Responses API."""
    return [{"type": tool["type"], **tool["function"]} for tool in tools or () if tool.get("type") == "function" and "function" in tool]


def _words(request: ScriptedRequest, reply: ScriptedReply) -> tuple[int, int]:
    given = sum(len(text.split()) for _, text in request.prompt)
    made = len((reply.text or "").split()) + sum(len(call.arguments.split()) for call in reply.calls)
    return given, made
