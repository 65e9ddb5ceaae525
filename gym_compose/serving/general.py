"""Requests that plain connections do not carry: TLS, credentials in a URL, whatever needs quoting, other methods. Over aiohttp.

``client`` imports this when the first of them is made: servers that talk to one another only never load aiohttp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import aiohttp

from gym_compose.serving.connection import Answer, BrokenConnectionError, NoConnectionError, SocketFactory

_connected: ContextVar[Callable[[], None]] = ContextVar("connected")
"""Of the request in this task: called when it has a connection."""


class _Connector(aiohttp.TCPConnector):
    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        connection = await super().connect(*args, **kwargs)
        _connected.get()()
        return connection

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Finished also when its request is cancelled meanwhile (``loop``); then nobody wants it and it is closed."""
        making = asyncio.create_task(super()._create_connection(*args, **kwargs))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_discard)
            raise


def _discard(making: asyncio.Task[Any]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().close()


class GeneralPool:
    """One aiohttp session without a cookie jar, redirects or time limits of its own. Limits and times as ``PlainPool``."""

    def __init__(self, make_socket: SocketFactory, *, keep_alive: float, limit: int = 0, limit_per_host: int = 0) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                limit=limit,
                limit_per_host=limit_per_host,
                keepalive_timeout=keep_alive,
                socket_factory=make_socket,
                happy_eyeballs_delay=None,  # its losers are cancelled connects (``loop``)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            auto_decompress=True,
        )

    async def exchange(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str], connected: Callable[[], None]
    ) -> Answer:
        """One request. ``connected`` is called when a connection stands, before anything is written. Raises as ``PlainPool.exchange``."""
        _connected.set(connected)
        try:
            async with self._session.request(method, url, data=data, headers=headers, allow_redirects=False) as answer:
                body = await answer.read()
        except aiohttp.ClientConnectorError as error:
            raise NoConnectionError(error) from error
        except TimeoutError:
            raise  # the caller's
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError, OSError) as error:
            raise BrokenConnectionError(f"{type(error).__name__}: {error}") from error
        return answer.status, tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.raw_headers), body

    async def close(self) -> None:
        await self._session.close()
