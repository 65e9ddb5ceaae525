"""A proxy to vLLM's OpenAI-compatible server, with the token ids that training needs (contract-servers 4.4, 4.5)."""

from __future__ import annotations

import time
from typing import Any

from vllm_audio import with_audio
from vllm_completions import Prompt, completion_body, template_of, to_chat_completion
from vllm_config import VLLMModelConfig
from vllm_replicas import Replicas
from vllm_request import chat_body, strip_hosted_fields
from vllm_thoughts import gather_thoughts, spread_thoughts
from vllm_tokens import TOKENIZED_FIELDS, attach_tokens, require_one_choice

from gym_compose.serving import Call, ModelServer
from gym_compose.serving.dialects import to_chat_request, to_response
from gym_compose.serving.dialects.chat_answer import first_choice
from gym_compose.serving.upstream import Upstream, UpstreamError
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams

Json = dict[str, Any]


class VLLMModel(ModelServer):
    """``/v1/responses`` and ``/v1/messages`` go through the chat of vLLM, unless ``is_responses_native``."""

    config: VLLMModelConfig

    def setup(self) -> None:
        self._replicas = Replicas(self.config, self._upstream)
        self._template = template_of(self.config) if self.config.use_completions_api and self.config.render_chat_template else None

    def _upstream(self, base_url: str) -> Upstream:
        config = self.config
        return Upstream(
            http=self.client.http,
            base_url=base_url,
            api_key=config.api_key,
            headers=config.default_headers,
            connect_retries=config.endpoint_connection_retries if config.endpoint_file else None,
            pause=self.settings.endpoint_retry_seconds,
        )

    async def responses(self, params: ResponsesCreateParams, call: Call) -> Json:
        given = params.given_fields()
        config = self.config
        if config.is_responses_native:
            return await self._native(given, call)
        body = to_chat_request(given, with_tokens=config.return_token_id_information)
        completion = await self._complete(body, call)
        return to_response(
            completion,
            given,
            model=config.model,
            parse_thoughts=config.uses_reasoning_parser,
            with_tokens=config.return_token_id_information,
        )

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> Json:
        return await self._complete(params.given_fields(), call)

    async def _native(self, given: Json, call: Call) -> Json:
        config = self.config
        body = {**(config.extra_body or {}), **given, "model": config.model}
        if config.chat_template_kwargs:
            body["chat_template_kwargs"] = config.chat_template_kwargs
        return await self._replicas.of(call.session_id).post("/responses", body | (config.sampling_overrides or {}))

    async def _complete(self, given: Json, call: Call) -> Json:
        """A chat request as a chat completion, thoughts inside the text, token ids on the message."""
        if self.config.use_completions_api:
            return await self._complete_text(given, call)
        config = self.config
        body = with_audio(chat_body(given, config), config)
        if config.uses_reasoning_parser and not config.preserve_reasoning_in_assistant_content:
            body["messages"] = spread_thoughts(body["messages"], config)
        require_one_choice(body, config)
        if config.forward_session_id_as_conversation_id:
            body["conversation_params"] = {"conversation_id": call.session_id}
        if not config.sequential_reasoning_allowed and _is_empty_turn(body["messages"]):
            return self._empty("content_filter")
        upstream = self._replicas.of(call.session_id)
        completion = await self._asked(upstream, "/chat/completions", body)
        if completion is None:
            return self._empty("length")
        choice = first_choice(completion)
        gather_thoughts(choice["message"], config, continued=bool(body.get("continue_final_message")))
        if config.return_token_id_information:
            await attach_tokens(completion, lambda: upstream.tokenize({name: body[name] for name in TOKENIZED_FIELDS if name in body}))
        return completion

    async def _complete_text(self, given: Json, call: Call) -> Json:
        config = self.config
        chat = strip_hosted_fields(given)
        prompt = Prompt.of(chat, config, self._template)
        body = completion_body(chat, prompt, config)
        require_one_choice(body, config)
        upstream = self._replicas.of(call.session_id)
        completion = await self._asked(upstream, "/completions", body)
        if completion is None:
            return self._empty("length")
        return await to_chat_completion(completion, config, lambda: upstream.tokenize(prompt.tokenize_body(config, body)))

    async def _asked(self, upstream: Upstream, path: str, body: Json) -> Json | None:
        """The answer; None when the conversation does not fit into the model's context any more."""
        try:
            return await upstream.post(path, body)
        except UpstreamError as error:
            text = error.body.decode("utf-8", "replace")
            if self.config.propagate_context_overflow_errors or error.status != 400:
                raise
            if "context length" not in text and "max_tokens" not in text:
                raise
            return None

    def _empty(self, reason: str) -> Json:
        """A completion of ours, which says nothing."""
        message: Json = {"role": "assistant", "content": None, "tool_calls": None}
        return {
            "id": f"chatcmpl-{reason}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.config.model,
            "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        }


def _is_empty_turn(messages: list[Json]) -> bool:
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not (last.get("content") or last.get("tool_calls"))


if __name__ == "__main__":
    VLLMModel.run_webserver()
