"""A chat completion as a Responses object (contract-servers 4.3)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from gym_compose.serving.dialects.errors import InvalidModelAnswer
from gym_compose.wire.items import TOKEN_EXTRA, TOKEN_FIELDS

Json = dict[str, Any]
NewId = Callable[[], str]

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = (
    "instructions", "max_output_tokens", "metadata", "reasoning", "service_tier", "temperature", "text", "top_logprobs", "top_p", "user",
)  # fmt: skip


def new_id() -> str:
    """32 hex digits."""
    return uuid.uuid4().hex


def to_response(
    completion: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    model: str | None = None,
    parse_thoughts: bool = False,
    with_tokens: bool = False,
    ids: NewId = new_id,
) -> Json:
    """``params`` is the Responses request that was asked, whose fields the object repeats; ``model`` the name that the object says, None
    for the completion's.

    ``parse_thoughts`` takes ``<think>…</think>`` out of the text; ``with_tokens`` puts the message's token ids on the last item.
    Raises InvalidModelAnswer.
    """
    choice = first_choice(completion)
    reason = _INCOMPLETE.get(str(choice.get("finish_reason")))
    response: Json = {
        "id": f"resp_{ids()}",
        "created_at": completion.get("created") or 0,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": model or completion.get("model") or "",
        "object": "response",
        "output": output_items(choice["message"], ids, parse_thoughts=parse_thoughts, with_tokens=with_tokens),
        "parallel_tool_calls": params.get("parallel_tool_calls", True) is not False,
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
        "status": "completed" if reason is None else "incomplete",
        "usage": _usage(completion.get("usage")),
    }
    response |= {name: params[name] for name in _ECHOED if params.get(name) is not None}
    if choice.get("native_finish_reason") is not None:
        response["native_finish_reason"] = str(choice["native_finish_reason"])
    return response


def first_choice(completion: Mapping[str, Any]) -> Json:
    """``choices[0]``, which has a message. Raises InvalidModelAnswer."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise InvalidModelAnswer("the endpoint's answer has no choices[0].message")
    return choice


def split_thoughts(text: str) -> tuple[list[str], str]:
    """The thoughts in ``text``, and the text without them."""
    return _THINK.findall(text), _THINK.sub("", text)


def output_items(message: Mapping[str, Any], ids: NewId, *, parse_thoughts: bool, with_tokens: bool = False) -> list[Json]:
    """An assistant message as output items: thoughts, text and refusal, calls. One that says nothing is a message with an empty text."""
    content, refusal = message.get("content") or "", message.get("refusal") or ""
    calls = message.get("tool_calls") or []
    thoughts = [text for text in (message.get("reasoning_content") or message.get("reasoning"),) if isinstance(text, str) and text]
    if parse_thoughts:
        found, content = split_thoughts(content)
        thoughts += found
    output: list[Json] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": text} for text in thoughts]
        output.append({"id": f"rs_{ids()}", "summary": summary, "type": "reasoning"})
    parts: list[Json] = []
    if content or not (output or refusal or calls):
        parts.append({"annotations": [], "text": content, "type": "output_text"})
    if refusal:
        parts.append({"refusal": refusal, "type": "refusal"})
    if parts:
        output.append({"id": f"msg_{ids()}", "content": parts, "role": "assistant", "status": "completed", "type": "message"})
    output.extend(_call(call, ids) for call in calls)
    if with_tokens and message.get(TOKEN_FIELDS[0]) is not None:
        output[-1] |= {name: message[name] for name in (*TOKEN_FIELDS, TOKEN_EXTRA) if message.get(name) is not None}
    return output


def _call(call: Mapping[str, Any], ids: NewId) -> Json:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise InvalidModelAnswer(f"the endpoint called a tool of type {call.get('type')!r} in a form that is no function call")
    call_id = call.get("id") or f"call_{ids()}"
    return {
        "arguments": function.get("arguments") or "",
        "call_id": call_id,
        "name": function.get("name") or "",
        "type": "function_call",
        "id": call_id,
        "status": "completed",
    }


def _usage(usage: Mapping[str, Any] | None) -> Json | None:
    if not usage:
        return None
    given, made = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens", "cached_input_tokens", "cache_read_input_tokens")
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens", "reasoning_output_tokens")
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": int(usage.get("total_tokens") or given + made),
    }


def _detail(usage: Mapping[str, Any], group: str, name: str, *aliases: str) -> int | None:
    """A count that the endpoint reports, in the standard's place or under a provider's name; unknown is not zero."""
    details = usage.get(group)
    for value in (details.get(name) if isinstance(details, Mapping) else None, *(usage.get(alias) for alias in aliases)):
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
