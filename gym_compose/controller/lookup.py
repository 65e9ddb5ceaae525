"""Name lookups that nobody has to wait for.

In a closed network a failing lookup blocks its thread for a second or more (platform.md), and Python joins the threads of an executor
before it exits: the head then took 3.5 s to stop once its servers were gone. Here each lookup has a daemon thread, which ends with the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult


class DaemonResolver(AbstractResolver):
    """Looks names up with the system's resolver, one daemon thread each. Raises OSError as ``socket.getaddrinfo`` does."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """The addresses of ``host``, in the system's order."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()

        def settle(found: list[Any] | None, error: Exception | None) -> None:
            if answer.done():  # who asked has given up
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(found or [])

        def look_up() -> None:
            found, failure = None, None
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
            except (OSError, UnicodeError) as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, found, failure)

        threading.Thread(target=look_up, name=f"lookup {host}", daemon=True).start()
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=kind,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, proto, _, address in await answer
        ]

    async def close(self) -> None:
        """Nothing is held."""
