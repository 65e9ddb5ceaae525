"""The process around a server: prefixed lines, open files."""

from __future__ import annotations

import asyncio
import io
import resource
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState

from gym_compose.serving.process import PrefixedStream, keepalive_protocol, listen, raise_open_files
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.settings import Settings

texts = st.lists(st.text(alphabet="ab\n", max_size=6), max_size=12)


@given(texts)
def test_every_line_has_the_prefix_and_nothing_else_changes(parts: list[str]) -> None:
    under = io.StringIO()
    stream = PrefixedStream(under, "(x) ")
    for part in parts:
        assert stream.write(part) == len(part)
    whole = "".join(parts)
    ends = whole.endswith("\n")
    lines = whole.split("\n")[: -1 if ends else None] if whole else []
    assert under.getvalue() == "\n".join(f"(x) {line}" for line in lines) + ("\n" if ends else "")


def test_other_attributes_are_the_streams_own() -> None:
    under = io.StringIO()
    stream = PrefixedStream(under, "(x) ")
    stream.writelines(["a\n", "b"])
    assert under.getvalue() == "(x) a\n(x) b"
    assert stream.isatty() is False


@pytest.mark.parametrize(
    ("limits", "wanted", "new", "warned"),
    [
        ((1024, 4096), 2048, (2048, 4096), False),
        ((1024, 1500), 2048, (1500, 1500), True),
        ((1024, resource.RLIM_INFINITY), 2048, (2048, resource.RLIM_INFINITY), False),
        ((4096, 4096), 2048, None, False),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 2048, None, False),
    ],
)
def test_the_soft_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    wanted: int,
    new: tuple[int, int] | None,
    warned: bool,
) -> None:
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: done.append(value))
    raise_open_files(wanted)
    assert done == ([] if new is None else [new])
    assert ("hard limit is lower" in caplog.text) is warned


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match=r"address no-such-host\.invalid:1: the name has no address here"):
        listen("no-such-host.invalid", 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_listening_on_a_free_port(host: str) -> None:
    with listen(host, 0) as listener:
        assert listener.getsockname()[1] > 0


async def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    accepted: asyncio.Queue[socket.socket] = asyncio.Queue()

    class Seen(keepalive_protocol(Settings())):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            accepted.put_nowait(transport.get_extra_info("socket"))

    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("no request is sent")

    config = Config(app)
    config.load()
    with listen("127.0.0.1", 0) as listener:
        state = ServerState()
        running = await asyncio.get_running_loop().create_server(lambda: Seen(config, state, {}), sock=listener)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        side = await asyncio.wait_for(accepted.get(), 5)
        assert side.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert side.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        writer.close()
        await writer.wait_closed()
        running.close()
        await running.wait_closed()
