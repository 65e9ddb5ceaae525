"""A chat request as vLLM is sent it: the config's fields, the request's own, the overrides of its metadata (contract-servers 4.4)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from vllm_config import VLLMModelConfig

Json = dict[str, Any]

_log = logging.getLogger(__name__)
_warned: set[str] = set()


def chat_body(given: Mapping[str, Any], config: VLLMModelConfig) -> Json:
    """Weakest first: ``extra_body`` of the config, of ``metadata``, the request, what token ids need, ``sampling_overrides``.

    Raises ValueError for metadata that is no JSON object.
    """
    body = strip_hosted_fields(given)
    body["messages"] = [_message(message, config) for message in body["messages"]]
    body["model"] = config.model
    metadata = body.get("metadata") or {}
    kwargs = template_kwargs(body, config)
    body.pop("chat_template_kwargs", None)
    if kwargs:
        body["chat_template_kwargs"] = kwargs
    if config.continue_final_assistant_message and body["messages"] and body["messages"][-1].get("role") == "assistant":
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if config.return_token_id_information:
        # vLLM counts a null top_logprobs as "no logprobs", which would leave no token ids.
        body |= {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
        if config.request_prompt_and_generation_token_ids:
            body["return_token_ids"] = True
    if body.get("top_logprobs", 0) is None:
        del body["top_logprobs"]
    extra = {**(config.extra_body or {}), **json_field(metadata, "extra_body")}
    return {**extra, **body, **(config.sampling_overrides or {})}


def _message(message: Json, config: VLLMModelConfig) -> Json:
    if config.replace_developer_role_with_system and message.get("role") == "developer":
        return {**message, "role": "system"}
    return message


def template_kwargs(body: Mapping[str, Any], config: VLLMModelConfig, *, may_forward: bool = True) -> Json:
    """Variables of the chat template: the config's, the request's where the config lets it, those of ``metadata``; the later win."""
    kwargs = dict(config.chat_template_kwargs or {})
    asked = body.get("chat_template_kwargs")
    if asked and may_forward and config.forward_request_chat_template_kwargs:
        kwargs |= asked
    elif asked and config.name not in _warned:
        _warned.add(config.name)
        why = "forward_request_chat_template_kwargs is false" if may_forward else "use_completions_api is true"
        _log.warning("chat_template_kwargs of requests are dropped (%s); said once", why)
    return kwargs | json_field(body.get("metadata") or {}, "chat_template_kwargs")


def json_field(metadata: Mapping[str, Any], name: str) -> Json:
    """A JSON object that stands as text in the metadata of a request; empty when it is not there. Raises ValueError."""
    try:
        parsed = orjson.loads(metadata.get(name) or "{}")
    except orjson.JSONDecodeError as error:
        raise ValueError(f"metadata.{name} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"metadata.{name} is not a JSON object")
    return parsed


def strip_hosted_fields(given: Mapping[str, Any]) -> Json:
    """A copy without ``strict`` of function tools: vLLM does not enforce it, and templates that print unknown keys would print it."""
    body = dict(given)
    if body.get("tools"):
        body["tools"] = [_tool(tool) for tool in body["tools"]]
    return body


def _tool(tool: Json) -> Json:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        return tool
    return {**tool, "function": {name: value for name, value in function.items() if name != "strict"}}
