"""The NeMo Gym that a user's servers are written for: found on disk, never imported (contract-config 4.3).

Two forms: a wheel, installed or unpacked (``nemo_gym`` beside ``nemo_gym-VERSION.dist-info``), and a checkout (``nemo_gym`` beside a
``pyproject.toml`` that names nemo-gym).
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from gym_compose.config.model import NemoGymTree, SourceFile
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import SERVER_TYPES

PACKAGE = "nemo_gym"
CHECKOUT_TREES = (PACKAGE, *SERVER_TYPES, "benchmarks", "environments")
"""What of a checkout servers import from (62 of the peer's directories import others) and is therefore in its images."""
_SKIPPED = frozenset({"__pycache__", "tests", "node_modules", "outputs", "results", "cache"})
_LOWEST_PYTHON = "3.13"


class NemoGymTreeError(InvalidInputError):
    """A NeMo Gym tree whose metadata cannot be read."""


def is_wheel_root(root: Path) -> bool:
    """Whether ``root`` is where a nemo-gym wheel was installed or unpacked."""
    return (root / PACKAGE / "__init__.py").is_file() and _metadata(root) is not None


def is_checkout(root: Path) -> bool:
    """Whether ``root`` is a source tree of NeMo Gym."""
    if not (root / PACKAGE / "__init__.py").is_file() or not (root / "pyproject.toml").is_file():
        return False
    name = _project(root / "pyproject.toml").get("name")
    return isinstance(name, str) and re.sub(r"[-_.]+", "-", name).lower() == "nemo-gym"


def find_nemo_gym(roots: Sequence[Path]) -> NemoGymTree | None:
    """The first root that is a NeMo Gym, as data; None without one. A checkout's files are read and digested.

    Raises NemoGymTreeError naming the file that cannot be read.
    """
    for root in roots:
        if is_checkout(root):
            project = _project(root / "pyproject.toml")
            files = tuple(_files(root))
            return NemoGymTree(str(root), "checkout", _version(root, project), lowest_python(project.get("requires-python")), files)
        metadata = _metadata(root)
        if metadata is not None and (root / PACKAGE / "__init__.py").is_file():
            header = HeaderParser().parsestr(_text(metadata))
            if not header["Version"]:
                raise NemoGymTreeError("has no Version.", where=str(metadata), hint="Install NeMo Gym again.")
            return NemoGymTree(str(root), "wheel", str(header["Version"]), lowest_python(header["Requires-Python"]))
    return None


def lowest_python(specifier: object) -> str:
    """The lowest Python that a ``Requires-Python`` allows: ``>=3.13.14,<4`` gives 3.13.14; 3.13 where it does not say."""
    try:
        found = [item.version for item in SpecifierSet(str(specifier or "")) if item.operator in (">=", "==", "~=")]
    except InvalidSpecifier:
        return _LOWEST_PYTHON
    # Of several bounds the highest counts; a SpecifierSet has no order of its own.
    return max((version.removesuffix(".*") for version in found), key=Version) if found else _LOWEST_PYTHON


def _metadata(root: Path) -> Path | None:
    return next(iter(sorted(root.glob(f"{PACKAGE}-*.dist-info/METADATA"))), None)


def _version(root: Path, project: dict[str, Any]) -> str:
    if isinstance(project.get("version"), str):
        return str(project["version"])
    file = root / PACKAGE / "package_info.py"
    text = _text(file) if file.is_file() else ""
    parts = [re.search(rf"^{name}\s*=\s*(\d+)\s*$", text, re.MULTILINE) for name in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part[1] for part in parts if part) or "0"


def _project(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise NemoGymTreeError(f"is not TOML: {error}.", where=str(file)) from error
    project = document.get("project")
    return project if isinstance(project, dict) else {}


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NemoGymTreeError(f"cannot be read: {error}.", where=str(file)) from error


def _files(root: Path) -> Iterator[SourceFile]:
    """pyproject.toml, README and the trees, without caches, tests, hidden files and datasets other than ``example.jsonl``."""
    names = [name for name in ("pyproject.toml", "README.md", "LICENSE") if (root / name).is_file()]
    for tree in CHECKOUT_TREES:
        try:
            names.extend(_walk(root, tree))
        except OSError as error:
            raise NemoGymTreeError(f"cannot be read: {error.strerror}.", where=str(error.filename or root / tree)) from error
    for name in names:
        file = root / name
        if any(0xDC80 <= ord(character) <= 0xDCFF for character in name):
            raise NemoGymTreeError(
                "the name of a file is not UTF-8, so no image can hold it.", where=ascii(str(file)), hint="Rename or remove it."
            )
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            status = file.stat()
        except OSError as error:
            raise NemoGymTreeError(f"cannot be read: {error.strerror}.", where=str(file)) from error
        yield SourceFile(path=name, sha256=digest, size=status.st_size, executable=bool(status.st_mode & 0o111))


def _walk(root: Path, prefix: str) -> Iterator[str]:
    here = root / prefix
    for entry in sorted(here.iterdir()) if here.is_dir() else ():
        path = f"{prefix}/{entry.name}"
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            if entry.name not in _SKIPPED and not (entry / "pyvenv.cfg").is_file():
                yield from _walk(root, path)
        elif entry.is_file() and entry.suffix not in (".pyc", ".pyo") and not (entry.suffix == ".jsonl" and entry.name != "example.jsonl"):
            yield path
