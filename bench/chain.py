"""The parts that the data-plane bench joins: the model endpoint, the floor, and how fast a file of rollouts grows."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym_compose.wire.errors import GymComposeError

ENDPOINT_PORT = 9001
"""Where the floor's model looks for the endpoint; so everybody does."""
FLOOR_URL = "http://127.0.0.1:8101/run"
_FLOOR_PORTS = {"env": 8101, "agent": 8102, "model": 8103, "res": 8104}
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_SAMPLE_SECONDS = 0.02


class PortTakenError(GymComposeError):
    """Something else listens where the floor or its endpoint must."""


class PartError(GymComposeError):
    """A process of the bench ended, or did not begin to answer."""


@contextlib.contextmanager
def endpoint(tools: Path, delay: float) -> Iterator[str]:
    """``mock_openai.py`` on every address of this host; ``delay`` in seconds is added to each answer. Its base URL."""
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "mock_openai:app",
        "--host",
        "0.0.0.0",
        "--port",
        str(ENDPOINT_PORT),
        "--log-level",
        "warning",
    ]
    with _running([(command, ENDPOINT_PORT)], cwd=tools, environ={**os.environ, "MOCK_DELAY": str(delay)}):
        yield f"http://127.0.0.1:{ENDPOINT_PORT}/v1"


@contextlib.contextmanager
def floor(tools: Path) -> Iterator[tuple[int, ...]]:
    """``floor/server.py`` at FLOOR_URL; its four processes."""
    commands = [([sys.executable, "server.py", role], port) for role, port in _FLOOR_PORTS.items()]
    with _running(commands, cwd=tools / "floor", environ=os.environ) as processes:
        yield processes


@contextlib.contextmanager
def _running(
    commands: Sequence[tuple[list[str], int]], *, cwd: Path, environ: os._Environ[str] | dict[str, str]
) -> Iterator[tuple[int, ...]]:
    taken = [port for _, port in commands if _listens(port)]
    if taken:
        raise PortTakenError(
            "is in use on this host", where=f"port {taken[0]}", hint="The tools of ../shared have fixed ports; end what runs there."
        )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        # A session each, as the process engine gives its servers: on a busy machine the kernel shares out processor time by session.
        processes.extend(subprocess.Popen(command, cwd=cwd, env=dict(environ), start_new_session=True) for command, _ in commands)
        end = time.monotonic() + _START_SECONDS
        for process, (command, port) in zip(processes, commands, strict=True):
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise PartError("does not answer", where=" ".join(command[1:]))
                time.sleep(0.05)
        yield tuple(process.pid for process in processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Growth:
    """What a collector wrote: ``rate`` in lines a second from the first to the last, ``first`` in seconds after its start."""

    lines: int
    first: float
    rate: float
    seconds: float


class Grower:
    """Watches an output file while a collector runs. Both sides of a comparison are timed by what arrives in their file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = threading.Event()
        self._sizes: list[tuple[float, int]] = []

    def __enter__(self) -> Grower:
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.monotonic() - self._started
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(FileNotFoundError):
                size = self._path.stat().st_size
                if size and (not self._sizes or size != self._sizes[-1][1]):
                    self._sizes.append((time.monotonic(), size))

    def growth(self) -> Growth:
        """Raises PartError when too little was written for a rate."""
        lines = sum(1 for _ in self._path.open("rb")) if self._path.is_file() else 0
        if len(self._sizes) < 2:
            raise PartError("grew in one step or not at all", where=str(self._path))
        (begun, first), (ended, last) = self._sizes[0], self._sizes[-1]
        return Growth(lines, begun - self._started, lines * (last - first) / last / (ended - begun), self._seconds)


def children(pid: int) -> list[int]:
    """Direct children of a process of this host."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(*pids: int) -> float:
    """User and system time that processes have used so far, together."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(entry[11]) + int(entry[12]) for entry in fields) / os.sysconf("SC_CLK_TCK")
