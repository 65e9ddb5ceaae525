"""HTTP between Gym servers, and from the driver to them: one pool per process, cookies explicit, retried only where a replay is safe.

    PeerError                   a call that got no usable answer
    ├── PeerUnreachable         no connection until the deadline: nothing was sent
    ├── PeerDropped             the connection broke after the request was sent
    ├── PeerTimeout             the deadline passed after the request was sent
    ├── LocalResourceError      this process is out of file descriptors or memory: no peer's fault, nothing was sent
    └── PeerStatusError         an answer of 400 and above, raised by ``Reply.raise_for_status``

The peer re-sends a POST after a dropped connection and so runs an episode twice (contract-servers 8.50). Here a refused or unresolved
connection is tried again until the caller's deadline, since nothing was written; once a connection stood, a request is never sent again.
``http://`` goes over the lean connections of ``connection``, everything else over aiohttp (``general``). Needs httptools and orjson only:
the driver imports this module, and no web framework with it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import orjson

from gym_compose.serving.connection import Answer, BrokenConnectionError, NoConnectionError, PlainPool, head_of, plain_target
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.settings import Settings

if TYPE_CHECKING:
    from gym_compose.serving.general import GeneralPool

UNBOUNDED = Deadline(None)
BODY_EXCERPT = 2000
_LOCAL_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_JSON = {"content-type": "application/json"}

MODEL_NAME_VARIABLE = "NEMO_GYM_MODEL_SERVER_NAME"
MODEL_URL_VARIABLE = "NEMO_GYM_MODEL_SERVER_BASE_URL"


class PeerError(Exception):
    """A call to another server that got no usable answer. ``failure_kind`` is from the shared vocabulary, ``retryable`` says whether a
    later attempt of the same episode may fare better (contract-data 2.5)."""

    failure_kind: str | None = None
    retryable = True

    def __init__(self, message: str, *, method: str, url: str) -> None:
        super().__init__(message)
        self.method = method
        self.url = url


class PeerUnreachable(PeerError):
    failure_kind = "transport_unreachable"


class PeerDropped(PeerError):
    failure_kind = "transport_peer_drop"


class PeerTimeout(PeerError):
    failure_kind = "transport_timeout"


class LocalResourceError(PeerError):
    failure_kind = "transport_local_resource"


class PeerStatusError(PeerError):
    """The peer answered with an error status; its body is kept, because callers quote it (contract-servers 1.4)."""

    def __init__(self, status: int, body: bytes, *, method: str, url: str) -> None:
        text = body[:BODY_EXCERPT].decode("utf-8", "replace")
        super().__init__(f"{method} {url} answered {status}: {text}", method=method, url=url)
        self.status = status
        self.body = body

    @property
    def retryable(self) -> bool:  # type: ignore[override]
        return self.status in (408, 425, 429) or self.status >= 500


@dataclass(slots=True)
class Reply:
    """A whole answer. ``headers`` keeps repeated fields; names are as the peer wrote them."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str
    url: str

    def json(self) -> Any:
        """The parsed body. Raises ``orjson.JSONDecodeError`` (a ValueError) when it is not JSON."""
        return orjson.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies that the answer sets, unquoted; the last one of a name wins."""
        found: dict[str, str] = {}
        for name, value in self.headers:
            if name.lower() == "set-cookie":
                key, equals, rest = value.partition("=")
                text = rest.partition(";")[0].strip()
                if not equals:
                    continue
                found[key.strip()] = _unquote(text) if text.startswith('"') else text
        return found

    def header(self, name: str) -> str | None:
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def raise_for_status(self) -> Reply:
        """This reply. Raises PeerStatusError for 400 and above."""
        if self.status >= 400:
            raise PeerStatusError(self.status, self.body, method=self.method, url=self.url)
        return self


def _unquote(text: str) -> str:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(f"x={text}")
    except CookieError:
        return text.strip('"')
    return jar["x"].value if "x" in jar else text.strip('"')


@dataclass(frozen=True)
class PoolOptions:
    """Size and times of a connection pool; 0 is unlimited. The peer's 1,024 per host caps rollouts silently (field-notes A9.2), so the
    default here is no limit; ``global_aiohttp_connector_limit[_per_host]`` in a config set one."""

    limit: int = 0
    limit_per_host: int = 0
    keep_alive_seconds: float = Settings.client_keep_alive_seconds
    connect_retry_seconds: float = Settings.connect_retry_seconds
    tcp_keepalive: tuple[int, int, int] = (
        Settings.tcp_keepalive_idle_seconds,
        Settings.tcp_keepalive_interval_seconds,
        Settings.tcp_keepalive_probes,
    )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], settings: Settings) -> PoolOptions:
        """The pool that a merged config asks for."""
        return cls(
            limit=int(config.get("global_aiohttp_connector_limit") or 0),
            limit_per_host=int(config.get("global_aiohttp_connector_limit_per_host") or 0),
            keep_alive_seconds=settings.client_keep_alive_seconds,
            connect_retry_seconds=settings.connect_retry_seconds,
            tcp_keepalive=(
                int(config.get("global_aiohttp_tcp_keepalive_idle_seconds") or settings.tcp_keepalive_idle_seconds),
                int(config.get("global_aiohttp_tcp_keepalive_interval_seconds") or settings.tcp_keepalive_interval_seconds),
                int(config.get("global_aiohttp_tcp_keepalive_probes") or settings.tcp_keepalive_probes),
            ),
        )


def _socket_factory(keepalive: tuple[int, int, int]) -> Callable[[Any], socket.socket]:
    idle, interval, probes = keepalive

    def make(address: Any) -> socket.socket:
        made = socket.socket(address[0], address[1], address[2])
        made.setblocking(False)
        if address[0] in (socket.AF_INET, socket.AF_INET6):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in (("TCP_KEEPIDLE", idle), ("TCP_KEEPINTVL", interval), ("TCP_KEEPCNT", probes)):
                if hasattr(socket, option):
                    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return made

    return make


class _Attempt:
    """How far one attempt of a request came. ``answer_seconds`` bounds it from its connection on."""

    __slots__ = ("_answer_seconds", "bound", "connected")

    def __init__(self, answer_seconds: float | None) -> None:
        self._answer_seconds = answer_seconds
        self.bound: asyncio.Timeout | None = None
        self.connected = False

    def note(self) -> None:
        """It has a connection: its bytes leave now."""
        self.connected = True
        if self.bound is not None and self._answer_seconds is not None:
            self.bound.reschedule(asyncio.get_running_loop().time() + self._answer_seconds)


class HttpClient:
    """One pool of connections. Use as an async context manager, or ``close()`` it; what needs an event loop is made on first use, in the
    loop of the caller."""

    def __init__(self, options: PoolOptions | None = None) -> None:
        self._options = options or PoolOptions()
        self._plain: PlainPool | None = None
        self._general: GeneralPool | None = None

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the pool. Connections in use break."""
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.close()
            await asyncio.sleep(0)  # the loop takes the aborted sockets back
        general, self._general = self._general, None
        if general is not None:
            await general.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        deadline: Deadline = UNBOUNDED,
        answer_seconds: float | None = None,
        retry_refused: bool = True,
    ) -> Reply:
        """Send one request and read the whole answer.

        ``json`` is anything orjson writes, or a pydantic model (unset fields left out); ``data`` are the bytes of the body. Only the given
        cookies are sent. ``answer_seconds`` bounds the time between the connection and the end of the answer, so neither a wait for one of
        a bounded pool's connections nor a server that is not up yet counts; it stands in for ``deadline``. Without ``retry_refused`` a
        connection that cannot be made is an error at once.

        Raises PeerUnreachable, PeerDropped or PeerTimeout; a status is never an error here.
        """
        if json is not None:
            data = encode(json)
        sent: dict[str, str] = dict(_JSON) if json is not None else {}
        if headers:
            sent.update((name.lower(), value) for name, value in headers.items())
        if cookies:
            sent["cookie"] = "; ".join([f"{name}={value}" for name, value in cookies.items()])
        shown = without_credentials(url)
        plain = plain_target(method, url)
        while True:
            attempt = _Attempt(answer_seconds)
            send = (
                self._send_plain(method, *plain, data, sent, attempt.note) if plain else self._send(method, url, data, sent, attempt.note)
            )
            try:
                seconds = deadline.remaining()
                if seconds is None and answer_seconds is None:
                    status, received, body = await send
                else:
                    async with asyncio.timeout(seconds) as attempt.bound:
                        status, received, body = await send
                return Reply(status, received, body, method, shown)
            except NoConnectionError as error:
                if error.errno in _LOCAL_ERRNOS:
                    raise LocalResourceError(f"{method} {shown}: {error}", method=method, url=shown) from error
                # Refused, unreachable or unresolved: no byte was written, so the request may be sent.
                pause = deadline.pause(self._options.connect_retry_seconds)
                if not retry_refused or deadline.expired or pause <= 0:
                    raise PeerUnreachable(f"{method} {shown}: no connection ({error})", method=method, url=shown) from error
                await asyncio.sleep(pause)
            except TimeoutError as error:
                purpose = f" ({deadline.purpose})" if deadline.purpose else ""
                if answer_seconds is not None:
                    purpose = f" ({answer_seconds:g} s)"
                if not attempt.connected:
                    raise PeerUnreachable(f"{method} {shown}: no connection in time{purpose}", method=method, url=shown) from error
                raise PeerTimeout(f"{method} {shown}: no answer in time{purpose}", method=method, url=shown) from error
            except BrokenConnectionError as error:
                raise PeerDropped(f"{method} {shown}: connection broke ({error})", method=method, url=shown) from error

    async def _send_plain(
        self, method: str, authority: str, target: str, data: bytes | None, headers: Mapping[str, str], connected: Callable[[], None]
    ) -> Answer:
        if self._plain is None:
            self._plain = PlainPool(**self._pool())
        length = len(data) if data is not None else 0 if method == "POST" else None
        head = head_of(method, authority, target, headers, length)
        return await self._plain.exchange(authority, head if data is None else head + data, connected)

    async def _send(self, method: str, url: str, data: bytes | None, headers: Mapping[str, str], connected: Callable[[], None]) -> Answer:
        if self._general is None:
            from gym_compose.serving.general import GeneralPool

            self._general = GeneralPool(**self._pool())
        return await self._general.exchange(method, url, data, headers, connected)

    def _pool(self) -> dict[str, Any]:
        options = self._options
        return {
            "make_socket": _socket_factory(options.tcp_keepalive),
            "keep_alive": options.keep_alive_seconds,
            "limit": options.limit,
            "limit_per_host": options.limit_per_host,
        }


def without_credentials(url: str) -> str:
    """``url`` for messages and logs: some endpoints take their key in the query or as a user's password, so both are left out."""
    if "?" not in url and "@" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def encode(value: Any) -> bytes:
    """``value`` as JSON bytes: bytes pass, pydantic models are dumped with unset fields left out (contract-servers 1.5)."""
    if isinstance(value, bytes):
        return value
    dump = getattr(value, "model_dump_json", None)
    if dump is not None:
        text: str = dump(exclude_unset=True, by_alias=True)
        return text.encode()
    return orjson.dumps(value)


class Reference(Protocol):
    """Anything with a ``name``: a server reference of a config block."""

    @property
    def name(self) -> str: ...


@dataclass
class ServerClient:
    """Calls Gym servers by the name of their instance.

    ``config`` is the merged config (or the slice) that holds their blocks; the address is ``http://host:port`` of the first block under
    the name (contract-config 5.2). ``environ`` may override the URL of one model server (contract-servers 1.1).
    """

    config: Mapping[str, Any]
    http: HttpClient
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _urls: dict[str, str] = field(default_factory=dict)

    def base_url(self, server: Reference | str) -> str:
        """``http://host:port`` of an instance. Raises KeyError when the config has no such server."""
        name = server if isinstance(server, str) else server.name
        url = self._urls.get(name)
        if url is None:
            url = self._urls[name] = self._resolve(name)
        return url

    def _resolve(self, name: str) -> str:
        override = self.environ.get(MODEL_URL_VARIABLE)
        if override and self.environ.get(MODEL_NAME_VARIABLE) == name:
            return override.rstrip("/")
        try:
            block = next(iter(next(iter(self.config[name].values())).values()))
            return f"http://{block['host']}:{block['port']}"
        except (KeyError, AttributeError, StopIteration, TypeError):
            raise KeyError(f"no server instance {name!r} with host and port in the config of this process") from None

    async def post(
        self,
        server: Reference | str,
        path: str,
        *,
        json: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        deadline: Deadline = UNBOUNDED,
        retry_refused: bool = True,
    ) -> Reply:
        """``POST`` to another instance; arguments and errors as ``HttpClient.request``."""
        return await self.http.request(
            "POST",
            self.base_url(server) + path,
            json=json,
            data=data,
            headers=headers,
            cookies=cookies,
            deadline=deadline,
            retry_refused=retry_refused,
        )

    async def get(
        self,
        server: Reference | str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        deadline: Deadline = UNBOUNDED,
    ) -> Reply:
        """``GET`` from another instance; arguments and errors as ``HttpClient.request``."""
        return await self.http.request("GET", self.base_url(server) + path, headers=headers, cookies=cookies, deadline=deadline)
