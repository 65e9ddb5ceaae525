"""The client of an OpenAI-compatible endpoint (contract-servers 4.2).

Statuses that may pass (404, 408, 429, 500, 502 to 504, 520) are tried up to ``attempts`` times, half a second apart. A refused
connection is tried again until whoever asked gives up: nothing was sent. A connection that breaks after the request left is an error,
since the endpoint may have answered and charged for it. A key that the endpoint calls invalid or spent stops every further call of
this process before it reaches the wire; only a restart lifts that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from gym_compose.serving.client import HttpClient, Reply
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

LOG = logging.getLogger(__name__)

RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504, 520})
_DEAD_KEY = frozenset({"invalid_api_key", "invalid_api_token", "authentication_error"})
_DEAD_KEY_TEXTS = ("invalid api key", "incorrect api key")
_SPENT = frozenset({"insufficient_quota", "budget_exceeded"})
_EXCERPT = 200

Json = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]


class EndpointError(Exception):
    """The endpoint did not give an answer that can be used. The text names URL, status and the head of the body; secrets are masked."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class PermanentEndpointError(EndpointError):
    """The key is invalid or spent: no further call is made until the server restarts."""


class MissingPathError(EndpointError):
    """The endpoint does not know this path at all: 404 or 405, and not because of the model's name."""


@dataclass
class Endpoint:
    """One endpoint. ``base_url`` ends before ``/responses``; ``headers`` go with every call, below the authorization.

    ``pause`` is in seconds; ``sleep`` is given for tests.
    """

    http: HttpClient
    base_url: str
    api_key: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    attempts: int = 3
    max_concurrent: int | None = None
    pause: float = Settings.endpoint_retry_seconds
    sleep: Sleep = asyncio.sleep
    _stopped: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._redactor = Redactor((self.api_key, *self.headers.values()))
        self._slots = asyncio.Semaphore(self.max_concurrent) if self.max_concurrent else contextlib.nullcontext()

    async def post(self, path: str, body: Json, *, missing_path_is_final: bool = False) -> Json:
        """POST ``body`` to ``base_url`` + ``path`` and return the JSON object of the answer.

        With ``missing_path_is_final`` a path that is not there raises MissingPathError at once. Raises EndpointError,
        PermanentEndpointError, and PeerDropped when the connection breaks.
        """
        async with self._slots:
            return await self._post(path, body, missing_path_is_final)

    async def _post(self, path: str, body: Json, missing_path_is_final: bool) -> Json:
        url = address(self.base_url, path)
        headers = {**self.headers, "authorization": f"Bearer {self.api_key}"}
        for attempt in range(1, self.attempts + 1):
            if self._stopped is not None:
                raise PermanentEndpointError(self._stopped)
            reply = await self.http.request("POST", url, json=body, headers=headers)
            if reply.status < 400:
                return self._object(reply)
            if is_dead_key(reply.status, reply.body):
                self._stopped = self._text(reply, "no further request is sent until this server restarts, since")
                LOG.error("%s", self._stopped)
                raise PermanentEndpointError(self._stopped, reply.status)
            if missing_path_is_final and is_missing_path(reply.status, reply.body):
                raise MissingPathError(self._text(reply), reply.status)
            if reply.status not in RETRIED or attempt == self.attempts:
                raise EndpointError(self._text(reply), reply.status)
            LOG.warning("%s (attempt %d of %d)", self._text(reply), attempt, self.attempts)
            await self.sleep(self.pause)
        raise EndpointError(f"{url}: no attempt was made")

    def _object(self, reply: Reply) -> Json:
        try:
            answer = reply.json()
        except orjson.JSONDecodeError:
            raise EndpointError(self._text(reply, "the answer is not JSON:"), reply.status) from None
        if not isinstance(answer, dict):
            raise EndpointError(self._text(reply, "the answer is not a JSON object:"), reply.status)
        return answer

    def _text(self, reply: Reply, lead: str = "") -> str:
        # Masked before it is cut: half a key would not be recognised.
        body = self._redactor.text(reply.text)[:_EXCERPT]
        return self._redactor.text(f"{lead} {reply.method} {reply.url} answered {reply.status}: {body}".strip())


def address(base_url: str, path: str) -> str:
    """``path`` below ``base_url``, whose query (some gateways want their key there) stays behind it.

    A user and password in the URL are left out: a request has one Authorization header, and that one carries the API key.
    """
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + path, parts.query, ""))


def is_dead_key(status: int, body: bytes) -> bool:
    """Whether the endpoint says that the key is invalid (401, 403) or spent (429), not merely refused this once."""
    codes = error_codes(body)
    if status in (401, 403):
        text = body.decode("utf-8", "replace").lower()
        return bool(codes & _DEAD_KEY) or any(phrase in text for phrase in _DEAD_KEY_TEXTS)
    return status == 429 and bool(codes & _SPENT)


def is_missing_path(status: int, body: bytes) -> bool:
    """Whether the path is not there; a 404 for the model's name is something else."""
    return status == 405 or (status == 404 and "model_not_found" not in error_codes(body))


def error_codes(body: bytes) -> frozenset[str]:
    """``error.code`` and ``error.type`` of an OpenAI-style error body, in lower case; ``error`` itself when it is a string."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return frozenset()
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, str):
        return frozenset({error.lower()})
    if not isinstance(error, dict):
        return frozenset()
    return frozenset(str(error[name]).lower() for name in ("code", "type") if error.get(name) is not None)
