"""The process around a server: uvicorn, signals, open files, log prefix (contract-servers 1.2)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gym_compose.serving.disconnect import HANDLERS, Handlers
from gym_compose.serving.loop import event_loop
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.settings import Settings

if TYPE_CHECKING:
    from gym_compose.serving.server import Server

BACKLOG = 4096

_log = logging.getLogger(__name__)


class PrefixedStream:
    """A text stream whose every line begins with ``prefix``: how the lines of many servers are told apart in one log."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream = stream
        self._prefix = prefix
        self._at_start = True

    def write(self, text: str) -> int:
        if not text:
            return 0
        done = text.replace("\n", f"\n{self._prefix}")
        if text.endswith("\n"):
            done = done[: -len(self._prefix)]
        self._stream.write(self._prefix + done if self._at_start else done)
        self._at_start = text.endswith("\n")
        self._stream.flush()
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prefix_output(instance: str) -> None:
    """From here on lines of stdout and stderr begin with ``(<instance>) ``."""
    prefix = f"({instance}) "
    sys.stdout = PrefixedStream(sys.stdout, prefix)
    sys.stderr = PrefixedStream(sys.stderr, prefix)


def raise_open_files(wanted: int) -> None:
    """Raise the soft limit of open files to ``wanted``, or to the hard limit where that is lower (with a warning)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        new = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (new, hard))
        if new < wanted:
            _log.warning("open files are limited to %d (wanted %d): the hard limit is lower", new, wanted)


def keepalive_protocol(settings: Settings) -> type[HttpToolsProtocol]:
    """uvicorn's httptools protocol with TCP keep-alive on accepted sockets (a peer that vanished is noticed), and with the end of a
    connection reported to the handlers of its requests.

    Nagle's algorithm is off: uvicorn writes head and body apart, and together with delayed acknowledgements each answer would wait 40 ms.
    asyncio turns it off by itself, but not for sockets whose listener was made with protocol number 0, as ``socket.create_server`` does.
    """

    class KeepAliveProtocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.handlers = Handlers()
            accepted = transport.get_extra_info("socket")
            if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in (
                    ("TCP_KEEPIDLE", settings.tcp_keepalive_idle_seconds),
                    ("TCP_KEEPINTVL", settings.tcp_keepalive_interval_seconds),
                    ("TCP_KEEPCNT", settings.tcp_keepalive_probes),
                ):
                    if hasattr(socket, option):
                        accepted.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope[HANDLERS] = self.handlers  # type: ignore[typeddict-unknown-key]

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.handlers.hang_up()

    return KeepAliveProtocol


class QuietServer(uvicorn.Server):
    """uvicorn's server, except that SIGINT and SIGTERM end it with a return and not with the signal: exit code 0 after a clean stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        stops = (signal.SIGINT, signal.SIGTERM)
        for number in stops:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in stops:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What is there now stays: modules, classes, routes. The collector need not look through it again and again.
        gc.collect()
        gc.freeze()

    def _stop(self) -> None:
        # A second signal does not wait for open requests.
        self.force_exit = self.should_exit
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on the first address of ``host``. Raises PrerequisiteError saying why the address cannot be bound."""
    where = f"address {host}:{port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise PrerequisiteError(
            f"the name has no address here ({error.strerror})", where=where, hint="A server binds the host of its own config block."
        ) from None
    try:
        return socket.create_server((address[0], port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise PrerequisiteError(f"cannot be bound ({os.strerror(error.errno or 0)})", where=where) from None


def uvicorn_config(server: Server) -> uvicorn.Config:
    """How uvicorn runs a server: httptools, the loop that it finds running, the contract's times."""
    settings = server.settings
    return uvicorn.Config(
        server.app(),
        loop="none",
        http=keepalive_protocol(settings),
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=int(settings.server_keep_alive_seconds),
        timeout_graceful_shutdown=settings.graceful_stop_seconds,  # type: ignore[arg-type]
        access_log=bool(server.merged.get("uvicorn_logging_show_200_ok")),
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )


def serve(server: Server) -> None:
    """Serve until SIGINT or SIGTERM. Raises PrerequisiteError when the address cannot be bound, SystemExit when ``start`` fails (the reason
    is in the log)."""
    listener = listen(server.config.host, server.config.port)
    prefix_output(server.config.name)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s", stream=sys.stderr)
    raise_open_files(server.settings.open_files)
    runner = QuietServer(uvicorn_config(server))
    with asyncio.Runner(loop_factory=event_loop) as loop:
        loop.run(runner.serve(sockets=[listener]))
    if not runner.started:
        sys.exit(1)
