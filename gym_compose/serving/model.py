"""Model servers: a proxy to a language model, or a stand-in for one, in up to three dialects (contract-servers 4.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import ValidationError

from gym_compose.serving.call import Call
from gym_compose.serving.config import ModelServerConfig
from gym_compose.serving.endpoint import Endpoint
from gym_compose.serving.server import Server
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject


class ModelServer(Server):
    """Base of model servers. A dialect has a route when its method is overridden, else its path is a 404.

    Bodies are strict: an unknown field is a 422 before anything is called. Raise HTTPError to pass an upstream's status on.
    """

    prefix_paths: ClassVar[frozenset[str] | None] = None

    config: ModelServerConfig

    async def responses(self, params: ResponsesCreateParams, call: Call) -> ResponsesObject | dict[str, Any]:
        """``POST /v1/responses``. A mapping is checked and completed as a Responses object before it is sent."""
        raise NotImplementedError

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> Any:
        """``POST /v1/chat/completions``; the answer is sent as it is."""
        raise NotImplementedError

    async def messages(self, body: dict[str, Any], call: Call) -> Any:
        """``POST /v1/messages``; the answer is sent as it is."""
        raise NotImplementedError

    def endpoints(self) -> list[Endpoint]:
        routes = []
        if type(self).responses is not ModelServer.responses:
            routes.append(Endpoint("POST", "/v1/responses", self._responses_route, error_urls=True))
        if type(self).chat_completions is not ModelServer.chat_completions:
            routes.append(Endpoint("POST", "/v1/chat/completions", self._chat_route, error_urls=True))
        if type(self).messages is not ModelServer.messages:
            routes.append(Endpoint("POST", "/v1/messages", self._messages_route))
        return routes

    async def _responses_route(self, body: ResponsesCreateParams, call: Call) -> ResponsesObject:
        answer = await self.responses(body, call)
        return answer if isinstance(answer, ResponsesObject) else responses_object(answer)

    async def _chat_route(self, body: ChatCompletionCreateParams, call: Call) -> Any:
        return await self.chat_completions(body, call)

    async def _messages_route(self, body: dict[str, Any], call: Call) -> Any:
        return await self.messages(body, call)


class InvalidModelAnswer(Exception):
    """What a model endpoint answered is no Responses object."""


def responses_object(answer: Any) -> ResponsesObject:
    """``answer`` as a Responses object. Raises InvalidModelAnswer saying which field is wrong."""
    try:
        return ResponsesObject.model_validate(answer)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}" for entry in error.errors(include_url=False))
        raise InvalidModelAnswer(f"the model's answer is no Responses object: {found}") from None
