"""A proxy to an OpenAI-compatible endpoint, by Responses or by Chat Completions (contract-servers 4.2 to 4.4)."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from openai_chat_answer import to_response
from openai_chat_request import to_chat_request
from openai_upstream import Endpoint, MissingPathError
from pydantic import Field

from gym_compose.serving import Call, ModelServer, ModelServerConfig
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
        self._endpoint = Endpoint(
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
        completion = await self._endpoint.post(CHAT, self._body(to_chat_request(given)), missing_path_is_final=missing_path_is_final)
        return to_response(completion, given, lambda: uuid.uuid4().hex, parse_thoughts=self.config.uses_reasoning_parser)

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


if __name__ == "__main__":
    SimpleModelServer.run_webserver()
