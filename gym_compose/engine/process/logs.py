"""Log lines of processes, from the files that they append to. They hold no times, so lines of several services come as they are read."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gym_compose.engine.interface import LogLine
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings


@dataclass
class LogTail:
    """Reads a file as it grows; begins again when another file takes its name (rotation) or it became shorter."""

    path: Path
    _position: int = 0
    _inode: int | None = None
    _rest: bytes = field(default=b"")

    def read(self) -> list[str]:
        """The whole lines that came since the last call; a line without its end waits for it."""
        try:
            with self.path.open("rb") as handle:
                status = os.fstat(handle.fileno())
                if status.st_ino != self._inode or status.st_size < self._position:
                    self._inode, self._position, self._rest = status.st_ino, 0, b""
                handle.seek(self._position)
                data = handle.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", errors="replace").rstrip("\r") for line in lines]

    def rest(self) -> list[str]:
        """The last line when it has no end."""
        text, self._rest = self._rest.decode("utf-8", errors="replace"), b""
        return [text] if text else []


def file_lines(files: Mapping[str, Path], redactor: Redactor, tail: int | None) -> Iterator[LogLine]:
    """What stands in the files now, service by service; the last ``tail`` lines of each. Secrets are masked."""
    for service, path in files.items():
        reader = LogTail(path)
        lines = deque([*reader.read(), *reader.rest()], maxlen=tail)
        for line in lines:
            yield LogLine(service, redactor.text(line))


def followed_lines(
    files: Callable[[], Mapping[str, Path]],
    running: Callable[[], bool],
    redactor: Redactor,
    tail: int | None,
    stop: threading.Event | None,
    settings: Settings,
) -> Iterator[LogLine]:
    """What stands in the files and what is added.

    Until ``stop`` is set, or nothing has run for ``log_idle_seconds``; without ``stop`` until nothing runs. ``files`` is asked again each
    round, since a service may be added.
    """
    readers: dict[str, LogTail] = {}
    idle_since: float | None = None
    patience = 0.0 if stop is None else settings.log_idle_seconds
    waiting = stop or threading.Event()
    while not waiting.is_set():
        # Asked before the files are read: what a process wrote last is then read in the same round that sees its end.
        alive = running()
        quiet = True
        for service, path in files().items():
            first = service not in readers
            reader = readers.setdefault(service, LogTail(path))
            lines = reader.read()
            if not alive:
                lines += reader.rest()
            if first and tail is not None:
                lines = lines[-tail:] if tail else []
            for line in lines:
                quiet = False
                yield LogLine(service, redactor.text(line))
        if alive or not quiet:
            idle_since = None
        elif idle_since is None:
            idle_since = time.monotonic()
        if idle_since is not None and time.monotonic() - idle_since >= patience:
            return
        waiting.wait(settings.process_poll_seconds)
