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

IN_RUNTIME = frozenset({"dev"})
"""Extras of nemo-gym that make no layer: of ``dev`` servers import defusedxml only, which the runtime has (contract-servers 7.2)."""
_LOCAL = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?\./(?P<path>[^\[\s;]+?)/?(?P<extras>\[[^\]]*\])?")
_UP = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?\.\./")
_REPOSITORY = re.compile(r"(?:^|@\s*|\s)(?:hg|svn|bzr)\+")
_GIT = re.compile(r"(?:(?:-e|--editable)(?:\s+|=))?git\+\S+")
"""A git URL by itself. The build image has git; nothing that runs has."""
_ARCHIVE = re.compile(r"https?://\S+(?:\.whl|\.tar\.gz|\.zip)(?:#\S+)?")
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
    for package, why in source.unindexed:
        raise SourceError(
            instance,
            f"{source.directory} needs {package}, and {why}; a package of that name from the index may be a stranger's",
            "Build a wheel of it for your index and name name==version, or build an image of your own and name it with compose: servers.",
        )
    lines: set[str] = set()
    local: set[tuple[str, str]] = set()
    notes: list[str] = []
    environment = _environment(python)
    for line in source.requirement_lines:
        found = _LOCAL.fullmatch(line)
        if found:
            local.add((found["path"], found["extras"] or ""))
            continue
        if _GIT.fullmatch(line) or _ARCHIVE.fullmatch(line):
            lines.add(line)
            continue
        requirement = _parse(instance, source, line)
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


def _parse(instance: str, source: ServerSource, line: str) -> Requirement:
    where = f"the requirement {line!r} in {source.place(line)}"
    if _REPOSITORY.search(line):
        raise SourceError(
            instance,
            f"{where} is a repository, and of those image builds have git only",
            "Build a wheel of it for your index and name name==version, or build an image of your own and name it with compose: servers.",
        )
    if _UP.match(line):
        raise SourceError(instance, f"{where} is a path outside of the server's directory", "Name a package of an index (name==version).")
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
