"""``.gym/<project>/``: what a project keeps on disk (docs/architecture.md has the table of its files)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from gym_compose.project.errors import ProjectBusyError, ProjectNotFoundError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.names import EngineName

GYM_DIRECTORY = ".gym"
STATE_FORMAT = 1
_LOCK_POLL_SECONDS = 0.1


class ProjectState(BaseModel):
    """``state.json``: what must outlive a command. It holds no secret; the session key has a 0600 file of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = STATE_FORMAT
    project: str
    engine: EngineName
    gym_compose: str
    head_port: int | None = None
    """The head's port on 127.0.0.1 of this host, as it was last started."""
    ports: dict[str, int] = {}
    """Process engine: each instance's port, so that a second ``up`` does not move servers that run."""
    config_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProjectDirectory:
    """Paths and files of one project. Making one touches nothing; ``create`` does."""

    path: Path

    @classmethod
    def under(cls, cwd: Path, project: str) -> ProjectDirectory:
        return cls(cwd / GYM_DIRECTORY / project)

    @property
    def project(self) -> str:
        return self.path.name

    @property
    def compose_file(self) -> Path:
        return self.path / "compose.yaml"

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    @property
    def session_key_file(self) -> Path:
        return self.path / "session.key"

    @property
    def published_file(self) -> Path:
        return self.path / "head" / "published" / "addresses.json"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    def run(self, run: str) -> Path:
        return self.runs / run

    @property
    def exists(self) -> bool:
        """Raises PrerequisiteError when the directory is another user's."""
        try:
            return self.state_file.is_file()
        except PermissionError as error:
            raise _no_right(self.path) from error

    def create(self) -> None:
        """Make the directory, for the caller's eyes only (0700) and ignored by git, whatever the umask is.

        Raises PrerequisiteError when it cannot be made.
        """
        try:
            parent = self.path.parent
            if not parent.is_dir():
                parent.mkdir(parents=True, mode=0o700)
                parent.chmod(0o700)
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.path.chmod(0o700)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise PrerequisiteError(
                f"cannot make the project directory: {error.strerror or error}",
                where=str(self.path),
                hint="It stands under the current directory, which must be writable.",
            ) from error

    # State

    def read_state(self) -> ProjectState | None:
        """The state, or None when the project was never written.

        Raises InvalidInputError when the file is not ours, PrerequisiteError when it is another user's.
        """
        try:
            data = self.state_file.read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise _no_right(self.path) from error
        try:
            return ProjectState.model_validate(orjson.loads(data))
        except (orjson.JSONDecodeError, ValidationError) as error:
            raise InvalidInputError(
                "this is not a project state of this version of gym_compose",
                where=str(self.state_file),
                hint=f"Stop what runs with `gym compose -p {self.project} down`, then delete {self.path}.",
            ) from error

    def planned_services(self) -> list[tuple[str, str | None]]:
        """(service, instance) of everything in ``plan.json``; empty when there is none that can be read."""
        try:
            document = orjson.loads(self.plan_file.read_bytes())
            return [(str(entry["service"]), entry.get("instance")) for entry in document["services"]]
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            return []

    def write_state(self, state: ProjectState) -> None:
        self.create()
        write_file(self.state_file, orjson.dumps(state.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")

    def read_session_key(self) -> str | None:
        """The key that signs session cookies of this project, or None while there is none."""
        try:
            return self.session_key_file.read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise _no_right(self.path) from error

    def session_key(self, *, token: str | None = None) -> str:
        """That key, made at the first time (``token``, else random) and kept in a 0600 file.

        It must not change between two ``up``: it is part of every slice, and a new one would recreate every service.
        """
        key = self.read_session_key()
        if key is None:
            self.create()
            key = token or secrets.token_hex(32)
            write_file(self.session_key_file, (key + "\n").encode("ascii"), mode=0o600)
        return key

    @contextlib.contextmanager
    def lock(self, deadline: Deadline) -> Iterator[None]:
        """Hold the project against another command that writes or applies it. Raises ProjectBusyError when it stays taken."""
        self.create()
        with (self.path / ".lock").open("a", encoding="ascii") as handle:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if deadline.expired:
                        raise ProjectBusyError(self.project) from error
                    time.sleep(deadline.pause(_LOCK_POLL_SECONDS))
            try:
                yield
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)


def _no_right(path: Path) -> PrerequisiteError:
    return PrerequisiteError(
        "this project belongs to another user", where=str(path), hint="Work on it as that user (root?), or choose another name with -p."
    )


def projects_under(cwd: Path) -> tuple[ProjectDirectory, ...]:
    """The projects whose directory stands under ``cwd``, by name."""
    found = sorted((cwd / GYM_DIRECTORY).glob("*/state.json"))
    return tuple(ProjectDirectory(file.parent) for file in found)


def find_project(cwd: Path, name: str | None) -> ProjectDirectory:
    """The project named ``name``; without a name the only one under ``cwd``, or the only one of several that was started and not stopped.

    Raises ProjectNotFoundError, which lists those that are there; what ``read_state`` raises.
    """
    found = projects_under(cwd)
    if name is not None:
        chosen = ProjectDirectory.under(cwd, name)
        if chosen.exists:
            return chosen
        raise ProjectNotFoundError(f"there is no project {name!r} here", cwd, tuple(project.project for project in found))
    if len(found) == 1:
        return found[0]
    started = [project for project in found if (state := project.read_state()) is not None and state.head_port is not None]
    if len(started) == 1:
        return started[0]
    message = "there is no project here" if not found else "there are several projects here"
    raise ProjectNotFoundError(message, cwd, tuple(project.project for project in found))


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write atomically: a reader sees the old bytes or the new ones. Raises PrerequisiteError naming the path (disk full, no right)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(data)
                os.fchmod(handle.fileno(), mode)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise PrerequisiteError(
            f"cannot write: {error.strerror or error}", where=str(path), hint="Free space or mend its rights."
        ) from error
