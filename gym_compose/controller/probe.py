"""One probe: does anything answer at this URL? Any HTTP answer counts (contract-config 4.6)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import aiohttp

from gym_compose.controller.lookup import DaemonResolver

Outcome = Literal["answered", "tls", "invalid", "refused", "timeout", "unresolvable"]
_READ_LIMIT = 65536


@dataclass(frozen=True)
class ProbeResult:
    """``answered``: an HTTP status came; ``tls`` and ``invalid``: something is there or the URL is none, which a model endpoint is
    forgiven and a server is not; the rest: nobody there."""

    outcome: Outcome
    detail: str = ""

    @property
    def answers_as_server(self) -> bool:
        return self.outcome == "answered"

    @property
    def answers_as_endpoint(self) -> bool:
        return self.outcome in ("answered", "tls", "invalid")


Probe = Callable[[str, float], Awaitable[ProbeResult]]
"""Takes a URL and the seconds that it may take."""


class HttpProber:
    """Probes over one pooled session. An async context manager; ``probe`` is a ``Probe``.

    Names are looked up at each new connection: a restarted container has a new address. At most ``parallel`` probes run at once.
    Redirects are answers and are not followed. Proxies of the environment are not used: the servers are peers.
    """

    def __init__(self, parallel: int) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(parallel)

    async def __aenter__(self) -> HttpProber:
        connector = aiohttp.TCPConnector(limit=0, resolver=DaemonResolver(), use_dns_cache=False, keepalive_timeout=15)
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    async def probe(self, url: str, seconds: float) -> ProbeResult:
        """GET ``url`` within ``seconds``; never raises for what the other side does."""
        if self._session is None:
            raise RuntimeError("a prober is used inside its async with block")
        timeout = aiohttp.ClientTimeout(total=max(seconds, 0.05))
        status: int | None = None
        async with self._slots:
            try:
                async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                    status = response.status
                    await response.content.read(_READ_LIMIT)  # so that the connection can be used again
            except (aiohttp.ClientError, OSError, ValueError) as error:
                # TimeoutError is an OSError; a host name that IDNA refuses is a ValueError.
                if status is None:
                    return _failed(error, seconds)
        return ProbeResult("answered", f"HTTP {status}")


def _failed(error: Exception, seconds: float) -> ProbeResult:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return ProbeResult("unresolvable", "the name does not resolve")
        case aiohttp.ClientSSLError():
            return ProbeResult("tls", "TLS handshake failed")
        case TimeoutError():
            return ProbeResult("timeout", f"no answer within {seconds:.3g} s")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | UnicodeError():
            return ProbeResult("invalid", "not a URL that can be asked")
        case aiohttp.ClientConnectorError():
            return ProbeResult("refused", _reason(error.os_error))
        case aiohttp.ServerDisconnectedError():
            return ProbeResult("refused", "connection closed without an answer")
        case aiohttp.ClientResponseError():
            return ProbeResult("refused", "what answers does not speak HTTP")
        case _:
            return ProbeResult("refused", str(error) or type(error).__name__)


def _reason(error: OSError) -> str:
    # asyncio writes its own text with the address into strerror; the URL stands beside this anyway.
    return os.strerror(error.errno).lower() if error.errno else str(error)
