"""The ASGI application of a server: one pass from a request to its answer (contract-config 5.5).

From the outside in: hang-up, errors as answers, rollout prefix, session, route. A layer of its own for each of them would wrap every
request and every message of its answer five times; here one function does them in that order. Routes with a fixed path, which a rollout
uses, are found in a mapping; everything else (health, tools with a name in their path, routes of a subclass, 404 and 405) is Starlette's.

| raised by a handler            | answer                                                                   |
|--------------------------------|--------------------------------------------------------------------------|
| ``ValidationError`` of the body | 422 ``{"detail": [{type, loc, msg, input}…]}``                           |
| ``HTTPError``                  | its status, ``{"detail": …}``                                            |
| ``PeerStatusError``            | 500, JSON string that quotes the body of the inner server                |
| cancelled from inside          | 500, JSON string                                                         |
| anything else                  | 500, JSON string ``repr(exception)``                                     |

The string 500s carry no cookie, as the peer's do: a client keeps the one it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send, StatelessLifespan

from gym_compose.serving.client import BODY_EXCERPT, PeerStatusError
from gym_compose.serving.disconnect import HANDLERS, HUNG_UP, Handlers
from gym_compose.serving.endpoint import Endpoint, EndpointApp
from gym_compose.serving.errors import send_json
from gym_compose.serving.prefix import PREFIX_KEY, split_prefix
from gym_compose.serving.routes import http_error
from gym_compose.serving.session import Session, SessionCookie

LOG_EVERY = 100

_log = logging.getLogger(__name__)


class Application:
    """``name`` is the server's cookie name, as texts of errors say it. ``cookie`` None: answers carry no session. ``prefix_paths``: what a
    rollout prefix is taken off; None for any path. ``routes`` are tried in order after ``fixed``."""

    def __init__(
        self,
        name: str,
        *,
        fixed: Sequence[Endpoint],
        routes: Sequence[BaseRoute],
        lifespan: StatelessLifespan[Starlette],
        cookie: SessionCookie | None,
        prefix_paths: frozenset[str] | None,
    ) -> None:
        self._name = name
        self._cookie = cookie
        self._prefix_paths = prefix_paths
        self._fixed: dict[tuple[str, str], EndpointApp] = {}
        first: list[BaseRoute] = []
        for endpoint in fixed:
            app = endpoint.asgi()
            self._fixed.setdefault((endpoint.method, endpoint.path), app)
            first.append(Route(endpoint.path, app, methods=[endpoint.method]))  # for HEAD, 405 and slashes at the end
        self._starlette = Starlette(routes=[*first, *routes], lifespan=lifespan)
        self._rest = ExceptionMiddleware(self._starlette.router, handlers={HTTPException: http_error})
        self.hung_up = 0
        """Requests of this process that were cancelled because their client went away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        handlers: Handlers | None = scope.get(HANDLERS)
        if handlers is not None:
            handlers.began(task, scope)
        answer = _Answer(send, task, handlers)
        try:
            await self._handle(scope, receive, answer)
        except PeerStatusError as error:
            _log.error("%s %s: %s", scope["method"], scope["path"], str(error)[:BODY_EXCERPT])
            text = f"{self._name} failed while calling an inner server: {error.body!r}"
        except asyncio.CancelledError:
            if scope.get(HUNG_UP):
                self._note_hang_up(scope, task)
                return
            if answer.started:
                raise
            text = "Request was cancelled"  # from inside the handler
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an answer (table above)
            _log.exception("%s %s failed", scope["method"], scope["path"])
            text = repr(error)
        else:
            return
        finally:
            if handlers is not None:
                handlers.answered(task)
        if answer.started:
            raise RuntimeError(f"the answer had begun when the handler failed: {text}")
        await send_json(send, 500, orjson.dumps(text))

    async def _handle(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        path: str = scope["path"]
        prefix, rest = split_prefix(path)
        if prefix and (self._prefix_paths is None or rest in self._prefix_paths):
            scope = {**scope, "path": rest, "raw_path": rest.encode(), PREFIX_KEY: prefix}
            path = rest
        if self._cookie is not None:
            answer.cookie = self._cookie
            answer.session = scope["session"] = self._cookie.load(scope)
        endpoint = self._fixed.get((scope["method"], path))
        if endpoint is None:
            scope["app"] = self._starlette
            await self._rest(scope, receive, answer)
            return
        try:
            await endpoint(scope, receive, answer)
        except HTTPException as error:
            if answer.started:
                raise
            response = await http_error(None, error)
            await response(scope, receive, answer)

    def _note_hang_up(self, scope: Scope, task: asyncio.Task[None]) -> None:
        task.uncancel()
        self.hung_up += 1
        if self.hung_up % LOG_EVERY == 1:
            _log.info("499 %s %s: the client hung up (%d so far)", scope["method"], scope["path"], self.hung_up)


class _Answer:
    """Where the messages of one answer go: adds the session's cookie and remembers how far it came."""

    __slots__ = ("_handlers", "_send", "_task", "cookie", "session", "started")

    def __init__(self, send: Send, task: asyncio.Task[None], handlers: Handlers | None) -> None:
        self._send = send
        self._task = task
        self._handlers = handlers
        self.cookie: SessionCookie | None = None
        self.session: Session | None = None
        self.started = False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.started = True
            if self.cookie is not None and self.session is not None:
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"set-cookie", self.cookie.dump(self.session)),
                    (b"vary", b"Cookie"),
                ]
        elif kind == "http.response.body" and self._handlers is not None and not message.get("more_body", False):
            self._handlers.answered(self._task)
        await self._send(message)
