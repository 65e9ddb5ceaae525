"""Session cookies: signed, re-sent with every handled answer (contract-servers 3.1, contract-config 5.4).

Value: base64 of the session's JSON, a timestamp and a signature by itsdangerous' ``TimestampSigner``, as Starlette writes it. The secret is
the cookie's name, as in the peer, so anybody can forge one; when every server of a deployment is native the launcher hands over a per-run
key and the secret becomes that key with the name. A cookie that does not verify is no error: a new session begins.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import orjson
from itsdangerous import BadSignature, TimestampSigner
from starlette.types import Scope

from gym_compose.wire.sessions import SESSION_ID_KEY

MAX_AGE_SECONDS: Final = 14 * 24 * 3600  # Max-Age of the field's cookie
RESENT_SECONDS: Final = 60.0  # how long a cookie is sent again as it is, its timestamp not renewed
REMEMBERED: Final = 4096  # cookies, about 0.7 KB each

_deployment_key: str | None = None
_FORGOTTEN: Final[tuple[float, dict[str, Any]]] = (0.0, {})


def set_deployment_key(key: str | None) -> None:
    """Sign this process's cookies with ``key``; None for the peer's rule. Called by the launcher, before the server is built."""
    global _deployment_key
    _deployment_key = key


def signing_secret(name: str) -> str:
    """The secret for a cookie name: one server's cookie is never valid at another, whatever the key."""
    return name if _deployment_key is None else f"{_deployment_key}:{name}"


class Session(dict[str, Any]):
    """What the cookie holds: JSON values by key. ``id`` is what servers key their state by. ``text``: the cookie that it came in."""

    text: str | None = None

    @property
    def id(self) -> str:
        value: str = self[SESSION_ID_KEY]
        return value

    @id.setter
    def id(self, value: str) -> None:
        self[SESSION_ID_KEY] = value


def read_cookies(header: str) -> dict[str, str]:
    """The cookies of one ``Cookie`` header. A value in double quotes is unquoted (Python's cookie writer quotes ``=`` and ``/``)."""
    found: dict[str, str] = {}
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals and name:
            found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return found


def request_cookies(scope: Scope) -> dict[str, str]:
    """All cookies of a request."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name == b"cookie":
            found.update(read_cookies(value.decode("latin-1")))
    return found


class _Signer(TimestampSigner):
    """The same signatures; the key is derived once, not for each of them."""

    def __init__(self, secret: str) -> None:
        super().__init__(secret)
        self._keyed = hmac.new(self.derive_key(), digestmod=hashlib.sha1)

    def get_signature(self, value: str | bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(value.encode() if isinstance(value, str) else value)
        return base64.urlsafe_b64encode(keyed.digest()).rstrip(b"=")


class SessionCookie:
    """The cookie of one server, to and from a ``Session``.

    Cookies of the last ``RESENT_SECONDS`` are remembered with what they hold, up to ``REMEMBERED`` of them: a rollout's next request
    brings one back, and it is neither verified nor signed again when its session has not changed.
    """

    def __init__(self, name: str, secret: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._signer = _Signer(secret)
        self._needle = name.encode("latin-1", "replace")
        self._clock = clock
        self._remembered: dict[str, tuple[float, dict[str, Any]]] = {}

    def load(self, scope: Scope) -> Session:
        """The session that a request brings, or a new one."""
        session = Session()
        for header, value in scope["headers"]:
            if header == b"cookie" and self._needle in value:
                text = read_cookies(value.decode("latin-1")).get(self._name)
                if text is not None:
                    session = self._verify(text)
        if not isinstance(session.get(SESSION_ID_KEY), str):
            session[SESSION_ID_KEY] = str(uuid.uuid4())
        return session

    def _verify(self, text: str) -> Session:
        known = self._remembered.get(text)
        if known is not None and self._clock() - known[0] < RESENT_SECONDS:
            session = Session(known[1])
            session.text = text
            return session
        try:
            payload = orjson.loads(base64.b64decode(self._signer.unsign(text.encode("latin-1"), max_age=MAX_AGE_SECONDS)))
        except (BadSignature, binascii.Error, ValueError):
            return Session()
        return Session(payload) if isinstance(payload, dict) else Session()

    def dump(self, session: Session) -> bytes:
        """The ``Set-Cookie`` value for a session."""
        text = session.text
        if text is None or self._remembered.get(text, _FORGOTTEN)[1] != session:
            text = self._sign(session)
        return b"%b=%b; path=/; Max-Age=%d; httponly; samesite=lax" % (self._needle, text.encode("latin-1"), MAX_AGE_SECONDS)

    def _sign(self, session: Session) -> str:
        data = b'{"session_id": %b}' % orjson.dumps(session.id) if len(session) == 1 else orjson.dumps(session)
        text = self._signer.sign(base64.b64encode(data)).decode("latin-1")
        if len(self._remembered) >= REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[text] = (self._clock(), dict(session))
        return text
