"""One driver per output: a lock that its holder's death frees and that says who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from gym_compose.driver.errors import OutputFailedError, OutputLockedError

_READ = 4096
_HELD = frozenset((errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES))


class LockHolder(BaseModel):
    """Content of ``<output>.lock``. ``container`` and ``project`` for a driver that runs in a container, whose ``host`` and ``pid`` say
    nothing outside."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    run_id: str
    host: str
    pid: int
    container: str | None = None
    project: str | None = None

    @classmethod
    def of_this_process(cls, run_id: str, *, container: str | None = None, project: str | None = None) -> LockHolder:
        return cls(run_id=run_id, host=socket.gethostname(), pid=os.getpid(), container=container, project=project)

    def error(self, path: Path) -> OutputLockedError:
        """What whoever comes second is told."""
        if self.container is not None:
            project = f" -p {self.project}" if self.project else ""
            return OutputLockedError(
                f"run {self.run_id} is still going on and writes to this output, in container {self.container}",
                where=str(path),
                hint=f"`gym eval attach {self.run_id}{project}` follows it to its end, and Ctrl+C there ends it.",
            )
        return OutputLockedError(
            f"run {self.run_id} is still going on and writes to this output: process {self.pid} on {self.host}",
            where=str(path),
            hint=f"Wait until it has ended, or end it: kill {self.pid}",
        )


class OutputLock:
    """An exclusive lock on ``<output>.lock``. A context manager.

    It is a ``flock``: containers and processes of one machine see it through any mount of the file, and the kernel frees it when its
    holder dies, so it never has to be broken by hand. Raises OutputLockedError that names the holder.
    """

    def __init__(self, path: Path, holder: LockHolder) -> None:
        self._path = path
        self._holder = holder
        self._fd = -1

    def __enter__(self) -> OutputLock:
        while True:
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._path)) from None
            try:
                _lock(fd, fcntl.LOCK_EX, self._path)
            except BaseException:
                os.close(fd)
                raise
            if self._is_current(fd):
                break
            os.close(fd)  # its holder removed the file between open and lock
        self._fd = fd
        try:
            os.ftruncate(fd, 0)
            os.write(fd, self._holder.model_dump_json().encode())
        except OSError as error:
            self._release()
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._path)) from None
        return self

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False

    def _release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._release()


def check_unlocked(path: Path) -> None:
    """Raises OutputLockedError when a driver holds the lock now: a look before servers are started, not a claim."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not readable: the driver's own lock decides
    try:
        _lock(fd, fcntl.LOCK_SH, path)
    finally:
        os.close(fd)


def _lock(fd: int, kind: int, path: Path) -> None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise OutputFailedError(f"the file system takes no locks: {error.strerror}", where=str(path)) from None
        raise _holder(os.pread(fd, _READ, 0)).error(path) from None


def _holder(content: bytes) -> LockHolder:
    try:
        return LockHolder.model_validate_json(content)
    except ValidationError:  # it was taken a moment ago
        return LockHolder(run_id="(unknown)", host="(unknown)", pid=0)
