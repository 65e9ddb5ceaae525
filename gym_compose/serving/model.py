"""Model servers: a proxy to a language model, or a stand-in for one, in three dialects, streaming included (contract-servers 4.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from gym_compose.serving.call import Call
from gym_compose.serving.config import ModelServerConfig
from gym_compose.serving.dialects import chat_stream, messages_answer, responses_stream
from gym_compose.serving.dialects.chat_answer import to_response
from gym_compose.serving.dialects.chat_request import to_chat_request
from gym_compose.serving.dialects.errors import InvalidModelAnswer, messages_error, openai_error, status_of
from gym_compose.serving.dialects.events import EventStream, replay, replayed
from gym_compose.serving.dialects.messages_request import to_responses_params
from gym_compose.serving.endpoint import Endpoint, InvalidBody
from gym_compose.serving.errors import HTTPError
from gym_compose.serving.server import Server
from gym_compose.serving.upstream import UpstreamError
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.names import EXTENSION_KEY
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

T = TypeVar("T")
ParamsT = TypeVar("ParamsT", bound=BaseModel)
Json = dict[str, Any]

_log = logging.getLogger(__name__)


class ModelServer(Server):
    """Base of model servers. Override ``responses``, ``chat_completions`` or both; a dialect that can be served has a route.

    ``/v1/responses`` is served by ``responses``, or by ``chat_completions`` through the conversion; ``/v1/messages`` by ``/v1/responses``.
    Methods are asked for whole answers; streams are replayed from them. Bodies are strict: an unknown field is a 422 before anything is
    called; the body of a stream is sanitised instead. An UpstreamError passes the endpoint's status on, unless the config says
    ``compose: {strict: true}``; HTTPError is always passed on.
    """

    one_process = True

    prefix_paths: ClassVar[frozenset[str] | None] = None

    config: ModelServerConfig

    async def responses(self, params: ResponsesCreateParams, call: Call) -> ResponsesObject | Json:
        """``POST /v1/responses``. A mapping is checked and completed as a Responses object before it is sent."""
        given = params.given_fields()
        asked = checked(ChatCompletionCreateParams, to_chat_request(given))
        return to_response(await self.chat_completions(asked, call), given)

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> Any:
        """``POST /v1/chat/completions``; the answer, a mapping, is sent as it is."""
        raise NotImplementedError

    async def messages(self, body: Json, call: Call) -> Json:
        """``POST /v1/messages``: a message of the Messages API, made from what ``responses`` answers."""
        params = checked(ResponsesCreateParams, to_responses_params(body))
        return messages_answer.to_message(await self._respond(params, call), body.get("model"))

    @property
    def strict(self) -> bool:
        """Whether the config asks for the peer's behaviour where ours differs."""
        extension = self.merged.get(EXTENSION_KEY)
        return isinstance(extension, dict) and extension.get("strict") is True

    def endpoints(self) -> list[Endpoint]:
        kind = type(self)
        chat = kind.chat_completions is not ModelServer.chat_completions
        responses = chat or kind.responses is not ModelServer.responses
        routes = []
        if responses:
            routes.append(Endpoint("POST", "/v1/responses", self._responses_route, error_urls=True, describes=ResponsesCreateParams))
        if chat:
            routes.append(Endpoint("POST", "/v1/chat/completions", self._chat_route, describes=ChatCompletionCreateParams))
        if responses or kind.messages is not ModelServer.messages:
            routes.append(Endpoint("POST", "/v1/messages", self._messages_route))
        return routes

    async def _respond(self, params: ResponsesCreateParams, call: Call) -> ResponsesObject:
        answer = await self.responses(params, call)
        return answer if isinstance(answer, ResponsesObject) else responses_object(answer)

    async def _responses_route(self, body: bytes, call: Call) -> Any:
        """Any truthy ``stream`` asks for events."""
        request = _object(body) if b'"stream"' in body else {}
        if not request.get("stream"):
            return await self._whole(self._respond(parsed(ResponsesCreateParams, body), call), openai_error)
        clean, namespaces = responses_stream.sanitised(request)
        params = parsed(ResponsesCreateParams, orjson.dumps(clean))

        def render(response: ResponsesObject) -> Any:
            return responses_stream.response_events(response.full(), namespaces)

        try:
            return await self._replay(self._respond(params, call), render, responses_stream.failure_events)
        except Exception as error:  # noqa: BLE001 - a failed turn is told in the stream, whatever it was (contract-servers 4.1)
            _log.exception("POST /v1/responses: a streamed turn failed")
            return replayed(responses_stream.failure_events(error))

    async def _chat_route(self, body: bytes, call: Call) -> Any:
        """Only ``stream: true`` asks for events; whatever else stands there is refused."""
        request = _object(body) if b'"stream"' in body else {}
        if request.get("stream") is not True:
            return await self._whole(self.chat_completions(parsed(ChatCompletionCreateParams, body), call), openai_error)
        clean, with_usage = chat_stream.sanitised(request)
        params = parsed(ChatCompletionCreateParams, orjson.dumps(clean))

        def render(completion: Json) -> Any:
            return chat_stream.completion_events(completion, with_usage=with_usage)

        work = self._replay(self.chat_completions(params, call), render, chat_stream.failure_events)
        return await self._whole(work, openai_error)

    async def _messages_route(self, body: Json, call: Call) -> Any:
        if not body.get("stream"):
            return await self._whole(self.messages(body, call), messages_error)
        work = self._replay(self.messages(body, call), messages_answer.message_events, messages_answer.failure_events)
        return await self._whole(work, messages_error)

    async def _replay(self, work: Coroutine[Any, Any, T], render: Callable[[T], Any], failed: Callable[[Exception], Any]) -> EventStream:
        return await replay(work, render, failed, interval=self.settings.stream_keep_alive_seconds)

    async def _whole(self, work: Coroutine[Any, Any, T], form: Callable[[Exception], Json]) -> T | Response:
        """The result of ``work``; of an endpoint's refusal the endpoint's status, in the dialect's form."""
        try:
            return await work
        except UpstreamError as error:
            if self.strict or status_of(error) != error.status:
                raise
            headers = {} if error.retry_after is None else {"retry-after": error.retry_after}
            return Response(orjson.dumps(form(error)), error.status, headers, "application/json")


def _object(body: bytes) -> Json:
    """``body`` as a mapping; an empty one when it is something else, which the body's check then refuses."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def parsed(model: type[ParamsT], body: bytes) -> ParamsT:
    """A request body. Raises InvalidBody, which becomes a 422."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidBody(error) from None


def checked(model: type[ParamsT], fields: Json) -> ParamsT:
    """Converted fields as a request of the other dialect. Raises HTTPError 422 saying which field is wrong."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise HTTPError(422, _found(error)) from None


def responses_object(answer: Any) -> ResponsesObject:
    """``answer`` as a Responses object. Raises InvalidModelAnswer saying which field is wrong."""
    try:
        return ResponsesObject.model_validate(answer)
    except ValidationError as error:
        raise InvalidModelAnswer(f"the model's answer is no Responses object: {_found(error)}") from None


def _found(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}" for entry in error.errors(include_url=False))
