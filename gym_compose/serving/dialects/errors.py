"""What went wrong, as each dialect says it; statuses of an endpoint are passed on (design.md; contract-servers 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException

from gym_compose.serving.client import PeerStatusError
from gym_compose.serving.upstream import PermanentUpstreamError, UpstreamError

Json = dict[str, Any]

_MESSAGES_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class ConversionError(NotImplementedError):
    """A part of a request or an answer that another dialect has no word for. It is refused, never dropped."""


class InvalidModelAnswer(Exception):
    """What a model endpoint answered is not of the dialect that it was asked in."""


def status_of(error: Exception) -> int:
    """The HTTP status that stands for ``error``: the endpoint's or the handler's own, else 500."""
    status = error.status_code if isinstance(error, HTTPException) else None
    if isinstance(error, UpstreamError | PeerStatusError):
        status = error.status
    return status if status is not None and status >= 400 else 500


def message_of(error: Exception) -> str:
    """What there is to say about ``error`` in one text."""
    if isinstance(error, HTTPException):
        return error.detail if isinstance(error.detail, str) else orjson.dumps(error.detail).decode()
    return str(error) or type(error).__name__


def openai_error(error: Exception) -> Json:
    """``{"error": {message, type, code}}``; where an endpoint answered with an object, that object as it came."""
    told = _told(error)
    if isinstance(told, dict):
        if isinstance(error, PermanentUpstreamError) and isinstance(told.get("error"), dict):
            return {**told, "error": {**told["error"], "message": message_of(error)}}
        return told
    status = status_of(error)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message_of(error), "type": kind, "code": status}}


def messages_error(error: Exception) -> Json:
    """``{"type": "error", "error": {type, message}}`` of the Messages API."""
    told = _told(error)
    if isinstance(told, dict) and told.get("type") == "error" and isinstance(told.get("error"), dict):
        return told
    inner = told.get("error") if isinstance(told, dict) else None
    message = inner.get("message") if isinstance(inner, dict) and not isinstance(error, PermanentUpstreamError) else None
    kind = _MESSAGES_TYPES.get(status_of(error), "api_error")
    return {"type": "error", "error": {"type": kind, "message": message if isinstance(message, str) else message_of(error)}}


def _told(error: Exception) -> Any:
    if not isinstance(error, UpstreamError) or not error.body:
        return None
    try:
        return orjson.loads(error.body)
    except orjson.JSONDecodeError:
        return None
