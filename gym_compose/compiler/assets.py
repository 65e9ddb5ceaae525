"""Reading what ``CompileOptions`` wants from disk. Beside ``write`` the only module here that touches it; ``compile`` never calls it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from gym_compose.compiler.options import HostFile
from gym_compose.wire.errors import PrerequisiteError

_TREES = ("images", "compose")
_CHUNK = 1 << 20


def read_assets(root: Path) -> dict[str, str]:
    """The text of every file under ``root``'s ``images/`` and ``compose/`` trees, by its path relative to ``root``.

    The checked-in example is left out. Raises PrerequisiteError when a file cannot be read.
    """
    texts: dict[str, str] = {}
    for tree in _TREES:
        for file in sorted((root / tree).rglob("*")):
            relative = file.relative_to(root).as_posix()
            if not file.is_file() or relative.startswith("compose/example/") or "__pycache__" in file.parts:
                continue
            try:
                texts[relative] = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise PrerequisiteError(f"cannot read: {error}", where=str(file), hint="Reinstall gym-compose.") from error
    return texts


def read_host_files(paths: Iterable[str], roots: Sequence[Path]) -> dict[str, HostFile]:
    """Find each path under the search roots, in order, and digest it. What is not there is left out: ``compile`` knows whether it must be.

    Raises PrerequisiteError when a file is there and cannot be read.
    """
    found: dict[str, HostFile] = {}
    for text in paths:
        for root in roots or (Path("/"),):
            candidate = root / Path(text).expanduser()
            if candidate.is_dir():
                found[text] = HostFile(str(candidate.resolve()))
                break
            if candidate.is_file():
                found[text] = HostFile(str(candidate.resolve()), _file_digest(candidate))
                break
    return found


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as handle:
            while chunk := handle.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise PrerequisiteError(f"cannot read: {error.strerror or error}", where=str(path), hint="Mend its rights.") from error
    return digest.hexdigest()


def read_locks(directory: Path) -> dict[str, str]:
    """Name to text of every lock in ``directory``. Raises PrerequisiteError for one that cannot be read."""
    found = {}
    for file in sorted(directory.glob("*.txt")):
        try:
            found[file.stem] = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PrerequisiteError(f"cannot read: {error}", where=str(file), hint="Mend it, or delete it: it is made anew.") from error
    return found
