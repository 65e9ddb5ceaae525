"""What a server directory asks to be installed, and on which runtime it runs (contract-config 4.3, design decision 2)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gym_compose.wire.errors import InvalidInputError

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r\s*|--requirement(?:\s+|=))(?P<quote>[\"']?)(?P<path>\S(?:.*\S)?)(?P=quote)")
_NAMED = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?(?P<name>nemo[-_.]gym|gym[-_.]compose)(?=$|[\s\[<>=!~@;,])", re.IGNORECASE)
_CHECKOUT = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?(?:\./)?\.\./\.\.(?:/|\[|$)")
"""``-e ../../``: the root of a NeMo Gym checkout by its path."""
_EXTRAS = re.compile(r"[/\s]*\[(?P<extras>[^\]]*)\]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ELSEWHERE = ("git", "url", "path", "workspace", "index")


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
    return tuple(line for line, _ in _lines(file, (file.resolve(),)))


def requirement_places(file: Path) -> tuple[tuple[str, str], ...]:
    """(line, ``file:number``) of each line of ``requirement_lines``, for messages. Raises what it raises."""
    if file.name != "pyproject.toml":
        return tuple(_lines(file, (file.resolve(),)))
    text = file.read_text("utf-8").splitlines()
    found = []
    for dependency in (*_project_dependencies(file), *_project_overrides(file)):
        number = next((number for number, line in enumerate(text, 1) if dependency in line), None)
        found.append((dependency, f"{file}:{number}" if number else str(file)))
    return tuple(found)


def split_runtime(lines: tuple[str, ...], where: Path) -> tuple[str | None, tuple[str, ...]]:
    """(``gym-compose``, ``nemo-gym`` or None, the lines without those two). Raises RequirementsError when both are named."""
    named: dict[str, str] = {}
    rest = []
    for line in lines:
        match = _NAMED.match(line)
        if match:
            named[_normal(match["name"])] = line
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


def runtime_extras(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Extras that the lines ask of ``nemo-gym``, sorted: ``-e nemo-gym[dev,sandbox] @ ../..`` has two."""
    found: set[str] = set()
    for line in lines:
        match = _NAMED.match(line) or _CHECKOUT.match(line)
        extras = _EXTRAS.match(line, match.end()) or _EXTRAS.match(line, match.end() - 1) if match else None
        if extras:
            found.update(part.strip().lower() for part in extras["extras"].split(",") if part.strip())
    return tuple(sorted(found))


def override_lines(directory: Path) -> tuple[str, ...]:
    """The resolver's overrides: the lines of ``overrides.txt`` and a ``pyproject.toml``'s ``[tool.uv] override-dependencies``."""
    file, project = directory / "overrides.txt", directory / "pyproject.toml"
    return (*(requirement_lines(file) if file.is_file() else ()), *(_project_overrides(project) if project.is_file() else ()))


def unindexed_dependencies(file: Path) -> tuple[tuple[str, str], ...]:
    """(package, why) of a ``pyproject.toml``'s dependencies that an index does not give: ``[tool.uv.sources]`` names another place. Taken
    from the index all the same they would be a stranger's package of that name (contract-servers 7.1). A source of what is no dependency
    counts only where the build backend computes them. NeMo Gym itself may come from a path, which is the checkout's, and from nowhere else.
    Raises RequirementsError for indexes of the file's own, which a requirements.txt may not name either.
    """
    for key in ("index", "index-url", "extra-index-url", "find-links"):
        if _uv(file).get(key):
            raise RequirementsError(
                f"tool.uv.{key} names a package index, and those are taken from this host's own settings.",
                where=str(file),
                hint="Set it with pip config or PIP_EXTRA_INDEX_URL, and take it out of the file.",
            )
    found = []
    sources = _uv(file).get("sources")
    needed = {_normal(match.group()) for line in _project_dependencies(file) if (match := _NAME.match(line))}
    for name, source in (sources if isinstance(sources, dict) else {}).items():
        runtime = _normal(name) in ("nemo-gym", "gym-compose")
        if _normal(name) not in needed and not computes_dependencies(file):
            continue
        items = source if isinstance(source, list) else [source]
        if not all(isinstance(item, dict) for item in items):
            raise RequirementsError(
                f"tool.uv.sources.{name} is no table.", where=str(file), hint=f'Write {name} = {{git = "https://…"}}, or take it out.'
            )
        keys = ("git", "url") if runtime else _ELSEWHERE
        place = next((f"{key} {item[key]}" for item in items for key in keys if item.get(key)), None)
        if place is not None:
            found.append((name, f"[tool.uv.sources] takes it from {place}"))
    return tuple(found)


def computes_dependencies(file: Path) -> bool:
    """Whether a ``pyproject.toml`` leaves its dependencies to its build backend: by ``dynamic`` (a setup.py, mostly), or by having no
    ``[project]`` table beside a setup.py or a backend of its own (poetry)."""
    document = _project(file)
    project = document.get("project")
    if project is None:
        return "build-system" in document or any((file.parent / name).is_file() for name in ("setup.py", "setup.cfg"))
    dynamic = project.get("dynamic", []) if isinstance(project, dict) else []
    return isinstance(dynamic, list) and "dependencies" in dynamic


def is_project_file(path: str) -> bool:
    """Whether a file of a server directory may be read by a build backend that computes its dependencies: what stands beside
    pyproject.toml and is no code of the server."""
    return "/" not in path and (path == "setup.py" or not path.endswith(".py"))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _project(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequirementsError(f"cannot be read: {error}.", where=str(file)) from error


def _uv(file: Path) -> dict[str, Any]:
    """The ``[tool.uv]`` table."""
    tool = _project(file).get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    return uv if isinstance(uv, dict) else {}


def _project_overrides(file: Path) -> tuple[str, ...]:
    overrides = _uv(file).get("override-dependencies", [])
    if not (isinstance(overrides, list) and all(isinstance(line, str) for line in overrides)):
        raise RequirementsError("tool.uv.override-dependencies is not a list of strings.", where=str(file))
    return tuple(line.strip() for line in overrides)


def _project_dependencies(file: Path) -> tuple[str, ...]:
    project = _project(file).get("project")
    dependencies = project.get("dependencies", []) if isinstance(project, dict) else []
    if not (isinstance(dependencies, list) and all(isinstance(line, str) for line in dependencies)):
        raise RequirementsError("project.dependencies is not a list of strings.", where=str(file))
    return tuple(line.strip() for line in dependencies)


def _lines(file: Path, including: tuple[Path, ...], asked: str = "") -> Iterator[tuple[str, str]]:
    """(line, ``file:number``). ``asked`` is the place that includes the file."""
    try:
        text = file.read_text("utf-8-sig")
    except OSError as error:
        by = f" ({asked} includes it)" if asked else ""
        raise RequirementsError(f"cannot be read: {error.strerror}{by}.", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise RequirementsError(f"cannot be read: {error}.", where=str(file), hint="Save it as UTF-8.") from error
    for number, raw in _joined(text):
        line = _COMMENT.sub("", raw).strip()
        if not line:
            continue
        include = _INCLUDE.fullmatch(line)
        if include is None:
            yield line, f"{file}:{number}"
            continue
        inner = (file.parent / include["path"]).resolve()
        if inner in including:
            raise RequirementsError(f"{include['path']} includes itself.", where=f"{file}:{number}")
        yield from _lines(inner, (*including, inner), f"{file}:{number}")


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, line) with continued lines joined."""
    begun: int | None = None
    parts = ""
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun or number
        if line.endswith("\\"):
            parts += line[:-1] + " "
            continue
        yield begun, parts + line
        begun, parts = None, ""
    if begun is not None:
        yield begun, parts
