"""What a server directory asks to be installed, and on which runtime it runs (contract-config 4.3, design decision 2)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from gym_compose.wire.errors import InvalidInputError

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)(?P<path>\S+)")
_NAMED = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?(?P<name>nemo[-_.]gym|gym[-_.]compose)(?=$|[\s\[<>=!~@;,])", re.IGNORECASE)
_CHECKOUT = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?(?:\./)?\.\./\.\.(?:/|\[|$)")
"""``-e ../../``: the root of a NeMo Gym checkout by its path."""


class RequirementsError(InvalidInputError):
    """A server directory whose requirement files cannot be used: none, two kinds at once, unreadable, or two runtimes in one."""


def requirement_file(directory: Path) -> Path | None:
    """The file that lists a server's requirements: ``requirements.txt`` or ``pyproject.toml``; None when neither is there.

    Raises RequirementsError when both are (as NeMo Gym does).
    """
    text, project = directory / "requirements.txt", directory / "pyproject.toml"
    if text.is_file() and project.is_file():
        raise RequirementsError("both requirements.txt and pyproject.toml are here.", where=str(directory), hint="Keep one of them.")
    return text if text.is_file() else project if project.is_file() else None


def requirement_lines(file: Path) -> tuple[str, ...]:
    """All lines of a requirement file: comments and blanks out, continued lines joined, ``-r`` files read in place.

    Of a ``pyproject.toml`` these are its ``project.dependencies``. Raises RequirementsError for what cannot be read.
    """
    if file.name == "pyproject.toml":
        return _project_dependencies(file)
    return tuple(_lines(file, (file,)))


def split_runtime(lines: tuple[str, ...], where: Path) -> tuple[str | None, tuple[str, ...]]:
    """(``gym-compose``, ``nemo-gym`` or None, the lines without those two). Raises RequirementsError when both are named."""
    named: dict[str, str] = {}
    rest = []
    for line in lines:
        match = _NAMED.match(line)
        if match:
            named[re.sub(r"[-_.]+", "-", match["name"]).lower()] = line
        elif _CHECKOUT.match(line):
            named["nemo-gym"] = line
        else:
            rest.append(line)
    if len(named) > 1:
        raise RequirementsError(
            f"both runtimes are named: {named['gym-compose']!r} and {named['nemo-gym']!r}.",
            where=str(where),
            hint="A server runs on one: name gym-compose for a native server, nemo-gym for one written against NeMo Gym.",
        )
    return next(iter(named), None), tuple(rest)


def _project_dependencies(file: Path) -> tuple[str, ...]:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequirementsError(f"cannot be read: {error}.", where=str(file)) from error
    project = document.get("project")
    dependencies = project.get("dependencies", []) if isinstance(project, dict) else []
    if not (isinstance(dependencies, list) and all(isinstance(line, str) for line in dependencies)):
        raise RequirementsError("project.dependencies is not a list of strings.", where=str(file))
    return tuple(line.strip() for line in dependencies)


def _lines(file: Path, including: tuple[Path, ...]) -> Iterator[str]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsError(f"cannot be read: {error}.", where=str(file)) from error
    for raw in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = _COMMENT.sub("", raw).strip()
        if not line:
            continue
        include = _INCLUDE.fullmatch(line)
        if include is None:
            yield line
            continue
        inner = file.parent / include["path"]
        if inner in including:
            raise RequirementsError(f"{include['path']} includes itself.", where=str(file))
        yield from _lines(inner, (*including, inner))
