"""A client that hangs up cancels its handler (contract-servers 1.4): nobody will read the answer, and a rollout costs model calls.

Most handlers end before anybody could hang up, so the watch begins only after a delay: a timer costs a microsecond, a task twenty.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gym_compose.serving.errors import HUNG_UP

LOG_EVERY = 100

_log = logging.getLogger(__name__)


class DisconnectMiddleware:
    """Outermost layer. ``delay`` is the age in seconds at which a request begins to be watched."""

    def __init__(self, app: ASGIApp, delay: float) -> None:
        self._app = app
        self._delay = delay
        self.hung_up = 0
        """Requests of this process that were cancelled because their client went away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        complete = asyncio.Event()
        watcher: asyncio.Task[None] | None = None
        answered = False

        async def send_answer(message: Message) -> None:
            nonlocal answered
            answered = answered or (message["type"] == "http.response.body" and not message.get("more_body", False))
            await send(message)

        async def receive_body() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                complete.set()
            return message

        async def watch() -> None:
            # Only one reader may stand at receive(): the handler's, until the body is whole.
            await complete.wait()
            while (await receive())["type"] != "http.disconnect":
                continue
            if not answered:  # after a whole answer "disconnect" only says that there is nothing more to come
                scope[HUNG_UP] = True
                task.cancel()

        def begin() -> None:
            nonlocal watcher
            watcher = asyncio.create_task(watch())

        timer = asyncio.get_running_loop().call_later(self._delay, begin)
        try:
            await self._app(scope, receive_body, send_answer)
        except asyncio.CancelledError:
            if not scope.get(HUNG_UP):
                raise
            task.uncancel()
            self.hung_up += 1
            if self.hung_up % LOG_EVERY == 1:
                _log.info("499 %s %s: the client hung up (%d so far)", scope["method"], scope["path"], self.hung_up)
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()
