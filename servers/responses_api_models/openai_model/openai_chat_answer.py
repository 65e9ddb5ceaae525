"""A chat completion as a Responses object (contract-servers 4.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = ("instructions", "max_output_tokens", "metadata", "reasoning", "temperature", "text", "top_logprobs", "top_p", "user")


class InvalidCompletionError(ValueError):
    """The endpoint's answer is no chat completion."""


def to_response(
    completion: Mapping[str, Any], params: Mapping[str, Any], new_id: Callable[[], str], *, parse_thoughts: bool = False
) -> Json:
    """``params`` is the request that was asked, whose fields the object repeats; ``new_id`` makes 32 hex digits.

    Raises InvalidCompletionError.
    """
    choices = completion.get("choices")
    if (
        not isinstance(choices, list)
        or not choices
        or not isinstance(choices[0], Mapping)
        or not isinstance(choices[0].get("message"), Mapping)
    ):
        raise InvalidCompletionError("the endpoint's answer has no choices[0].message")
    reason = _INCOMPLETE.get(str(choices[0].get("finish_reason")))
    response: Json = {
        "id": f"resp_{new_id()}",
        "created_at": completion.get("created") or 0,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": completion.get("model") or "",
        "object": "response",
        "output": _output(choices[0]["message"], new_id, parse_thoughts),
        "parallel_tool_calls": params.get("parallel_tool_calls", True) is not False,
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
        "status": "completed" if reason is None else "incomplete",
        "usage": _usage(completion.get("usage")),
    }
    response |= {name: params[name] for name in _ECHOED if params.get(name) is not None}
    return response


def _output(message: Mapping[str, Any], new_id: Callable[[], str], parse_thoughts: bool) -> list[Json]:
    content, refusal = message.get("content") or "", message.get("refusal")
    calls = message.get("tool_calls") or []
    thoughts = [text for text in (message.get("reasoning_content") or message.get("reasoning"),) if isinstance(text, str) and text]
    if parse_thoughts:
        thoughts += _THINK.findall(content)
        content = _THINK.sub("", content).lstrip() if thoughts else content
    output: list[Json] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": text} for text in thoughts]
        output.append({"id": f"rs_{new_id()}", "summary": summary, "type": "reasoning"})
    parts: list[Json] = []
    if content or not (refusal or calls):
        parts.append({"annotations": [], "text": content, "type": "output_text"})
    if refusal:
        parts.append({"refusal": refusal, "type": "refusal"})
    if parts:
        output.append({"id": f"msg_{new_id()}", "content": parts, "role": "assistant", "status": "completed", "type": "message"})
    output.extend(_call(call, new_id) for call in calls)
    return output


def _call(call: Mapping[str, Any], new_id: Callable[[], str]) -> Json:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise InvalidCompletionError(f"the endpoint called a tool of type {call.get('type')!r}, which was not offered")
    return {
        "arguments": function.get("arguments") or "",
        "call_id": call.get("id") or f"call_{new_id()}",
        "name": function.get("name") or "",
        "type": "function_call",
        "id": f"fc_{new_id()}",
        "status": "completed",
    }


def _usage(usage: Mapping[str, Any] | None) -> Json | None:
    if not usage:
        return None
    given, made = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens")},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")},
        "total_tokens": int(usage.get("total_tokens") or given + made),
    }
