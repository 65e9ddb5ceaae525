"""Base models: a conversation as one prompt for vLLM's ``/completions``, its text as a chat completion (contract-servers 4.4).

Without ``render_chat_template`` the conversation must be a user message, with a system message before it at most, and goes out as it is.
With it the tokenizer's own template renders any conversation; calls of tools in the answer stay text, since vLLM parses none here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from vllm_audio import audio_keys
from vllm_config import VLLMModelConfig
from vllm_request import template_kwargs
from vllm_tokens import PREFIX, Tokenize, TokenMetadataError

from gym_compose.serving.dialects.errors import ConversionError, InvalidModelAnswer
from gym_compose.wire.errors import PrerequisiteError

Json = dict[str, Any]

_SAME = (
    "max_tokens", "temperature", "top_p", "n", "seed", "stop", "frequency_penalty", "presence_penalty", "logit_bias", "response_format",
    "user",
)  # fmt: skip
_RAW_ROLES = (["user"], ["system", "user"])


class Template(Protocol):
    """What a tokenizer of transformers does here."""

    def apply_chat_template(self, conversation: list[Json], **kwargs: Any) -> Any: ...


def template_of(config: VLLMModelConfig) -> Template:
    """The tokenizer whose template renders prompts. Raises PrerequisiteError: no transformers, no such tokenizer, none with a template."""
    name = config.tokenizer or config.model
    where = f"server instance {config.name}: render_chat_template"
    try:
        transformers = import_module("transformers")
    except ImportError:
        raise PrerequisiteError(
            "needs the package transformers, which this server's image does not hold",
            where=where,
            hint="Give the server an image that holds it (compose: servers: NAME: image), or set render_chat_template to false.",
        ) from None
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    except (OSError, ValueError) as error:
        raise PrerequisiteError(f"the tokenizer {name!r} cannot be loaded ({error})", where=where, hint="Set tokenizer.") from None
    if not getattr(tokenizer, "chat_template", None):
        raise PrerequisiteError(f"the tokenizer {name!r} has no chat template", where=where, hint="Set tokenizer to one that has.")
    made: Template = tokenizer
    return made


@dataclass(frozen=True)
class Prompt:
    """The text that the model continues."""

    text: str

    @classmethod
    def of(cls, chat: Mapping[str, Any], config: VLLMModelConfig, template: Template | None) -> Prompt:
        """Raises ConversionError for what a prompt cannot hold: audio, images, and without a template tools and further turns."""
        audio = audio_keys(dict(chat))
        if audio:
            raise ConversionError(f"metadata.{audio[0]} cannot be sent through /v1/completions")
        messages = chat["messages"]
        texts = [_text(message) for message in messages if message.get("content") is not None]
        kwargs = template_kwargs(chat, config, may_forward=False)
        if template is not None:
            rendered = template.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, tools=chat.get("tools") or None, **kwargs
            )
            return cls(str(rendered))
        if chat.get("tools"):
            raise ConversionError("tools cannot be sent through /v1/completions unless render_chat_template is true")
        roles = [message.get("role") for message in messages]
        if roles not in _RAW_ROLES:
            raise ConversionError(f"/v1/completions takes a user message, or a system and a user message; the conversation has {roles}")
        return cls("\n\n".join(texts))

    def tokenize_body(self, config: VLLMModelConfig, body: Mapping[str, Any]) -> Json:
        """The body of ``/tokenize`` that splits the prompt as the completion did."""
        special = {"add_special_tokens": body["add_special_tokens"]} if "add_special_tokens" in body else {}
        return {"model": config.model, "prompt": self.text, **special}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    for part in content or ():
        if part.get("type") not in ("text", "input_text"):
            raise ConversionError(f"a part of type {part.get('type')!r} cannot be sent through /v1/completions")
    return "".join(part.get("text", "") for part in content or ())


def completion_body(chat: Mapping[str, Any], prompt: Prompt, config: VLLMModelConfig) -> Json:
    """Weakest first: ``extra_body``, the request's fields, what token ids need, ``sampling_overrides``."""
    body: Json = {"model": config.model, "prompt": prompt.text}
    body |= {name: chat[name] for name in _SAME if name in chat}
    if "max_tokens" not in body and "max_completion_tokens" in chat:
        body["max_tokens"] = chat["max_completion_tokens"]
    if chat.get("top_logprobs") is not None:
        body["logprobs"] = chat["top_logprobs"]
    elif chat.get("logprobs") is True or config.return_token_id_information:
        body["logprobs"] = 0
    body = {**(config.extra_body or {}), **body}
    if config.return_token_id_information:
        body |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    return body | (config.sampling_overrides or {})


async def to_chat_completion(completion: Mapping[str, Any], config: VLLMModelConfig, tokenize: Tokenize) -> Json:
    """The completion as one of a chat. Raises InvalidModelAnswer; TokenMetadataError when token ids are wanted and not there."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise InvalidModelAnswer("the endpoint's answer has no choices[0]")
    message: Json = {"role": "assistant", "content": choice.get("text") or "", "tool_calls": None}
    if config.return_token_id_information:
        message |= await _tokens(choice, tokenize)
    chat: Json = {
        "id": completion.get("id") or "chatcmpl-completions",
        "object": "chat.completion",
        "created": completion.get("created") or int(time.time()),
        "model": completion.get("model") or config.model,
        "choices": [{"index": choice.get("index", 0), "finish_reason": choice.get("finish_reason") or "stop", "message": message}],
    }
    if completion.get("usage") is not None:
        chat["usage"] = completion["usage"]
    return chat


async def _tokens(choice: Mapping[str, Any], tokenize: Tokenize) -> Json:
    logprobs = choice.get("logprobs") or {}
    log_probs = logprobs.get("token_logprobs")
    generated = choice.get("token_ids")
    if generated is None and logprobs.get("tokens") is not None:
        generated = [_token_id(token) for token in logprobs["tokens"]]
    if log_probs is None or generated is None:
        raise TokenMetadataError("the endpoint was asked for logprobs and token ids and did not send both")
    if len(generated) != len(log_probs):
        raise TokenMetadataError(f"the completion has {len(generated)} generated tokens and {len(log_probs)} log probabilities")
    prompt = choice.get("prompt_token_ids")
    if prompt is None:
        prompt = (await tokenize()).get("tokens")
    if not isinstance(prompt, list):
        raise TokenMetadataError("tokens of /tokenize: not a list")
    return {"prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": log_probs}


def _token_id(token: Any) -> int:
    number = token.removeprefix(PREFIX) if isinstance(token, str) else ""
    if not number.lstrip("-").isdecimal():
        raise TokenMetadataError(f"logprobs.tokens has an entry that is not of the form {PREFIX}<n>")
    return int(number)
