"""The token ids of an answer, from wherever vLLM says them (contract-servers 4.5).

Sources in order: a bundle on the message; the prompt's ids on the completion with the generated ones on the choice; the logprobs, whose
tokens are written ``token_id:<n>``, with ``/tokenize`` for the prompt. A part of a source, or two that disagree, is an error: what is
trained on must be what was sampled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from vllm_config import VLLMModelConfig

from gym_compose.wire.items import TOKEN_EXTRA, TOKEN_FIELDS

Json = dict[str, Any]
Tokenize = Callable[[], Awaitable[Json]]

PREFIX = "token_id:"
TOKENIZED_FIELDS = ("model", "messages", "tools", "chat_template_kwargs", "mm_processor_kwargs")
"""What decides how a conversation becomes a prompt."""


class TokenMetadataError(Exception):
    """The endpoint's token ids are incomplete or contradict each other."""


def require_one_choice(body: Mapping[str, Any], config: VLLMModelConfig) -> None:
    """Raises ValueError when several answers are asked for and token ids are wanted."""
    if config.return_token_id_information and body.get("n") not in (None, 1):
        raise ValueError(f"{config.name} returns token ids (return_token_id_information), which needs n = 1")


async def attach_tokens(completion: Json, tokenize: Tokenize) -> None:
    """Put the three token fields on the message of ``choices[0]``, in place, and take vLLM's own away. Raises TokenMetadataError."""
    choice = completion["choices"][0]
    message = choice["message"]
    bundle = _message_bundle(message)
    inline = _inline(completion, choice)
    if bundle is not None:
        if inline is not None and inline != (bundle["prompt_token_ids"], bundle["generation_token_ids"]):
            raise TokenMetadataError("the token ids of the message and of the completion disagree")
    else:
        generated, log_probs = logprob_tokens(choice)
        if inline is None:
            prompt = _list((await tokenize()).get("tokens"), "tokens of /tokenize")
        else:
            prompt, named = inline
            if named != generated:
                raise TokenMetadataError("the token ids of the choice and of its logprobs disagree")
        found = {"prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": log_probs}
        if message.get(TOKEN_EXTRA) is not None:
            found[TOKEN_EXTRA] = message[TOKEN_EXTRA]
        bundle = _complete(found, "the completion")
        choice.pop("logprobs", None)
    message |= bundle
    completion.pop("prompt_token_ids", None)
    choice.pop("token_ids", None)


def _message_bundle(message: Mapping[str, Any]) -> Json | None:
    if not any(name in message for name in TOKEN_FIELDS):
        return None
    return _complete({name: message[name] for name in (*TOKEN_FIELDS, TOKEN_EXTRA) if name in message}, "the message")


def _complete(bundle: Json, what: str) -> Json:
    missing = [name for name in TOKEN_FIELDS if name not in bundle]
    if missing:
        raise TokenMetadataError(f"{what} has token metadata without {', '.join(missing)}")
    for name in TOKEN_FIELDS:
        _list(bundle[name], f"{name} of {what}")
    counts = len(bundle["generation_token_ids"]), len(bundle["generation_log_probs"])
    if counts[0] != counts[1]:
        raise TokenMetadataError(f"{what} has {counts[0]} generated tokens and {counts[1]} log probabilities")
    return bundle


def _inline(completion: Mapping[str, Any], choice: Mapping[str, Any]) -> tuple[list[Any], list[Any]] | None:
    prompt, generated = completion.get("prompt_token_ids"), choice.get("token_ids")
    if prompt is None and generated is None:
        return None
    return _list(prompt, "prompt_token_ids of the completion"), _list(generated, "token_ids of the choice")


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise TokenMetadataError(f"{what}: not a list")
    return value


def logprob_tokens(choice: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Ids and log probabilities of ``logprobs.content``. Raises TokenMetadataError naming the entry."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        raise TokenMetadataError("the endpoint was asked for logprobs and sent none, so there are no token ids")
    ids: list[int] = []
    log_probs: list[float] = []
    for index, entry in enumerate(content):
        token, log_prob = (entry.get("token"), entry.get("logprob")) if isinstance(entry, dict) else (None, None)
        number = token.removeprefix(PREFIX) if isinstance(token, str) and token.startswith(PREFIX) else ""
        if not number.lstrip("-").isdecimal():
            raise TokenMetadataError(f"logprobs.content[{index}].token is not of the form {PREFIX}<n>")
        if not isinstance(log_prob, int | float) or isinstance(log_prob, bool):
            raise TokenMetadataError(f"logprobs.content[{index}].logprob is not a number")
        ids.append(int(number))
        log_probs.append(float(log_prob))
    return ids, log_probs
