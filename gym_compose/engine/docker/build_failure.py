"""Why a build failed, out of its output: the installer's reason, and what it means.

uv and apt tell failures apart by prose only. Patterns were seen on uv 0.13.9, BuildKit of Engine 20.10 and apt of Debian 13; what none of
them matches stays an ``ImageBuildError`` with the last lines, which is honest where a guess would not be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from gym_compose.compiler.deployment import Image, Requested
from gym_compose.engine.errors import DiskFullError, ImageBuildError, RequirementsError
from gym_compose.wire.errors import GymComposeError

_PREFIX = re.compile(r"^#\d+ (?:[\d.]+ )?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REASON_LINES = 12


@dataclass(frozen=True)
class Cause:
    """What an expression in the installer's reason means. ``hint`` may use the groups of ``expression``."""

    expression: re.Pattern[str]
    message: str
    hint: str


_DISK = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_PYTHON = re.compile(r"gym-compose-python: (NeMo Gym asks for Python (\d+\.\d+)\S* and the base image has \d+\.\d+)")
_APT = re.compile(r"E: (?:Unable to locate package|Package '?)\s*(?P<package>[^\s']+)")
_CAUSES = (
    Cause(
        re.compile(
            r"dns error|failed to lookup address|Could not resolve host|Temporary failure (?:in name resolution|resolving)"
            r"|tcp connect error|Connection refused|Network is unreachable|Couldn't connect to server|operation timed out",
            re.IGNORECASE,
        ),
        "the build does not reach where they come from",
        "Builds use this host's own pip settings (PIP_INDEX_URL, `pip config`) and proxy variables: does the host reach that address?",
    ),
    Cause(
        re.compile(
            r"no wheels with a matching platform tag|dependency is incompatible with the current platform"
            r"|not a supported wheel on this platform"
        ),
        "there is no wheel of it for this platform",
        "Name a version that has a wheel for Linux on this processor, or one with sources.",
    ),
    Cause(
        re.compile(r"no wheels with a matching Python|does not satisfy Python|requires Python\s*[<>=!~]"),
        "it is not made for the image's Python",
        "Name a version that is, or a base with another Python: GYM_COMPOSE_BASE_IMAGE=<image>.",
    ),
    Cause(
        re.compile(r"The build backend returned an error|Failed to build|process didn't exit successfully: .*(?:gcc|cc1|make)\b"),
        "it has no wheel, and its sources cannot be built",
        "Name a version that has a wheel, or write a Dockerfile of the server's own, which may install what the build needs.",
    ),
    Cause(re.compile(r"No solution found|was not found in the package registry|no version of"), "they cannot be met", "Change the line."),
)


def output_lines(lines: Iterable[str]) -> list[str]:
    """A build's output without BuildKit's step numbers and times."""
    return [_PREFIX.sub("", line).rstrip() for line in lines]


def explain(image: Image, lines: Sequence[str], servers: Sequence[str]) -> GymComposeError | None:
    """The error that the output of a failed build means; None where it is not known. ``servers`` are the instances that need the image."""
    plain = output_lines(lines)
    text = "\n".join(plain)
    who = f"; it is for {', '.join(servers)}" if servers else ""
    if _DISK.search(text):
        return DiskFullError(
            f"no space is left on the disk to build {image.name}{who}",
            where=image.name,
            hint="`docker system df` shows what Docker holds; `docker builder prune` frees the builder's cache.",
            details=tuple(line for line in plain if _DISK.search(line))[-3:],
        )
    python = _PYTHON.search(text)
    if python:
        return ImageBuildError(
            f"{python[1]}{who}",
            where=image.name,
            hint=f"Name a base with {python[2]}, as in GYM_COMPOSE_BASE_IMAGE=python:{python[2]}-slim.",
        )
    apt = _APT.search(text)
    if apt and image.kind == "system":
        return ImageBuildError(
            f"there is no Debian package {apt['package'].rstrip(',')}{who}",
            where="compose.servers.*.apt",
            hint="`apt-cache search` on a Debian 13 shows the names.",
        )
    reason = installer_reason(plain)
    return _requirements(image, reason, servers) if reason and image.requested else None


def installer_reason(lines: Sequence[str]) -> tuple[str, ...]:
    """uv's own words: from its last ``error:`` to the end of what belongs to it."""
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*error: ", line)]
    if not starts:
        return ()
    found = []
    for line in lines[starts[-1] :]:
        if re.match(r"-{6}|ERROR: |executor failed|failed to solve|Dockerfile:\d+", line):
            break
        if line.strip():
            found.append(line.strip())
    return tuple(found[:_REASON_LINES])


def _requirements(image: Image, reason: Sequence[str], servers: Sequence[str]) -> RequirementsError:
    text = " ".join(reason)
    named = blamed(image.requested, text)
    cause = next((cause for cause in _CAUSES if cause.expression.search(text)), None)
    if named:
        what = ", ".join(dict.fromkeys(asked.line for asked in named))
        where = ", ".join(dict.fromkeys(f"{asked.instance}: {asked.place}" for asked in named))
    else:
        what = f"the requirements of {', '.join(servers) or 'the servers'}"
        where = ", ".join(dict.fromkeys(f"{asked.instance}: {asked.place.rpartition(':')[0]}" for asked in image.requested))
    return RequirementsError(
        f"{what} cannot be installed: {cause.message if cause else 'the installer gave up'}",
        where=where,
        hint=(cause.hint if cause else "Change the line.") + " The installer's reason:",
        details=tuple(reason),
    )


def blamed(requested: Iterable[Requested], reason: str) -> tuple[Requested, ...]:
    """The lines whose package, or whole text, the reason names."""
    words = {canonicalize_name(word) for word in _NAME.findall(re.sub(r"[=<>!~]=?[^\s`,]*", " ", reason))}
    found = []
    for asked in requested:
        name = _NAME.match(asked.line)
        if asked.line in reason or (name is not None and canonicalize_name(name[0]) in words):
            found.append(asked)
    return tuple(found)
