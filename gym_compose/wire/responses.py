"""The Responses API between servers: create params (30 fields, nothing else) and the Responses object (contract-servers 2.7, 4.1).

Items, tools and usage stay plain mappings (see ``items``), so that a handler reads ``item["type"]`` and a body is written as it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from gym_compose.wire.items import JsonObject, check_input_item, check_tool, complete_input_item, complete_output_item, complete_tool

InputItem = Annotated[JsonObject, PlainValidator(check_input_item)]
RequestTool = Annotated[JsonObject, PlainValidator(check_tool)]
OutputItem = Annotated[JsonObject, PlainValidator(complete_output_item)]
ResponseTool = Annotated[JsonObject, PlainValidator(complete_tool)]


def _complete_usage(value: Any) -> JsonObject | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("usage must be an object or null")
    counts = {}
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        count = value.get(key)
        if not isinstance(count, int) or isinstance(count, bool):
            raise ValueError(f"usage: {key} must be an integer")
        counts[key] = count
    read, written = value.get("input_tokens_details"), value.get("output_tokens_details")
    done: JsonObject = {
        "input_tokens": counts["input_tokens"],
        "input_tokens_details": {**read, "cached_tokens": read.get("cached_tokens")} if isinstance(read, dict) else {"cached_tokens": None},
        "output_tokens": counts["output_tokens"],
        "output_tokens_details": (
            {**written, "reasoning_tokens": written.get("reasoning_tokens")} if isinstance(written, dict) else {"reasoning_tokens": None}
        ),
        "total_tokens": counts["total_tokens"],
    }
    done.update((key, extra) for key, extra in value.items() if key not in done)
    return done


Usage = Annotated[JsonObject | None, PlainValidator(_complete_usage)]


class ResponsesCreateParams(BaseModel):
    """Body of ``POST /v1/responses`` and ``responses_create_params`` of a row; an unknown field is refused.

    ``given_fields()`` is what the caller wrote (what is sent on), ``full()`` has all 30 fields with items completed (what records hold).
    """

    model_config = ConfigDict(extra="forbid")

    background: bool | None = None
    include: list[str] | None = None
    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    store: bool | None = None
    context_management: list[dict[str, Any]] | None = None
    conversation: str | dict[str, Any] | None = None
    moderation: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    safety_identifier: str | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] = "auto"
    tools: list[RequestTool] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    stream: Literal[False] | None = None

    def given_fields(self) -> JsonObject:
        """The fields that were given, in the order of the class."""
        given = self.model_fields_set
        return {name: value for name, value in self.__dict__.items() if name in given}

    def full(self) -> JsonObject:
        """All fields, unset ones null or their default, items of ``input`` completed."""
        fields = dict(self.__dict__)
        if isinstance(self.input, list):
            fields["input"] = [complete_input_item(item) for item in self.input]
        return fields

    def items(self) -> list[JsonObject]:
        """``input`` as a list; a string is one user message."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return self.input


class ResponsesObject(BaseModel):
    """An answer of ``/v1/responses``. Output items are completed on the way in; unknown top-level fields are kept at the end."""

    model_config = ConfigDict(extra="allow")

    id: str
    created_at: float
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    instructions: str | list[Any] | None = None
    metadata: dict[str, str] | None = None
    model: str
    object: Literal["response"]
    output: list[OutputItem]
    parallel_tool_calls: bool
    temperature: float | None = None
    tool_choice: str | dict[str, Any]
    tools: list[ResponseTool]
    top_p: float | None = None
    background: bool | None = None
    completed_at: float | None = None
    conversation: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    moderation: dict[str, Any] | None = None
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"] | None = None
    text: dict[str, Any] | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: Usage = None
    user: str | None = None

    def full(self) -> JsonObject:
        """All fields in the field's order, extra ones last."""
        fields = dict(self.__dict__)
        if self.model_extra:
            fields.update(self.model_extra)
        return fields

    def of_type(self, kind: str) -> Iterator[JsonObject]:
        """Output items of one type, in order."""
        return (item for item in self.output if item["type"] == kind)

    def function_calls(self) -> list[JsonObject]:
        return list(self.of_type("function_call"))

    def assistant_messages(self) -> list[JsonObject]:
        return [item for item in self.of_type("message") if item.get("role") == "assistant"]

    def output_text(self) -> str:
        """The text of all ``output_text`` parts of assistant messages, joined."""
        texts = []
        for message in self.assistant_messages():
            content = message["content"]
            if isinstance(content, str):
                texts.append(content)
            else:
                texts.extend(part["text"] for part in content if part.get("type") == "output_text")
        return "".join(texts)


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def add_usage(total: Mapping[str, Any] | None, more: Mapping[str, Any] | None) -> JsonObject | None:
    """Token counts of two answers, summed; a detail that one of them does not know makes the sum unknown (contract-servers 3.2)."""
    if more is None:
        return None if total is None else dict(total)
    if total is None:
        return dict(more)
    read, written = total["input_tokens_details"], total["output_tokens_details"]
    return {
        "input_tokens": total["input_tokens"] + more["input_tokens"],
        "input_tokens_details": {"cached_tokens": _add(read["cached_tokens"], more["input_tokens_details"]["cached_tokens"])},
        "output_tokens": total["output_tokens"] + more["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": _add(written["reasoning_tokens"], more["output_tokens_details"]["reasoning_tokens"])},
        "total_tokens": total["total_tokens"] + more["total_tokens"],
    }
