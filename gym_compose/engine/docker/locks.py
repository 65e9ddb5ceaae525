"""Locks of requirements, kept after a build (``compiler.locks`` says what they are).

An image that was built without a lock does not say what is in it, except in its build's output. So what was printed is kept twice: as the
working directory's lock, and under the image's id in a cache of this user, where another working directory finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from gym_compose.compiler.deployment import Image
from gym_compose.compiler.locks import LOCK_DIRECTORY, lock_digest, lock_text
from gym_compose.engine.docker.api import Json
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.names import LABEL_LOCK

_SAID = re.compile(r"(?:#\d+ [\d.]+ )?gym-compose-lock: (?P<line>\S.*)")
_END = re.compile(r"(?:#\d+ [\d.]+ )?gym-compose-locked: (?P<count>\d+)")


def printed_lock(lines: Iterable[str]) -> tuple[str, ...] | None:
    """The lock in a build's output; None when it is not there whole (a step that came from the builder's cache prints nothing)."""
    found: list[str] = []
    for line in lines:
        said, end = _SAID.fullmatch(line), _END.fullmatch(line)
        if said:
            found.append(said["line"])
        elif end:
            return tuple(found) if len(found) == int(end["count"]) else None
    return None


class Locks:
    """Those of one working directory, and what is known of images by id."""

    def __init__(self, project_directory: Path, environ: Mapping[str, str]) -> None:
        self.directory = project_directory.parent / LOCK_DIRECTORY
        cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
        self._cache = Path(cache) / "gym-compose" / "locks"

    def holds(self, image: Image, facts: Json) -> bool:
        """Whether the image that is there has what its lock says. An image without a lock has whatever it has."""
        if image.renew:
            return False
        if image.lock is None:
            return True
        wanted = lock_digest(image.lock)
        labels: Mapping[str, str] = (facts.get("Config") or {}).get("Labels") or {}
        if labels.get(LABEL_LOCK) == wanted:
            return True
        known = self._of(facts)
        return known is not None and lock_digest(known) == wanted

    def keep(self, image: Image, facts: Json, lines: Iterable[str] | None) -> Path | None:
        """Write the lock of an image that had none: what its build printed, else what an earlier build of this user did.

        Returns the file; None when nothing is known. Raises PrerequisiteError when it cannot be written.
        """
        asked = dict.fromkeys(line for line in dict(image.inputs).get("requirements", "").splitlines() if line)
        if lines is not None:
            text = lock_text(asked, lines)
            self.remember(facts, text)
        else:
            known = self._of(facts)
            if known is None:
                return None
            text = known
        file = self.directory / f"{image.lock_name}.txt"
        _write(file, text)
        return file

    def remember(self, facts: Json, text: str) -> None:
        """Keep what is in an image under its id. Raises PrerequisiteError when it cannot be written."""
        _write(self._cache / _file_name(facts), text)

    def _of(self, facts: Json) -> str | None:
        try:
            return (self._cache / _file_name(facts)).read_text("utf-8")
        except OSError:
            return None  # nobody kept it


def _file_name(facts: Json) -> str:
    return str(facts["Id"]).rpartition(":")[2] + ".txt"


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot write: {error.strerror or error}", where=str(file), hint="Free space or mend its rights."
        ) from error
