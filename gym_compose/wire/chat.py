"""Chat completions between servers: create params, nothing unknown (contract-servers 4.1)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, PlainValidator

from gym_compose.wire.items import JsonObject, check_tokens

EXTENSIONS: Final = frozenset({"chat_template_kwargs", "thinking", "output_config"})
"""Fields that providers added to the dialect; a streaming request loses them."""

_ROLES = frozenset({"developer", "system", "user", "assistant", "tool"})
_TOOL_TYPES = frozenset({"function", "custom"})


def _check_message(message: Any) -> JsonObject:
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise ValueError(f"role must be one of {', '.join(sorted(_ROLES))}")
    content = message.get("content")
    if role == "assistant":
        if content is not None and not isinstance(content, str | list):
            raise ValueError("assistant message: content must be text, a list of parts or null")
    elif not isinstance(content, str | list):
        raise ValueError(f"{role} message: content must be text or a list of parts")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise ValueError("tool message: tool_call_id is missing")
    check_tokens(message)
    return _without_outer_names(message)


def _without_outer_names(message: JsonObject) -> JsonObject:
    """Some clients write the name of a called function a second time, beside ``function``, where endpoints refuse it."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not any(isinstance(call, dict) and "name" in call for call in calls):
        return message
    stripped = [{key: value for key, value in call.items() if key != "name"} if isinstance(call, dict) else call for call in calls]
    return {**message, "tool_calls": stripped}


def _check_tool(tool: Any) -> JsonObject:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str) or kind not in _TOOL_TYPES:
        raise ValueError(f"a tool must be an object with a type of {', '.join(sorted(_TOOL_TYPES))}")
    definition = tool.get(kind)
    if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
        raise ValueError(f"{kind} tool: {kind}.name is missing")
    checked: JsonObject = tool
    return checked


ChatMessage = Annotated[JsonObject, PlainValidator(_check_message)]
ChatTool = Annotated[JsonObject, PlainValidator(_check_tool)]


class ChatCompletionCreateParams(BaseModel):
    """Body of ``POST /v1/chat/completions``, with the three typed extensions of the field at the end."""

    model_config = ConfigDict(extra="forbid")

    messages: list[ChatMessage]
    model: str | None = None
    audio: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, str] | None = None
    moderation: dict[str, Any] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    n: int | None = None
    parallel_tool_calls: bool = True
    prediction: dict[str, Any] | None = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    seed: int | None = None
    safety_identifier: str | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[ChatTool] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    web_search_options: dict[str, Any] | None = None
    stream: Literal[False] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

    def given_fields(self) -> JsonObject:
        """The fields that were given, in the order of the class."""
        given = self.model_fields_set
        return {name: value for name, value in self.__dict__.items() if name in given}
