"""Name lookups of the head server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

import pytest

from gym_compose.controller.lookup import DaemonResolver


async def test_a_name_gives_its_addresses() -> None:
    found = await DaemonResolver().resolve("localhost", 80, socket.AF_INET)
    assert [(result["host"], result["port"], result["hostname"]) for result in found] == [("127.0.0.1", 80, "localhost")]


async def test_a_name_that_is_not_there_raises_as_the_system_does() -> None:
    with pytest.raises(socket.gaierror):
        await DaemonResolver().resolve("no-such-name.invalid")


async def test_who_gives_up_is_not_disturbed_by_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: object, **options: object) -> list[object]:
        time.sleep(0.2)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(DaemonResolver().resolve("slow.gym"), 0.05)
    await asyncio.sleep(0.3)


STUCK = """
import asyncio, socket, time
from gym_compose.controller.lookup import DaemonResolver
socket.getaddrinfo = lambda *args, **options: time.sleep(60)
async def main():
    try:
        await asyncio.wait_for(DaemonResolver().resolve("stuck.gym"), 0.1)
    except TimeoutError:
        print("given up", flush=True)
asyncio.run(main())
"""


def test_a_stuck_lookup_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "given up\n"
