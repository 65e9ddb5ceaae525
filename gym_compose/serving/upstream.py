"""The client of an OpenAI-compatible endpoint (contract-servers 4.2).

Statuses that may pass (404, 408, 429, 500, 502 to 504, 520) are tried up to ``attempts`` times, half a second apart. A refused
connection is tried again until whoever asked gives up: nothing was sent. A connection that breaks after the request left is an error,
since the endpoint may have answered and charged for it. A key that the endpoint calls invalid or spent stops every further call of
this process before it reaches the wire; only a restart lifts that.

    UpstreamError              no answer that can be used; has the status and the body when there was one
    ├── PermanentUpstreamError the key is invalid or spent
    └── MissingPathError       the endpoint does not know the path
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
from gym_compose.wire.deadline import Deadline
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


class UpstreamError(Exception):
    """The endpoint did not give an answer that can be used. The text names URL, status and the head of the body; secrets are masked.

    ``body`` is what the endpoint said, masked; ``retry_after`` its header of that name.
    """

    def __init__(self, message: str, status: int | None = None, *, body: bytes = b"", retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after = retry_after


class PermanentUpstreamError(UpstreamError):
    """The key is invalid or spent: no further call is made until the server restarts."""


class MissingPathError(UpstreamError):
    """The endpoint does not know this path at all: 404 or 405, and not because of the model's name."""


@dataclass(frozen=True)
class _ConnectAttempts(Deadline):
    """No bound in time, but on how often a refused connection is tried again; the answer may take as long as it takes."""

    left: list[int] = field(default_factory=list)

    def pause(self, seconds: float) -> float:
        self.left[0] -= 1
        return seconds if self.left[0] >= 0 else 0.0


@dataclass
class Upstream:
    """One endpoint. ``base_url`` ends before ``/responses``; ``headers`` go with every call, below the authorization.

    ``connect_retries``: how often a refused connection is tried again, None for as long as the caller waits. ``pause`` is in seconds;
    ``sleep`` is given for tests.
    """

    http: HttpClient
    base_url: str
    api_key: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    attempts: int = 3
    max_concurrent: int | None = None
    connect_retries: int | None = None
    pause: float = Settings.endpoint_retry_seconds
    sleep: Sleep = asyncio.sleep
    _stopped: PermanentUpstreamError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._redactor = Redactor((self.api_key, *self.headers.values()))
        self._slots = asyncio.Semaphore(self.max_concurrent) if self.max_concurrent else contextlib.nullcontext()

    async def post(self, path: str, body: Json, *, missing_path_is_final: bool = False) -> Json:
        """POST ``body`` to ``base_url`` + ``path`` and return the JSON object of the answer.

        With ``missing_path_is_final`` a path that is not there raises MissingPathError at once. Raises UpstreamError,
        PermanentUpstreamError, and PeerDropped when the connection breaks.
        """
        async with self._slots:
            return await self._post(address(self.base_url, path), body, missing_path_is_final)

    async def tokenize(self, body: Json) -> Json:
        """POST to ``/tokenize``, which stands beside ``/v1`` (vLLM). Errors as ``post``."""
        async with self._slots:
            return await self._post(address(self.base_url, "/tokenize", strip="/v1"), body, False)

    async def _post(self, url: str, body: Json, missing_path_is_final: bool) -> Json:
        headers = {**self.headers, "authorization": f"Bearer {self.api_key}"}
        for attempt in range(1, self.attempts + 1):
            if self._stopped is not None:
                raise _again(self._stopped)
            reply = await self.http.request("POST", url, json=body, headers=headers, deadline=self._deadline())
            if reply.status < 400:
                return self._object(reply)
            if is_dead_key(reply.status, reply.body):
                lead = "no further request is sent until this server restarts, since"
                self._stopped = PermanentUpstreamError(self._text(reply, lead), reply.status, body=self._masked(reply))
                LOG.error("%s", self._stopped)
                raise _again(self._stopped)
            if missing_path_is_final and is_missing_path(reply.status, reply.body):
                raise MissingPathError(self._text(reply), reply.status, body=self._masked(reply))
            if reply.status not in RETRIED or attempt == self.attempts:
                raise UpstreamError(self._text(reply), reply.status, body=self._masked(reply), retry_after=reply.header("retry-after"))
            LOG.warning("%s (attempt %d of %d)", self._text(reply), attempt, self.attempts)
            await self.sleep(self.pause)
        raise UpstreamError(f"{url}: no attempt was made")

    def _deadline(self) -> Deadline:
        return Deadline(None) if self.connect_retries is None else _ConnectAttempts(None, left=[self.connect_retries])

    def _object(self, reply: Reply) -> Json:
        try:
            answer = reply.json()
        except orjson.JSONDecodeError:
            raise UpstreamError(self._text(reply, "the answer is not JSON:"), reply.status) from None
        if not isinstance(answer, dict):
            raise UpstreamError(self._text(reply, "the answer is not a JSON object:"), reply.status)
        return answer

    def _masked(self, reply: Reply) -> bytes:
        return self._redactor.text(reply.text).encode()

    def _text(self, reply: Reply, lead: str = "") -> str:
        # Masked before it is cut: half a key would not be recognised.
        body = self._redactor.text(reply.text)[:_EXCERPT]
        return self._redactor.text(f"{lead} {reply.method} {reply.url} answered {reply.status}: {body}".strip())


def _again(error: PermanentUpstreamError) -> PermanentUpstreamError:
    """A new exception that says the same: one that is raised twice collects the tracebacks of all requests."""
    return PermanentUpstreamError(str(error), error.status, body=error.body)


def address(base_url: str, path: str, *, strip: str = "") -> str:
    """``path`` below ``base_url`` (without its last part ``strip``), whose query (some gateways want their key there) stays behind it.

    A user and password in the URL are left out: a request has one Authorization header, and that one carries the API key.
    """
    parts = urlsplit(base_url)
    root = parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], root.removesuffix(strip) + path, parts.query, ""))


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
