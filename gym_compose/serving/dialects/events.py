"""Server-sent events: a whole answer replayed as a stream, and signs of life while it is computed (contract-servers 4.1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)
T = TypeVar("T")
Render = Callable[[T], Iterable[bytes]]

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment: clients read over it, proxies see that the connection lives."""
DONE: Final = b"data: [DONE]\n\n"


def event(payload: Any, name: str | None = None) -> bytes:
    """One event with a JSON payload."""
    head = b"" if name is None else b"event: %b\n" % name.encode()
    return b"%bdata: %b\n\n" % (head, orjson.dumps(payload))


class EventStream(Response):
    """The pieces, sent as they come. Whoever hangs up cancels the sending task, which closes the generator."""

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._pieces) as pieces:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def replay(work: Coroutine[Any, Any, T], render: Render[T], failed: Render[Exception], *, interval: float) -> EventStream:
    """Run ``work`` and replay its result as the events that ``render`` makes of it.

    The answer's head waits for the result for ``interval`` seconds; an exception within that time is raised, so that it has a status.
    Later a comment is sent each ``interval``, and an exception becomes the events that ``failed`` makes of it.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=interval)
        if done:
            return EventStream(_all(render(task.result())))
    except BaseException:
        await _end(task)
        raise
    return EventStream(_patiently(task, render, failed, interval))


def replayed(pieces: Iterable[bytes]) -> EventStream:
    """A stream of events that are all there."""
    return EventStream(_all(pieces))


async def _all(pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    # One write: nothing is gained by many, and a client sees the whole answer or none.
    yield b"".join(pieces)


async def _patiently(task: asyncio.Task[T], render: Render[T], failed: Render[Exception], interval: float) -> AsyncGenerator[bytes, None]:
    try:
        while not task.done():
            yield KEEP_ALIVE
            await asyncio.wait({task}, timeout=interval)
        try:
            pieces = b"".join(render(task.result()))
        except Exception as error:  # noqa: BLE001 - the status is gone; the reason is told in the stream
            _log.exception("a streamed answer failed after its head was sent")
            pieces = b"".join(failed(error))
        yield pieces
    finally:
        await _end(task)


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
