"""Writing the rendered files into ``.gym/<project>/``: atomically, for the caller's eyes only, without what earlier compiles left."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from gym_compose.compiler.errors import CompileError
from gym_compose.compiler.render import BUILD_FILE, COMPOSE_FILE, PUBLISHED_DIRECTORY, OutputFile
from gym_compose.wire.errors import PrerequisiteError

_OWNED_TREES = ("slices", "images", "head")
"""Directories in which everything that is not in this compile is removed. ``runs/`` and ``state.json`` belong to others."""
_OWNED_FILES = (COMPOSE_FILE, BUILD_FILE)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def write(files: Iterable[OutputFile], directory: Path) -> None:
    """Make ``directory`` (0700, with its own ``.gitignore``) hold ``files`` and nothing of an earlier compile.

    A file whose bytes, mode and owner are right already is left alone. Files with an owner are given to it when this process is root.
    Raises PrerequisiteError naming the path (disk full, no right to write), CompileError when a server's file changed since it was read.
    """
    wanted = {file.path: file for file in files}
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        _put(OutputFile(".gitignore", b"*\n"), directory)
        (directory / PUBLISHED_DIRECTORY).mkdir(parents=True, exist_ok=True)
        for file in wanted.values():
            _put(file, directory)
        for stale in _stale(set(wanted), directory):
            stale.rmdir() if stale.is_dir() and not stale.is_symlink() else stale.unlink()
    except OSError as error:
        raise _explain(error, directory) from error


def _put(file: OutputFile, directory: Path) -> None:
    path = directory / file.path
    owner = file.owner if os.geteuid() == 0 else None
    if _same(path, file, owner):
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            if file.content is not None:
                handle.write(file.content)
            else:
                _copy(file, handle.fileno())
            os.fchmod(handle.fileno(), file.mode)
            if owner is not None:
                os.fchown(handle.fileno(), *owner)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _copy(file: OutputFile, target: int) -> None:
    assert file.host_path is not None, f"{file.path} has neither content nor a source"
    try:
        data = Path(file.host_path).read_bytes()
    except FileNotFoundError:
        raise CompileError("the file is gone since it was read", where=file.host_path, hint="Run the command again.") from None
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise CompileError("the file changed while the deployment was compiled", where=file.host_path, hint="Run the command again.")
    with open(target, "wb", closefd=False) as handle:
        handle.write(data)


def _same(path: Path, file: OutputFile, owner: tuple[int, int] | None) -> bool:
    try:
        status = path.lstat()
        if status.st_mode & 0o170777 != 0o100000 | file.mode or (owner is not None and (status.st_uid, status.st_gid) != owner):
            return False
        if file.content is not None:
            return status.st_size == len(file.content) and path.read_bytes() == file.content
        return hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return False


def _stale(wanted: set[str], directory: Path) -> Iterator[Path]:
    """Files and then empty directories of earlier compiles, deepest first."""
    kept = {*wanted, PUBLISHED_DIRECTORY}
    for path in tuple(kept):
        kept.update(parent.as_posix() for parent in PurePosixPath(path).parents)
    for name in _OWNED_FILES:
        if name not in wanted and (directory / name).is_file():
            yield directory / name
    for tree in _OWNED_TREES:
        for parent, directories, names in os.walk(directory / tree, topdown=False):
            relative = Path(parent).relative_to(directory)
            if relative.is_relative_to(PUBLISHED_DIRECTORY):
                continue
            for name in (*names, *directories):
                if (relative / name).as_posix() not in kept:
                    yield Path(parent) / name


def _explain(error: OSError, directory: Path) -> PrerequisiteError:
    where = str(error.filename or directory)
    if error.errno in _FULL:
        free = shutil.disk_usage(directory).free if directory.exists() else 0
        return PrerequisiteError(
            f"no space left on the disk ({free // 2**20} MiB free)", where=where, hint="Free some space and try again."
        )
    if isinstance(error, PermissionError):
        return PrerequisiteError(
            "no right to write here",
            where=where,
            hint=f"{directory} may have been made by another user (root?): remove it or give it to yourself.",
        )
    return PrerequisiteError(f"cannot write: {error.strerror or error}", where=where, hint="Mend this and try again.")
