"""Requests over aiohttp: a connection that is begun is finished."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest

from gym_compose.serving.general import GeneralPool


async def test_a_cancelled_request_does_not_cancel_its_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    closed: list[bool] = []

    class Made:
        def close(self) -> None:
            closed.append(True)

    async def connect(*_: Any, **__: Any) -> Made:
        begun.set()
        await go_on.wait()
        return Made()

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", connect)
    pool = GeneralPool(lambda address: socket.socket(address[0]), keep_alive=1.0)
    request = asyncio.create_task(pool.exchange("POST", "https://127.0.0.1:1/", b"{}", {}, lambda: None))
    await begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert closed == []
    go_on.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert closed == [True]
    await pool.close()
