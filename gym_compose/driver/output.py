"""The files of a run: their names, a lock, and lines that are never torn (contract-data 1.13)."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from gym_compose.driver.errors import OutputExistsError, OutputFailedError, OutputLockedError

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


@dataclass(frozen=True)
class OutputPaths:
    """All files of a run. ``stem`` is the output's name without its last suffix."""

    rollouts: Path

    def _beside(self, ending: str) -> Path:
        return self.rollouts.with_name(self.rollouts.stem + ending)

    @property
    def materialized(self) -> Path:
        return self._beside("_materialized_inputs.jsonl")

    @property
    def failures(self) -> Path:
        return self._beside("_failures.jsonl")

    @property
    def aggregate(self) -> Path:
        return self._beside("_aggregate_metrics.json")

    @property
    def summary(self) -> Path:
        return self._beside("_summary.json")

    @property
    def journal(self) -> Path:
        return self._beside("_journal.jsonl")

    @property
    def lock(self) -> Path:
        return self.rollouts.with_name(self.rollouts.name + ".lock")

    def results(self) -> tuple[Path, ...]:
        """What an earlier run may have left and a fresh one must not mix with."""
        return self.rollouts, self.failures, self.journal, self.aggregate, self.summary

    def check(self, overwrite: bool) -> None:
        """Raises OutputExistsError when a result of an earlier run is there and ``overwrite`` was not asked for.

        An empty output is not a result.
        """
        if overwrite:
            return
        for path in (self.rollouts, self.failures, self.journal):
            try:
                if path.stat().st_size > 0:
                    raise OutputExistsError(
                        "results of an earlier run are there", where=str(path), hint="Give --overwrite, or another --output."
                    )
            except FileNotFoundError:
                continue
            except OSError as error:
                raise OutputFailedError(f"cannot be looked at: {error.strerror}", where=str(path)) from None

    def make_directory(self) -> None:
        """Raises OutputFailedError when the directory cannot be made or written to."""
        directory = self.rollouts.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputFailedError(f"the directory cannot be made: {error.strerror}", where=str(directory)) from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise OutputFailedError("the directory is not writable", where=str(directory), hint=f"This runs as uid {os.geteuid()}.")


class OutputLock:
    """One driver per output, on one machine: an exclusive lock on ``<output>.lock``, whose content names the run.

    The kernel frees it when its holder dies, so a lock never has to be broken by hand. A context manager.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path = path
        self._run_id = run_id
        self._fd = -1

    def __enter__(self) -> OutputLock:
        while True:
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._path)) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(fd, 4096).decode("utf-8", "replace").strip() or "an unknown run"
                os.close(fd)
                raise OutputLockedError(f"another driver writes to this output: {holder}", where=str(self._path)) from None
            if self._is_current(fd):
                break
            os.close(fd)  # its holder removed the file between open and lock
        os.ftruncate(fd, 0)
        os.write(fd, orjson.dumps({"run_id": self._run_id, "host": socket.gethostname(), "pid": os.getpid()}))
        self._fd = fd
        return self

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


class LineFile:
    """A JSONL file that is appended to, one whole line at a time, past all buffers of this process.

    ``lines`` counts those written here. When the disk is full the begun line is cut off again, so that the file stays readable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(path)) from None
        self._size = os.fstat(self._fd).st_size

    def append(self, document: Any) -> None:
        """Write one document as a line. Raises OutputFailedError; then nothing of it is in the file."""
        line = memoryview(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        total = len(line)
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            reason = "the disk is full" if error.errno in _FULL else error.strerror or str(error)
            raise OutputFailedError(
                f"cannot be written: {reason}", where=str(self.path), hint="What was written before is whole."
            ) from None
        self._size += total
        self.lines += 1

    def sync(self) -> None:
        """Flush to the disk (blocks; call in a thread)."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def write_document(path: Path, document: Any) -> None:
    """Replace a JSON file (2-space indent) whole. Raises OutputFailedError."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(path)) from None
