"""The canonical form of a prompt: what makes two requests "the same question".

In the form stand the instructions and every message of a user, system or developer, in order. What a model or a tool said is left
out, so that the second turn of a tool loop still counts as its first prompt. ``developer`` and ``system`` are one role (converters
rename them), a string is one user message, and a list of text parts is their concatenation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import orjson

_ROLES = {"user": "user", "system": "system", "developer": "system"}
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})

QUOTE_LIMIT = 2000
"""Characters of a prompt that an error quotes."""

Canonical = tuple[tuple[str, str], ...]
"""Pairs of role (``user`` or ``system``) and text."""


def content_text(content: object) -> str:
    """The text of a message's ``content``: a string, or a list of parts; a part without text counts as its JSON."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type", "text") in _TEXT_PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            texts.append(orjson.dumps(part, option=orjson.OPT_SORT_KEYS).decode())
    return "".join(texts)


def canonical(prompt: object, instructions: str | None = None) -> Canonical:
    """``prompt`` is the ``input`` of a Responses request: a string or a list of items."""
    pairs: list[tuple[str, str]] = [("system", instructions)] if instructions else []
    if isinstance(prompt, str):
        pairs.append(("user", prompt))
    elif isinstance(prompt, Sequence):
        pairs.extend(
            (_ROLES[item["role"]], content_text(item.get("content")))
            for item in prompt
            if isinstance(item, Mapping) and item.get("type", "message") == "message" and item.get("role") in _ROLES
        )
    return tuple(pairs)


def opening(prompt: Canonical) -> Canonical:
    """How a conversation begins: everything up to its first message of a user, that included."""
    first = next((number for number, (role, _) in enumerate(prompt, start=1) if role == "user"), len(prompt))
    return prompt[:first]


def fingerprint(prompt: Canonical) -> bytes:
    """The SHA-256 of the canonical form: the key of an answer and an input of every draw."""
    return hashlib.sha256(orjson.dumps([list(pair) for pair in prompt])).digest()


def quote(prompt: Canonical) -> str:
    """The prompt for an error message, cut to ``QUOTE_LIMIT`` characters."""
    text = orjson.dumps([{"role": role, "content": content} for role, content in prompt]).decode()
    return text if len(text) <= QUOTE_LIMIT else text[:QUOTE_LIMIT] + "…"


def last_user_text(prompt: Canonical) -> str:
    """The text of the last user message; empty without one."""
    return next((text for role, text in reversed(prompt) if role == "user"), "")


def model_turns(prompt: object) -> int:
    """How many turns of the model the input holds already.

    A turn is an unbroken run of items that a model makes: reasoning, calls, assistant messages.
    """
    if not isinstance(prompt, Sequence) or isinstance(prompt, str):
        return 0
    turns, inside = 0, False
    for item in prompt:
        made = isinstance(item, Mapping) and (
            item.get("type") in {"reasoning", "function_call", "custom_tool_call"}
            or (item.get("type", "message") == "message" and item.get("role") == "assistant")
        )
        turns += made and not inside
        inside = made
    return turns


def has_tool_output(prompt: object) -> bool:
    """Whether a tool has answered in this conversation."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str)
        and any(isinstance(item, Mapping) and item.get("type") == "function_call_output" for item in prompt)
    )
