"""The build context of a server's own Dockerfile: its directory without what ``.dockerignore`` leaves out, file by file with digests."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from gym_compose.config.model import ServerSource, SourceFile
from gym_compose.wire.errors import InvalidInputError

IGNORE_FILE = ".dockerignore"


def with_context(source: ServerSource) -> ServerSource:
    """``source`` with the files of its build context. Raises InvalidInputError for one that cannot be read or copied."""
    return replace(source, files=context_files(Path(source.directory)))


def context_files(directory: Path) -> tuple[SourceFile, ...]:
    """The files that a ``docker build`` of ``directory`` would send, in path order; the Dockerfile always.

    A link to a file is that file; a link to a directory is refused, since a copied context could not hold it.
    """
    from docker.utils.build import exclude_paths

    found = []
    for path in sorted(exclude_paths(str(directory), _patterns(directory / IGNORE_FILE))):
        file = directory / path
        if file.is_symlink() and file.is_dir():
            raise InvalidInputError(
                "is a link to a directory, which a build context cannot hold.",
                where=str(file),
                hint=f"Copy what it points to, or name it in {directory / IGNORE_FILE}.",
            )
        if not file.is_file():
            continue  # a directory is there through its files; sockets and pipes are never sent
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            status = file.stat()
        except OSError as error:
            raise InvalidInputError(f"cannot be read: {error.strerror}.", where=str(file)) from error
        found.append(SourceFile(Path(path).as_posix(), digest, status.st_size, executable=bool(status.st_mode & 0o111)))
    return tuple(found)


def _patterns(file: Path) -> list[str]:
    if not file.is_file():
        return []
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot be read: {error}.", where=str(file)) from error
    return [line.strip().replace("/", os.sep) for line in lines if line.strip() and not line.lstrip().startswith("#")]
