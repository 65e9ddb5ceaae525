"""A client that hangs up cancels its handler (contract-servers 1.4): nobody will read the answer, and a rollout costs model calls.

The protocol (``process``) puts a ``Handlers`` into each request's scope and reports the end of the connection to it; the application
notes which task answers which request. Nothing is started or timed for a request that ends well.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.types import Scope

HANDLERS: Final = "gym_compose.handlers"
"""Key of the scope: the ``Handlers`` of its connection. Absent where something else than our protocol serves (tests)."""
HUNG_UP: Final = "gym_compose.hung_up"
"""Key of the scope: set before a handler is cancelled because its client went away."""


class Handlers:
    """The requests of one connection that are being answered. More than one only when a client does not wait for its answers."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], Scope] = {}

    def began(self, task: asyncio.Task[Any], scope: Scope) -> None:
        self._running[task] = scope

    def answered(self, task: asyncio.Task[Any]) -> None:
        """The whole answer was sent: what the handler still does is not for the client."""
        self._running.pop(task, None)

    def hang_up(self) -> None:
        """The connection is gone: cancel what is still being answered."""
        for task, scope in self._running.items():
            scope[HUNG_UP] = True
            task.cancel()
        self._running.clear()
