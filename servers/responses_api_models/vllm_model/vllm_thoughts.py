"""Thoughts between Gym, where they stand as ``<think>…</think>`` in the text, and vLLM's reasoning parser, which has a field for them."""

from __future__ import annotations

from typing import Any

from vllm_config import VLLMModelConfig

from gym_compose.serving.dialects.chat_answer import split_thoughts
from gym_compose.serving.dialects.chat_messages import think
from gym_compose.serving.dialects.errors import InvalidModelAnswer

Json = dict[str, Any]

FIELDS = ("reasoning_content", "reasoning")
"""vLLM before 0.16 reads and writes the first, later ones the second."""


def spread_thoughts(messages: list[Json], config: VLLMModelConfig) -> list[Json]:
    """Messages with the assistant's thoughts taken out of the text, into the reasoning fields unless the model is not to see them again."""
    return [_spread(message, config) if message.get("role") == "assistant" else message for message in messages]


def _spread(message: Json, config: VLLMModelConfig) -> Json:
    content = message.get("content")
    if isinstance(content, str):
        thoughts, rest = split_thoughts(content)
        done = {**message, "content": rest}
    elif isinstance(content, list):
        thoughts, parts = [], []
        for part in content:
            found, text = split_thoughts(part.get("text") or "")
            if thoughts and found:
                raise ValueError("one assistant message has thoughts in several of its parts")
            thoughts += found
            parts.append({**part, "text": text} if "text" in part else part)
        done = {**message, "content": parts}
    else:
        return message
    if thoughts and config.uses_interleaved_reasoning:
        wanted = FIELDS if config.reasoning_field == "both" else (config.reasoning_field,)
        done |= dict.fromkeys(wanted, thoughts[0])
    return done


def gather_thoughts(message: Json, config: VLLMModelConfig, *, continued: bool) -> None:
    """Put the reasoning field of an answer in front of its text, in place. ``continued``: the answer continues a message, and vLLM's
    parser took its beginning for thoughts.

    Raises InvalidModelAnswer when there are thoughts and the config says that there is no parser.
    """
    thoughts = message.get(FIELDS[0]) or message.get(FIELDS[1])
    if not config.uses_reasoning_parser:
        if thoughts:
            raise InvalidModelAnswer(
                f"the endpoint of {config.name} runs a reasoning parser, and uses_reasoning_parser is false: correct one of the two"
            )
        return
    if thoughts:
        for name in FIELDS:
            message.pop(name, None)
        message["content"] = (thoughts if continued else think([thoughts])) + (message.get("content") or "")
