"""One request as a handler sees it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from gym_compose.serving.prefix import PREFIX_KEY, rollout_of
from gym_compose.serving.session import Session, request_cookies
from gym_compose.wire.sessions import SESSION_ID_KEY


class Call:
    """The request around a body: session, cookies, headers, rollout. ``set_cookie`` adds a cookie to the answer.

    ``body`` are the bytes as they came.
    """

    __slots__ = ("_cookies", "body", "cookies_to_set", "scope")

    def __init__(self, scope: Scope, body: bytes) -> None:
        self.scope = scope
        self.body = body
        self._cookies: dict[str, str] | None = None
        self.cookies_to_set: dict[str, str] = {}

    @property
    def session(self) -> Session:
        """The session of this server's cookie. Raises RuntimeError on servers without sessions (environment servers)."""
        session = self.scope.get("session")
        if not isinstance(session, Session):
            raise RuntimeError("this server has no sessions")
        return session

    @property
    def session_id(self) -> str:
        return self.session.id

    @property
    def cookies(self) -> dict[str, str]:
        """All cookies of the request, this server's and others'."""
        if self._cookies is None:
            self._cookies = request_cookies(self.scope)
        return self._cookies

    @property
    def headers(self) -> Headers:
        return Headers(scope=self.scope)

    @property
    def rollout_prefix(self) -> str:
        """``/ng-rollout/<id>[/training-token-capture]`` or empty: to be put before the path of calls that belong to the same rollout."""
        prefix: str = self.scope.get(PREFIX_KEY, "")
        return prefix

    @property
    def rollout(self) -> str | None:
        """The id in that prefix."""
        return rollout_of(self.rollout_prefix)

    @property
    def path_params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.scope.get("path_params", {})
        return params

    def inner(self, cookies: Mapping[str, str]) -> Call:
        """A call that this server makes to itself without a request: those cookies only, a session of its own, no rollout prefix. What its
        handler sets is in ``cookies_to_set``."""
        scope = {**self.scope, "headers": [], "session": Session({SESSION_ID_KEY: str(uuid.uuid4())}), PREFIX_KEY: ""}
        call = Call(scope, b"")
        call._cookies = dict(cookies)
        return call

    def set_cookie(self, name: str, value: str) -> None:
        """Send ``name=value`` with the answer (another server's cookie that the caller needs)."""
        self.cookies_to_set[name] = value
