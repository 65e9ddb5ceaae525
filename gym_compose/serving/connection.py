"""Plain HTTP/1.1 connections between Gym servers: kept open, one request at a time each, parsed by httptools.

A rollout is nine or ten small requests, and a general client spends more on each of them than the server that answers. What servers say
to one another needs none of its generality: no TLS, no redirects, no cookie jar, no streaming, whole bodies in memory. ``client``
uses this for ``http://`` and aiohttp for the rest.

A connection that is being made is never cancelled: under uvloop a cancelled connect can leave its file descriptor unusable (field-notes
A9.4). Whoever waited goes, the connection is finished and waits for the next request.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import httptools

Header = tuple[str, str]
Answer = tuple[int, tuple[Header, ...], bytes]
"""Status, headers as they came, whole body."""
SocketFactory = Callable[[Any], socket.socket]

RESOLVED_SECONDS: Final = 10.0
"""How long the addresses of a name are used before it is looked up again."""
_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
_TARGET = re.compile(r"/[!-\"$-~]*")  # visible ASCII without "#"
_AUTHORITY = re.compile(r"\[[0-9A-Fa-f:.]+\](?::\d{1,5})?|[A-Za-z0-9_.-]+(?::\d{1,5})?")


class NoConnectionError(Exception):
    """No connection could be made: refused, unreachable or unresolved. Nothing was sent. ``errno`` is the system's."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error) or type(error).__name__)
        self.errno = error.errno


class BrokenConnectionError(Exception):
    """The connection ended, or what came over it was no HTTP, before the answer was whole. The request may have been carried out."""


def plain_target(method: str, url: str) -> tuple[str, str] | None:
    """``(authority, target)`` of a request that these connections can carry; None for TLS, credentials, and whatever needs quoting."""
    if method not in ("GET", "POST") or not url.startswith("http://"):
        return None
    slash = url.find("/", 7)
    authority, target = (url[7:], "/") if slash < 0 else (url[7:slash], url[slash:])
    if not _TARGET.fullmatch(target) or "/." in target or not _AUTHORITY.fullmatch(authority):
        return None
    return authority, target


def head_of(method: str, authority: str, target: str, headers: Mapping[str, str], length: int | None) -> bytes:
    """The head of a request. Raises ValueError for a header that would end its line."""
    lines = [f"{method} {target} HTTP/1.1\r\nhost: {authority}\r\n"]
    if "accept" not in headers:
        lines.append("accept: */*\r\n")
    for name, value in headers.items():
        if name not in ("host", "content-length", "transfer-encoding"):
            lines.append(f"{name}: {value}\r\n")
    if length is not None:
        lines.append(f"content-length: {length}\r\n")
    text = "".join(lines)
    if not text.count("\n") == text.count("\r") == len(lines) + 1 or "\x00" in text:
        raise ValueError("a header holds a line break or a null")
    text += "\r\n"
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


class _Connection(asyncio.Protocol):
    """One connection. ``exchange`` sends a request and waits for its whole answer; one at a time."""

    def __init__(self, made: socket.socket, lost: Callable[[_Connection], None]) -> None:
        self._socket = made
        self._lost = lost
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._headers: list[Header] = []
        self._body: list[bytes] = []
        self._headers_done = False
        self._framed = False
        self._encoding = ""
        self.reusable = True
        self.idle_since = 0.0

    async def exchange(self, data: bytes) -> Answer:
        """Raises BrokenConnectionError. Cancelled, it closes the connection: the answer would come for the next one."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise BrokenConnectionError("the connection is closed")
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        transport.write(data)
        try:
            return await waiter
        finally:
            self._waiter = None
            if not waiter.done() or waiter.cancelled():
                self.close()

    @property
    def open(self) -> bool:
        return self.reusable and self._transport is not None and not self._transport.is_closing()

    def alive(self) -> bool:
        """Whether a request may be written. The kernel is asked: in a busy loop the end of a connection may wait to be read."""
        if not self.open:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # its end, or bytes that nobody asked for

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # nobody asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, ValueError, zlib.error) as error:
            self._fail(f"the answer is not understood ({type(error).__name__}: {error})")

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._waiter is not None and not self._waiter.done():
            if exc is None and self._headers_done and not self._framed:
                self.on_message_complete()  # a body without a length ends with its connection
            else:
                self._fail(f"{type(exc).__name__}: {exc}" if exc is not None else "the server closed the connection")
        self._transport = None
        self._lost(self)

    def _fail(self, reason: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(BrokenConnectionError(reason))
        self.close()

    # httptools

    def on_message_begin(self) -> None:
        self._headers = []
        self._body = []
        self._headers_done = self._framed = False
        self._encoding = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        self._headers.append((key, text))
        lower = key.lower()
        if lower in ("content-length", "transfer-encoding"):
            self._framed = True
        elif lower == "content-encoding":
            self._encoding = text.strip().lower()

    def on_headers_complete(self) -> None:
        self._headers_done = True

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        status: int = self._parser.get_status_code()
        if status < 200:  # an interim answer; the real one follows
            return
        if not self._parser.should_keep_alive():
            self.reusable = False
        waiter = self._waiter
        if waiter is None or waiter.done():
            self.close()
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._encoding in _COMPRESSED and body:
            body = _decompress(body)
        self._body = []
        waiter.set_result((status, tuple(self._headers), body))


def _decompress(body: bytes) -> bytes:
    try:
        return zlib.decompress(body, wbits=zlib.MAX_WBITS | 32)
    except zlib.error:
        return zlib.decompress(body, wbits=-zlib.MAX_WBITS)  # "deflate" as some servers mean it: without the zlib wrapper


class _Origin:
    """The connections to one ``host:port``."""

    def __init__(self, authority: str, make_socket: SocketFactory, keep_alive: float, limit: int) -> None:
        host, _, port = authority.rpartition(":") if re.search(r":\d+$", authority) else (authority, "", "80")
        self.host = host.strip("[]")
        self.port = int(port)
        self._make_socket = make_socket
        self._keep_alive = keep_alive
        self.slots = asyncio.Semaphore(limit) if limit else None
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        self._making: set[asyncio.Task[_Connection]] = set()
        self._addresses: list[Any] = []
        self._resolved_at = float("-inf")
        self._resolving: asyncio.Task[list[Any]] | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def take(self) -> _Connection:
        """An open connection, kept or new. Raises NoConnectionError."""
        idle = self._idle
        oldest = time.monotonic() - self._keep_alive
        while idle:
            connection = idle.pop()
            if connection.idle_since > oldest and connection.alive():
                self._busy.add(connection)
                return connection
            connection.close()
        task = asyncio.create_task(self._connect())
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        try:
            connection = await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._adopt)
            raise
        self._busy.add(connection)
        return connection

    def give(self, connection: _Connection) -> None:
        """Back after an exchange, to be kept or closed."""
        self._busy.discard(connection)
        if not connection.open:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._keep_alive, self._sweep)

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in (*self._making, *filter(None, [self._resolving])):
            task.cancel()
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    def _adopt(self, task: asyncio.Task[_Connection]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.give(task.result())

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = time.monotonic() - self._keep_alive
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().close()
        if self._idle:
            delay = self._idle[0].idle_since - oldest
            self._sweeper = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _lost(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        try:
            addresses = await self._resolve()
        except OSError as error:
            raise NoConnectionError(error) from error
        for address in addresses:
            try:
                made = self._make_socket(address)
            except OSError as error:  # out of file descriptors
                raise NoConnectionError(error) from error
            try:
                await loop.sock_connect(made, address[4])
                _, connection = await loop.create_connection(functools.partial(_Connection, made, self._lost), sock=made)
            except OSError as error:
                made.close()
                failure = failure or error
            except BaseException:
                made.close()
                raise
            else:
                return connection
        self._resolved_at = float("-inf")
        raise NoConnectionError(failure or OSError(f"{self.host} has no address")) from failure

    async def _resolve(self) -> list[Any]:
        if time.monotonic() - self._resolved_at < RESOLVED_SECONDS:
            return self._addresses
        if self._resolving is None:
            self._resolving = asyncio.create_task(self._look_up())
        return await asyncio.shield(self._resolving)

    async def _look_up(self) -> list[Any]:
        try:
            loop = asyncio.get_running_loop()
            flags = socket.AI_ADDRCONFIG
            self._addresses = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=flags)
            self._resolved_at = time.monotonic()
            return self._addresses
        finally:
            self._resolving = None


class PlainPool:
    """Connections by ``host:port``. ``limit`` in all and ``limit_per_host`` bound the requests under way; 0 is no bound."""

    def __init__(self, make_socket: SocketFactory, *, keep_alive: float, limit: int = 0, limit_per_host: int = 0) -> None:
        self._make_socket = make_socket
        self._keep_alive = keep_alive
        self._limit_per_host = limit_per_host
        self._slots = asyncio.Semaphore(limit) if limit else None
        self._origins: dict[str, _Origin] = {}

    async def exchange(self, authority: str, data: bytes, connected: Callable[[], None]) -> Answer:
        """One request. ``connected`` is called when a connection stands, right before anything is written.

        Raises NoConnectionError, and BrokenConnectionError once there was one.
        """
        origin = self._origins.get(authority)
        if origin is None:
            origin = self._origins[authority] = _Origin(authority, self._make_socket, self._keep_alive, self._limit_per_host)
        slots: Iterable[asyncio.Semaphore | None] = (self._slots, origin.slots)
        held: list[asyncio.Semaphore] = []
        try:
            for slot in slots:
                if slot is not None:
                    await slot.acquire()
                    held.append(slot)
            connection = await origin.take()
            connected()
            try:
                return await connection.exchange(data)
            finally:
                origin.give(connection)
        finally:
            for slot in held:
                slot.release()

    def close(self) -> None:
        """Close all connections; requests under way break."""
        for origin in self._origins.values():
            origin.close()
        self._origins.clear()
