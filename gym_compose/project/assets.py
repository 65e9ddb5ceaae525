"""Where the trees stand that ship with gym_compose: servers, images, compose fragments, configs.

In a checkout they are directories of the repository's root, in a wheel they lie under ``gym_compose/_assets`` (pyproject, force-include).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from gym_compose.compiler.deployment import ContextFile
from gym_compose.wire.errors import PrerequisiteError

TREES = ("servers", "images", "compose", "configs")


def package() -> Path:
    """The directory of the ``gym_compose`` package that runs.

    Raises PrerequisiteError when it is not on a file system (a zip): build contexts and servers need files.
    """
    found = resources.files("gym_compose.project")
    path = Path(str(found)).parent
    if not path.is_dir():
        raise PrerequisiteError(
            "gym_compose is not installed as files", where=str(found), hint="Install it with pip, not from a zip archive."
        )
    return path


def root() -> Path:
    """The directory that holds ``servers/``, ``images/``, ``compose/`` and ``configs/``.

    Raises PrerequisiteError when neither a checkout nor a wheel's assets are there.
    """
    here = package()
    for candidate in (here.parent, here / "_assets"):
        if all((candidate / tree).is_dir() for tree in TREES):
            return candidate
    raise PrerequisiteError(
        "this installation of gym_compose lacks its data trees (" + ", ".join(TREES) + ")",
        where=str(here),
        hint="Reinstall gym-compose from its wheel, or run it from a checkout.",
    )


def package_files() -> tuple[ContextFile, ...]:
    """Every ``*.py`` and ``py.typed`` of gym_compose with its digest, sorted by path: the input of the native and controller images' keys.

    The data trees of a wheel (``_assets``) are left out: they reach images as server files, each under its own key.
    """
    here = package()
    return tuple(
        ContextFile(
            path=(Path("gym_compose") / file.relative_to(here)).as_posix(),
            host_path=str(file),
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in sorted(_sources(here), key=lambda file: file.relative_to(here).as_posix())
    )


def _sources(directory: Path) -> Iterator[Path]:
    for entry in directory.iterdir():
        if entry.name in {"__pycache__", "_assets"}:
            continue
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.suffix == ".py" or entry.name == "py.typed":
            yield entry
