"""What a NeMo Gym server asks for beyond NeMo Gym itself: its effective requirement lines (contract-servers 7.2, 7.4).

With a lock of the runtime's packages it is known here which lines are met already and make no layer, and which contradict it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gym_compose.compiler.errors import SourceError
from gym_compose.config.model import ServerSource
from gym_compose.wire.redaction import Redactor

IN_RUNTIME = frozenset({"dev"})
"""Extras of nemo-gym that make no layer: of ``dev`` servers import defusedxml only, which the runtime has (contract-servers 7.2)."""
_LOCAL = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?\./(?P<path>[^\[\s;]+?)/?(?P<extras>\[[^\]]*\])?")
_UP = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?\.\./")
_ITSELF = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?\./?(?:\[[^\]]*\])?")
_PATH = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?[/~.]")
_CONSTRAINTS = re.compile(r"(?:-c|--constraint)\b")
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z0-9_]+)\}")
"""A variable as pip and uv read it in a requirements file."""
_HASH = re.compile(r"\s+--hash[=\s]\s*\S+")
_REPOSITORY = re.compile(r"(?:^|@\s*|\s)(?:hg|svn|bzr)\+")
_GIT = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?git\+\S+")
"""A git URL by itself. The build image has git; nothing that runs has."""
_ARCHIVE = re.compile(r"https?://\S+(?:\.whl|\.tar\.(?:gz|bz2|xz|zst)|\.tgz|\.zip)(?:[?#]\S+)?")
"""A wheel or source archive by its URL alone."""


@dataclass(frozen=True)
class PeerLines:
    """One server's needs. Equal values share a layer."""

    lines: tuple[str, ...] = ()
    """Sorted; what the runtime satisfies is left out."""
    extras: tuple[str, ...] = ()
    """Of nemo-gym, without those the runtime has."""
    overrides: tuple[str, ...] = ()
    local: tuple[tuple[str, str], ...] = ()
    """(directory within the server's, extras) of packages that lie in the server's own directory."""
    computed: str = ""
    """``TYPE/NAME`` of a server whose build backend computes its dependencies: it shares its layer with no other."""

    def __bool__(self) -> bool:
        return bool(self.lines or self.extras or self.local or self.computed)


def peer_lines(instance: str, source: ServerSource, lock: Mapping[str, str], python: str) -> tuple[PeerLines, tuple[str, ...]]:
    """(needs, notes for the plan). ``lock`` maps canonical names to the versions that the runtime has, empty where that is not known.

    Raises SourceError for a line that no image build can install, with the reason.
    """
    refuse_unindexed(instance, source)
    lines: set[str] = set()
    local: set[tuple[str, str]] = set()
    notes: list[str] = []
    environment = _environment(python)
    for line in source.requirement_lines:
        found = _LOCAL.fullmatch(line)
        if found:
            if not any(file.path.startswith(found["path"] + "/") for file in source.files):
                raise SourceError(
                    instance,
                    f"the requirement {line!r} in {source.place(line)} names a directory that is not in {source.directory}",
                    "Correct the path, or take the line out.",
                )
            local.add((found["path"], found["extras"] or ""))
            continue
        requirement = parse_line(instance, source, line)
        if requirement is None:
            lines.add(line)
            continue
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        has = lock.get(canonicalize_name(requirement.name))
        if has is not None and requirement.url is None:
            if requirement.specifier.contains(has, prereleases=True):
                if not requirement.extras:
                    continue
            else:
                notes.append(f"{line} contradicts the runtime's {requirement.name} {has}: both are resolved together in one environment")
        lines.add(line)
    for line in source.overrides:
        override = parse_line(instance, source, line)
        if override is None or (override.marker is not None and not override.marker.evaluate(environment)):
            continue
        has = lock.get(canonicalize_name(override.name))
        if has is not None and not override.specifier.contains(has, prereleases=True):
            # Alone an override asks for nothing, and there would be no layer in which it could hold.
            lines.add(line)
            notes.append(f"{line} overrides the runtime's {override.name} {has}: all are resolved together in one environment")
    extras = tuple(extra for extra in source.extras if extra not in IN_RUNTIME)
    computed = ""
    if source.computed:
        computed = f"{source.server_type}/{source.implementation}"
        notes.append(f"its dependencies are computed in the build, by {', '.join(source.computed)}")
    return PeerLines(tuple(sorted(lines)), extras, tuple(sorted(source.overrides)), tuple(sorted(local)), computed), tuple(notes)


def parse_lock(text: str) -> dict[str, str]:
    """Canonical name to version of the lines ``name==version``; others are skipped."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, version = line.split("#", 1)[0].split(";", 1)[0].strip().partition("==")
        if equals:
            found[canonicalize_name(name.split("[", 1)[0])] = version.strip()
    return found


def refuse_unindexed(instance: str, source: ServerSource) -> None:
    """Raise SourceError for a package that an index would give another one of the same name for."""
    for package, why in source.unindexed:
        raise SourceError(
            instance,
            f"{source.directory} needs {package}, and {why}; a package of that name from the index may be a stranger's",
            "Build a wheel of it for your index and name name==version, or build an image of your own and name it with compose: servers.",
        )


def parse_line(instance: str, source: ServerSource, line: str) -> Requirement | None:
    """A requirement line as an image build installs it, without its hashes; None for a URL alone, whose package has no name yet.

    Raises SourceError for a line that no image build can install, with the reason.
    """
    where = f"the requirement {Redactor().text(line)!r} in {source.place(line)}"
    variable = _VARIABLE.search(line)
    if variable is not None:
        raise SourceError(
            instance,
            f"{where} needs the variable {variable['name']}, and image builds have none of this host's",
            "Write what it stands for; a password belongs into this host's pip settings.",
        )
    line = _HASH.sub("", line)
    if _GIT.fullmatch(line) or _ARCHIVE.fullmatch(line):
        return None
    if _REPOSITORY.search(line):
        raise SourceError(
            instance,
            f"{where} is a repository, and of those image builds have git only",
            "Build a wheel of it for your index and name name==version, or build an image of your own and name it with compose: servers.",
        )
    if _UP.match(line):
        raise SourceError(instance, f"{where} is a path outside of the server's directory", "Name a package of an index (name==version).")
    if _ITSELF.fullmatch(line):
        raise SourceError(instance, f"{where} is the server's own directory, which Python searches first without it", "Take the line out.")
    if _PATH.match(line):
        raise SourceError(
            instance, f"{where} is a path, which no build context holds", "Name a package of an index, or a directory here: ./name."
        )
    if _CONSTRAINTS.match(line):
        raise SourceError(
            instance,
            f"{where} names constraints, which image builds do not take",
            "Write them as requirement lines (name==version), or into overrides.txt.",
        )
    if line.startswith("-"):
        raise SourceError(
            instance,
            f"{where} is an option: package indexes are taken from this host's own settings",
            "Set it with pip config or PIP_EXTRA_INDEX_URL, and take the line out.",
        )
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        raise SourceError(instance, f"{where} is none: {str(error).splitlines()[0]}", "Write name==version.") from None
    if requirement.url is not None and not requirement.url.startswith(("https://", "http://", "git+")):
        raise SourceError(
            instance, f"{where} names a file, which no build context holds", "Name a package of an index, or an https URL of a wheel."
        )
    return requirement


def _environment(python: str) -> dict[str, str]:
    short = ".".join(python.split(".")[:2])
    return {
        "python_version": short,
        "python_full_version": python,
        "implementation_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
