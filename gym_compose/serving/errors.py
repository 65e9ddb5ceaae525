"""Errors as answers: what a failing handler looks like on the wire (contract-servers 1.4).

| raised by a handler      | answer                                                                                 |
|--------------------------|----------------------------------------------------------------------------------------|
| ``ValidationError`` of the body | 422 ``{"detail": [{type, loc, msg, input}…]}``                                  |
| ``HTTPError``            | its status, ``{"detail": …}``                                                          |
| ``PeerStatusError``      | 500, JSON string that quotes the body of the inner server                              |
| cancelled from inside    | 500, JSON string                                                                       |
| anything else            | 500, JSON string ``repr(exception)``                                                   |

The string 500s are made outside of the session middleware and so carry no cookie, as the peer's do: a client keeps the one it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gym_compose.serving.client import BODY_EXCERPT, PeerStatusError

__all__ = ["ErrorMiddleware", "HTTPError", "JudgeError", "send_json", "validation_detail"]

LOGGED_BODY = 4096
LOGGED_ERRORS = 20

_log = logging.getLogger(__name__)


class HTTPError(HTTPException):
    """Raised by a handler for an answer of that status: ``{"detail": …}``, any JSON value."""

    def __init__(self, status_code: int, detail: Any = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status_code, detail, headers)


class JudgeError(Exception):
    """The call to a judge failed: the sample has no valid reward. ``/verify`` turns it into a masked answer (contract-servers 2.1)."""


async def send_json(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """One whole JSON answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})


def validation_detail(error: ValidationError, body: bytes, *, include_url: bool = False) -> bytes:
    """The body of a 422. ``include_url``: entries name the page of their error type, as model servers' do."""
    detail: list[Mapping[str, Any]] = []
    for entry in error.errors(include_url=include_url):
        item: dict[str, Any] = {"type": entry["type"], "loc": ["body", *entry["loc"]], "msg": entry["msg"], "input": entry["input"]}
        if entry["type"] == "json_invalid":
            if not body.strip():
                item = {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}
            else:
                item["input"] = {}
        if "ctx" in entry and item["type"] != "missing":
            item["ctx"] = {
                key: value if isinstance(value, str | int | float | bool | list) else str(value) for key, value in entry["ctx"].items()
            }
        if include_url and "url" in entry:
            item["url"] = entry["url"]
        detail.append(item)
    return orjson.dumps({"detail": detail}, default=repr, option=orjson.OPT_NON_STR_KEYS)


def log_validation(path: str, error: ValidationError, body: bytes) -> None:
    """One bounded line: what was wrong, and the beginning of the body with control characters escaped."""
    found = [f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}" for entry in error.errors(include_url=False)[:LOGGED_ERRORS]]
    more = "" if error.error_count() <= LOGGED_ERRORS else f" (and {error.error_count() - LOGGED_ERRORS} more)"
    excerpt = ascii(body[:LOGGED_BODY].decode("utf-8", "replace"))
    _log.warning("422 on %s: %s%s; body begins %s", path, "; ".join(found), more, excerpt)


class ErrorMiddleware:
    """Turns what a handler raised into a string 500. ``server`` is the server's cookie name, as the texts say it."""

    def __init__(self, app: ASGIApp, server: str) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except PeerStatusError as error:
            _log.error("%s %s: %s", scope["method"], scope["path"], str(error)[:BODY_EXCERPT])
            text = f"{self._server} failed while calling an inner server: {error.body!r}"
        except asyncio.CancelledError:
            # A hang-up is handled further out and cancels with a mark; this one comes from inside the handler.
            if scope.get(HUNG_UP) or started:
                raise
            text = "Request was cancelled"
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an answer (table above)
            _log.exception("%s %s failed", scope["method"], scope["path"])
            text = repr(error)
        else:
            return
        if started:
            raise RuntimeError(f"the answer had begun when the handler failed: {text}")
        await send_json(send, 500, orjson.dumps(text))


HUNG_UP = "gym_compose.hung_up"
"""Key of the scope that the disconnect middleware sets before it cancels a handler."""
