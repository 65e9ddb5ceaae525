"""Errors of handlers, and the answers made of them without a framework: whole JSON bodies, 422s (contract-servers 1.4; ``application``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Send

__all__ = ["HTTPError", "JudgeError", "send_json", "validation_detail"]

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
