"""The files of a run: their names, and lines that are never torn (contract-data 1.13)."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym_compose.driver.errors import OutputExistsError, OutputFailedError, ResumeError
from gym_compose.wire.errors import InvalidInputError

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
        """What an earlier run may have left and a fresh one must not mix with, in the order in which it is removed: as long as the journal
        is there, what is left is a run of ours that can be gone on with."""
        return self.rollouts, self.failures, self.aggregate, self.summary, self.journal

    def everything(self) -> tuple[Path, ...]:
        """All files of the run that hold something."""
        return (*self.results(), self.materialized)

    def check_kind(self) -> None:
        """Raises InvalidInputError when something else than a file stands in place of the output: a fresh run would remove it, and
        ``--output /dev/null`` is soon said."""
        _size(self.rollouts)
        if self.rollouts.exists() and not self.rollouts.is_file():
            what = "a directory" if self.rollouts.is_dir() else "a device or a pipe"
            raise InvalidInputError(f"the output is {what}", where=str(self.rollouts), hint="Give the name of a file (--output FILE).")

    def check(self, *, overwrite: bool, resume: bool) -> None:
        """Raises OutputExistsError when a result of an earlier run is there that is to be neither replaced nor gone on with, and
        ResumeError when it is to be gone on with and its rows are gone: they alone say which there were. An empty output is no result.
        InvalidInputError for an output that can be no file."""
        self.check_kind()
        results = [path for path in (self.rollouts, self.failures, self.journal) if _size(path)]
        if overwrite or not results:
            return
        if not resume:
            raise OutputExistsError(
                "results of an earlier run are there",
                where=str(results[0]),
                hint="Give --resume to go on with it, --overwrite to replace it, or another --output.",
            )
        if _size(self.materialized) is None:
            raise ResumeError(
                "there are results, and the rows of their run are gone",
                where=str(self.materialized),
                hint="Put that file back, start anew with --overwrite, or give another --output.",
            )

    def resumable(self) -> bool:
        """Whether there is a run to go on with: its rows, and anything that says that some were sent."""
        sent = bool(_size(self.journal)) or _size(self.rollouts) is not None or bool(_size(self.failures))
        return sent and _size(self.materialized) is not None

    def make_directory(self) -> None:
        """Raises OutputFailedError when the directory cannot be made or written to."""
        directory = self.rollouts.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputFailedError(f"the directory cannot be made: {error.strerror}", where=str(directory)) from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise OutputFailedError("the directory is not writable", where=str(directory), hint=f"This runs as uid {os.geteuid()}.")


def _size(path: Path) -> int | None:
    """Bytes of a file; None when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputFailedError(f"cannot be looked at: {error.strerror}", where=str(path)) from None


def full_or(error: OSError) -> str:
    """An OSError's reason, with one text for all ways in which a disk is full."""
    return "the disk is full" if error.errno in _FULL else error.strerror or str(error)


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
        self._waiting: list[bytes] = []

    def append(self, document: Any) -> None:
        """Write one document as a line. Raises OutputFailedError; then nothing of it is in the file."""
        self._waiting.append(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        self.flush()

    def defer(self, document: Any) -> None:
        """Write one document with the next line, or at ``flush``: a call to the kernel costs as much as all the rest of a line."""
        self._waiting.append(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Write what was deferred. Raises OutputFailedError; then nothing of it is in the file."""
        waiting, self._waiting = self._waiting, []
        line = memoryview(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        total = len(line)
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            raise OutputFailedError(
                f"cannot be written: {full_or(error)}",
                where=str(self.path),
                hint="What was written before is whole; --resume goes on.",
            ) from None
        self._size += total
        self.lines += len(waiting)

    def sync(self) -> None:
        """Flush to the disk (blocks; call in a thread). Raises OutputFailedError: some disks say only here that they are full."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {full_or(error)}", where=str(self.path)) from None

    def close(self) -> None:
        os.close(self._fd)


def write_document(path: Path, document: Any) -> None:
    """Replace a JSON file (2-space indent) whole. Raises OutputFailedError."""
    _replace(path, orjson.dumps(document, option=orjson.OPT_INDENT_2), sync=False)


def write_first_line(path: Path, document: Any, *, sync: bool) -> None:
    """Make a JSONL file with its first line, whole or not at all. Raises OutputFailedError."""
    _replace(path, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE), sync=sync)


def _replace(path: Path, content: bytes, *, sync: bool) -> None:
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputFailedError(f"cannot be written: {full_or(error)}", where=str(path)) from None
