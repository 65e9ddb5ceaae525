"""A proxy to an OpenAI-compatible endpoint, by Responses or by Chat Completions (contract-servers 4.2 to 4.4)."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from pydantic import Field

from gym_compose.serving import Call, ModelServer, ModelServerConfig
from gym_compose.serving.dialects import to_chat_request, to_response
from gym_compose.serving.upstream import MissingPathError, Upstream
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams

RESPONSES = "/responses"
CHAT = "/chat/completions"
Json = dict[str, Any]


class SimpleModelServerConfig(ModelServerConfig):
    openai_base_url: str = Field(min_length=1)
    openai_api_key: str = Field(repr=False)
    openai_model: str = Field(min_length=1)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    openai_default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    max_http_attempts: int = Field(default=3, ge=1)
    max_concurrent_requests: int | None = Field(default=None, ge=1)
    drop_input_reasoning_items: bool = False
    upstream_api: Literal["auto", "responses", "chat_completions"] = "auto"
    uses_reasoning_parser: bool = False


class SimpleModelServer(ModelServer):
    """Passes requests on with the model's name replaced. Under ``auto`` it learns once which dialect the endpoint speaks."""

    config: SimpleModelServerConfig

    def setup(self) -> None:
        config = self.config
        self._endpoint = Upstream(
            http=self.client.http,
            base_url=config.openai_base_url,
            api_key=config.openai_api_key,
            headers=config.openai_default_headers,
            attempts=config.max_http_attempts,
            max_concurrent=config.max_concurrent_requests,
            pause=self.settings.endpoint_retry_seconds,
        )
        self._dialect = config.upstream_api

    async def responses(self, params: ResponsesCreateParams, call: Call) -> Json:  # noqa: ARG002 - nothing of the call goes upstream
        given = self._prepared(params.given_fields())
        if self._dialect == "chat_completions":
            return await self._through_chat(given)
        body = self._body(given)
        if self._dialect == "responses":
            return await self._endpoint.post(RESPONSES, body)
        try:
            answer = await self._endpoint.post(RESPONSES, body, missing_path_is_final=True)
        except MissingPathError:
            try:
                answer = await self._through_chat(given, missing_path_is_final=True)
            except MissingPathError:
                # Neither path is there (yet): the endpoint may be starting, so the usual attempts are made.
                return await self._endpoint.post(RESPONSES, body)
            self._dialect = "chat_completions"
        else:
            self._dialect = "responses"
        return answer

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> Json:  # noqa: ARG002 - as above
        return await self._endpoint.post(CHAT, self._body(params.given_fields()))

    async def _through_chat(self, given: Json, *, missing_path_is_final: bool = False) -> Json:
        body = to_chat_request(given)
        body |= _extra_body(body.pop("metadata", None) or {})
        if body.get("top_logprobs") is not None:
            body["logprobs"] = True
        completion = await self._endpoint.post(CHAT, self._body(body), missing_path_is_final=missing_path_is_final)
        return to_response(completion, given, parse_thoughts=self.config.uses_reasoning_parser)

    def _prepared(self, given: Json) -> Json:
        items = given.get("input")
        if isinstance(items, list):
            if self.config.drop_input_reasoning_items:
                items = [item for item in items if item.get("type") != "reasoning"]
            # Items of earlier answers come with all their fields; endpoints refuse a null where they expect nothing.
            given = {**given, "input": [{name: value for name, value in item.items() if value is not None} for item in items]}
        return given

    def _body(self, given: Json) -> Json:
        return {**self.config.extra_body, **given, "model": self.config.openai_model}


def _extra_body(metadata: Json) -> Json:
    """``metadata.extra_body``, a JSON object as text, for the body itself: that is how ``num_repeats_add_seed`` reaches an endpoint.

    Raises ValueError for one that is no JSON object.
    """
    text = metadata.get("extra_body")
    if text is None:
        return {}
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"metadata.extra_body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("metadata.extra_body is not a JSON object")
    return parsed


if __name__ == "__main__":
    SimpleModelServer.run_webserver()
