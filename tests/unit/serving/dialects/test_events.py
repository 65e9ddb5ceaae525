"""Replayed streams: when the head is sent, what keeps the connection, what ends the work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gym_compose.serving.dialects.events import KEEP_ALIVE, EventStream, replay

LONG = 3600.0
AT_ONCE = 0.001


def render(result: str) -> Iterator[bytes]:
    yield result.encode()


def failed(error: Exception) -> Iterator[bytes]:
    yield f"failed: {error}".encode()


async def _sent(stream: EventStream) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing more is read")

    await stream({"type": "http"}, receive, send)
    return messages


async def test_a_result_in_time_is_one_piece() -> None:
    async def work() -> str:
        return "x"

    start, body, end = await _sent(await replay(work(), render, failed, interval=LONG))
    assert (start["status"], body["body"], end["body"]) == (200, b"x", b"")
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")


async def test_a_failure_in_time_is_raised() -> None:
    async def work() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await replay(work(), render, failed, interval=LONG)


@pytest.mark.parametrize(("error", "last"), [(None, b"x"), (ValueError("no"), b"failed: no")])
async def test_later_comments_keep_the_connection_and_a_failure_is_told_in_the_stream(error: Exception | None, last: bytes) -> None:
    release = asyncio.Event()

    async def work() -> str:
        await release.wait()
        if error is not None:
            raise error
        return "x"

    stream = await replay(work(), render, failed, interval=AT_ONCE)
    bodies: list[bytes] = []

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))
        if bodies.count(KEEP_ALIVE) == 3:
            release.set()

    async def receive() -> Any:
        raise AssertionError

    await stream({"type": "http"}, receive, send)
    assert set(bodies[1:-2]) == {KEEP_ALIVE}
    assert bodies[-2:] == [last, b""]


@pytest.mark.parametrize("interval", [LONG, AT_ONCE])
async def test_a_client_that_hangs_up_ends_the_work(interval: float) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        if interval == LONG:
            began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "x"

    async def answer() -> None:
        stream = await replay(work(), render, failed, interval=interval)
        await stream({"type": "http"}, receive, send)

    async def receive() -> Any:
        raise AssertionError

    async def send(_message: Any) -> None:
        began.set()

    task = asyncio.create_task(answer())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
