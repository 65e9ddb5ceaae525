"""The host relay: ``python -m gym_compose.serving.host_relay --listen ADDRESS --target HOST PORT…`` (design decision 16).

An endpoint of this machine that listens on its loopback interface alone cannot be reached from a container. This process runs in the host's
network, listens on the bridge's address (``host.docker.internal``, which Docker resolves to it) at the same ports, and passes bytes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence

from gym_compose.wire.errors import GymComposeError, PrerequisiteError

CHUNK = 1 << 16


class Relay:
    """Listens on ``address`` at ``ports`` and connects each client to the same port of ``target``."""

    def __init__(self, address: str, target: str, ports: Sequence[int]) -> None:
        self._address = address
        self._target = target
        self._ports = tuple(ports)
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen. Raises PrerequisiteError naming the address that cannot be had.

        The ports are shared (SO_REUSEPORT): the relays of two projects may serve one endpoint.
        """
        for port in self._ports:
            try:
                self._servers.append(await asyncio.start_server(self._handler(port), self._address, port, reuse_port=True))
            except OSError as error:
                await self.stop()
                raise PrerequisiteError(
                    f"cannot listen ({error.strerror or error})",
                    where=f"{self._address}:{port}",
                    hint="Let the endpoint listen on 0.0.0.0, or give its address in the network, and set compose: {host_relay: false}.",
                ) from None

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where it listens."""
        return tuple(socket.getsockname()[:2] for server in self._servers for socket in server.sockets)

    async def stop(self) -> None:
        """Listen no more; connections that are open end with the process."""
        for server in self._servers:
            server.close()

    def _handler(self, port: int) -> _Handler:
        return _Handler(self._target, port)


class _Handler:
    """One client after the other to ``host:port``; a client of an endpoint that refuses is hung up on."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError as error:
            print(f"{self._host}:{self._port}: {error.strerror or error}", file=sys.stderr, flush=True)
            await _close(writer)
            return
        try:
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            await _close(back)
            await _close(writer)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes until the end of ``reader``, which is then said to ``writer``; the other direction goes on."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def serve(relay: Relay, stop: asyncio.Event) -> None:
    """Relay until ``stop``. Raises PrerequisiteError."""
    await relay.start()
    for host, port in relay.addresses:
        print(f"relays {host}:{port}", flush=True)
    await stop.wait()
    await relay.stop()


async def _until_signal(relay: Relay) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(relay, stop)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m gym_compose.serving.host_relay", description="Pass connections to loopback on.")
    made.add_argument("--listen", required=True, metavar="ADDRESS")
    made.add_argument("--target", required=True, metavar="HOST")
    made.add_argument("ports", type=int, nargs="+", metavar="PORT")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0 after a signal; the error's exit code with one line on stderr."""
    arguments = parser().parse_args(argv)
    try:
        asyncio.run(_until_signal(Relay(arguments.listen, arguments.target, arguments.ports)))
    except GymComposeError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
