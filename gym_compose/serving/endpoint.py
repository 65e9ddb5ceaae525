"""A route and its handler: body in, answer out, without a framework's detours on the way.

A handler is ``async def handler(body: B, call: Call) -> R`` in any subset and order of parameters:

* ``B`` is a pydantic model (or anything a ``TypeAdapter`` takes), ``dict`` for any JSON object, or ``bytes``; a default makes it optional
* a parameter named like a path parameter gets its text
* ``R`` is a pydantic model, any JSON value, ``bytes`` (JSON already), a ResponsesObject or a starlette Response
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, get_type_hints, overload

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gym_compose.serving.call import Call
from gym_compose.serving.errors import HTTPError, log_validation, send_json, validation_detail
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

Handler = Callable[..., Awaitable[Any]]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[Any]])

_TOOL = "__gym_tool__"
_PATH_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_ABSENT: Any = object()
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request. Raises ClientGone when the client hung up before its end."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body
    chunks = []
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()


class ClientGone(Exception):
    """The request broke off; there is nobody to answer."""


def to_json(value: Any) -> bytes:
    """A handler's answer as JSON bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, ResponsesObject | ResponsesCreateParams):
        return orjson.dumps(value.full(), default=_plain, option=_OPTIONS)
    if isinstance(value, BaseModel):
        return value.__pydantic_serializer__.to_json(value, by_alias=True)
    return orjson.dumps(value, default=_plain, option=_OPTIONS)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


@dataclass(frozen=True)
class Endpoint:
    """One route. ``path`` may hold ``{name}`` and ``{name:path}``. ``error_urls``: entries of a 422 name their page (model servers);
    ``describes``: the body as ``/openapi.json`` shows it, where the handler reads bytes."""

    method: str
    path: str
    handler: Handler
    documented: bool = True
    error_urls: bool = False
    describes: Any = None

    @cached_property
    def path_parameters(self) -> tuple[str, ...]:
        return tuple(_PATH_PARAMETER.findall(self.path))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        target = inspect.unwrap(self.handler)
        return get_type_hints(getattr(target, "__func__", target), include_extras=True)

    @cached_property
    def _roles(self) -> tuple[tuple[str, str, Any], ...]:
        """(parameter, role, default) of the handler."""
        roles = []
        for name, parameter in inspect.signature(self.handler).parameters.items():
            default = _ABSENT if parameter.default is inspect.Parameter.empty else parameter.default
            if self._hints.get(name) is Call:
                roles.append((name, "call", default))
            elif name in self.path_parameters:
                roles.append((name, "path", default))
            else:
                roles.append((name, "body", default))
        if sum(role == "body" for _, role, _ in roles) > 1:
            raise TypeError(f"{self.handler!r} has more than one body parameter")
        return tuple(roles)

    @cached_property
    def body_type(self) -> Any:
        """The annotation of the body parameter; None when there is none."""
        return next((self._hints.get(name, Any) for name, role, _ in self._roles if role == "body"), None)

    @cached_property
    def return_type(self) -> Any:
        return self._hints.get("return", Any)

    def asgi(self) -> EndpointApp:
        """The endpoint as an ASGI application for a Starlette route."""
        return EndpointApp(self)


class EndpointApp:
    """Runs one endpoint. Everything that can be known before the first request is computed here, once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._handler = endpoint.handler
        self._error_urls = endpoint.error_urls
        self._roles = endpoint._roles
        self._optional = next((default for _, role, default in self._roles if role == "body"), _ABSENT)
        kind = endpoint.body_type
        self._raw = kind is bytes
        self._object = kind in (dict, dict[str, Any])
        self._has_body = kind is not None
        self._validate: Callable[[bytes], Any] | None = None
        if self._has_body and not self._raw and not self._object:
            self._validate = TypeAdapter(kind).validator.validate_json

    def _parse(self, body: bytes) -> Any:
        if self._raw:
            return body
        if self._optional is not _ABSENT and not body.strip():
            return self._optional
        if self._validate is not None:
            return self._validate(body)
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return _ANY_OBJECT.validate_json(body)  # for its error
        return value if isinstance(value, dict) else _ANY_OBJECT.validate_python(value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive)
        except ClientGone:
            return
        call = Call(scope, body)
        parsed = None
        if self._has_body:
            try:
                parsed = self._parse(body)
            except ValidationError as error:
                log_validation(scope["path"], error, body)
                await send_json(send, 422, validation_detail(error, body, include_url=self._error_urls))
                return
        arguments: dict[str, Any] = {}
        for name, role, default in self._roles:
            if role == "body":
                arguments[name] = parsed
            elif role == "call":
                arguments[name] = call
            else:
                arguments[name] = scope["path_params"].get(name, default)
        try:
            result = await self._handler(**arguments)
        except InvalidBody as error:
            log_validation(scope["path"], error.error, body)
            await send_json(send, 422, validation_detail(error.error, body, include_url=self._error_urls))
            return
        if isinstance(result, Response):
            for name, value in call.cookies_to_set.items():
                result.raw_headers.append(_cookie_header(name, value))
            await result(scope, receive, send)
            return
        await send_json(send, 200, to_json(result), [_cookie_header(name, value) for name, value in call.cookies_to_set.items()])


_ANY_OBJECT = TypeAdapter(dict[str, Any])


class InvalidBody(Exception):
    """Raised by a handler that validates a part of its body itself: becomes the same 422 as a body of the wrong type."""

    def __init__(self, error: ValidationError) -> None:
        super().__init__(str(error))
        self.error = error


def _cookie_header(name: str, value: str) -> tuple[bytes, bytes]:
    if any(character in value for character in ';,"\\\r\n '):
        raise HTTPError(500, f"the value of cookie {name!r} cannot stand in a header")
    return b"set-cookie", f"{name}={value}; Path=/; SameSite=lax".encode("latin-1")


@overload
def tool(handler: HandlerT) -> HandlerT: ...
@overload
def tool(handler: str) -> Callable[[HandlerT], HandlerT]: ...
def tool(handler: HandlerT | str) -> HandlerT | Callable[[HandlerT], HandlerT]:
    """Serve a method of a resources server as ``POST /<its name>``, or under another name: ``@tool("name")``."""
    if isinstance(handler, str):
        return _mark(f"/{handler}")
    return _mark(f"/{handler.__name__}")(handler)


def catch_all_tool(handler: HandlerT) -> HandlerT:
    """Serve a method as ``POST /{name}``: every tool that has no route of its own. It gets the name as parameter ``name``."""
    return _mark("/{name}")(handler)


def _mark(path: str) -> Callable[[HandlerT], HandlerT]:
    def mark(handler: HandlerT) -> HandlerT:
        setattr(handler, _TOOL, path)
        return handler

    return mark


def declared_tools(server: object) -> list[Endpoint]:
    """Endpoints of the methods marked with ``tool``, base classes first, in the order they are written; catch-alls last."""
    found: dict[str, Endpoint] = {}
    for base in reversed(type(server).__mro__):
        for name, member in vars(base).items():
            if getattr(member, _TOOL, None) is not None:
                found[name] = Endpoint("POST", getattr(member, _TOOL), getattr(server, name))
    return sorted(found.values(), key=lambda endpoint: bool(endpoint.path_parameters))
