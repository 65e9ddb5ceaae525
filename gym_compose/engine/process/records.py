"""``processes.json``: what the process engine must know of its processes in another command, written atomically under a lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from gym_compose.engine.process import proc
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import Role

RECORDS_FORMAT = 1
RECORDS_FILE = "processes.json"
_LOCK_FILE = ".processes.lock"


class ProcessRecord(BaseModel):
    """One started process: a shell that keeps the exit code leads its session, the server is the shell's child.

    ``start_ticks`` and ``boot_id`` tell whether ``pid`` is still it. ``mark`` stands in the environment of all that it starts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    service: str
    role: Role
    instance: str | None
    pid: int
    start_ticks: int
    boot_id: str
    mark: str
    image: str
    slice_sha256: str | None
    started_at: float
    host: str
    port: int
    stop_grace_seconds: float

    def alive(self) -> bool:
        """Whether the leader still runs."""
        found = proc.facts(self.pid)
        return found is not None and not found.ended and self._same(found)

    def members(self) -> list[proc.ProcessFacts]:
        """The living processes of its session. Empty when the pid is somebody else's by now."""
        if self.boot_id != proc.boot_id():
            return []
        leader = proc.facts(self.pid)
        if leader is not None and not self._same(leader):
            return []
        return [found for found in proc.all_facts() if found.session == self.pid and not found.ended]

    def _same(self, found: proc.ProcessFacts) -> bool:
        return found.start_ticks == self.start_ticks and self.boot_id == proc.boot_id()


class Records(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = RECORDS_FORMAT
    project: str
    processes: tuple[ProcessRecord, ...] = ()


def log_file(directory: Path, service: str) -> Path:
    return directory / "logs" / f"{service}.log"


def exit_file(directory: Path, service: str) -> Path:
    """Where the leading shell writes the exit code."""
    return directory / "exits" / service


def exit_code(directory: Path, service: str) -> int | None:
    """The exit code as a shell tells it (128 + signal number), None while it runs or when the shell itself was killed."""
    try:
        return int(exit_file(directory, service).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def read(directory: Path, project: str) -> Records:
    """What was started; nothing when there is no file. Raises InvalidInputError when it is not ours."""
    file = directory / RECORDS_FILE
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Records(project=project)
    try:
        return Records.model_validate(orjson.loads(data))
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise InvalidInputError(
            "this is not a list of processes of this version of gym_compose",
            where=str(file),
            hint="End the processes by hand (`ps -ef | grep gym_compose`), then delete the file.",
        ) from error


def write(directory: Path, records: Records) -> None:
    """Replace the file atomically; remove it when nothing is left."""
    file = directory / RECORDS_FILE
    if not records.processes:
        file.unlink(missing_ok=True)
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{RECORDS_FILE}.", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(orjson.dumps(records.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the file against another command while it is read, changed and written. That takes milliseconds, so no time limit."""
    with (directory / _LOCK_FILE).open("a", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
