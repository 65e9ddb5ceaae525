"""What a message of Docker means for the user.

Docker and compose tell failures apart by prose only, so this is a list of anchored patterns, each with the error that it becomes.

Recognised: no address pool left, host port in use, disk full, image missing, mount source missing, no permission on the socket, engine not
running. Their cost: a message that quotes such words for another reason (a server's log in a build output, say) would be misread; therefore
only the output of the CLI and the engine's own errors are looked at, never a log, and the engine's full text stays in the details.

Not recognised, on purpose: anything about a server that started and failed (its exit code and log say it better), a failing Dockerfile
(``ImageBuildError`` shows its output) and anything about a registry except that an image is not to be had. Those stay an ``EngineError``
with the engine's text, which is honest where a guess would not be.

Patterns were seen on Engine 20.10 and compose 2.40; newer wordings (Engine 28: "failed to bind host port") are from the issues that
field-notes B30 and B32 name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gym_compose.engine.errors import (
    AccessDeniedError,
    AddressPoolError,
    BindSourceError,
    DiskFullError,
    DockerUnavailableError,
    ImageMissingError,
    PortTakenError,
)
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.redaction import Redactor

_Details = tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """A named expression and the error that a match becomes."""

    name: str
    expression: re.Pattern[str]
    error: Callable[[re.Match[str], _Details], GymComposeError]


def _port_taken(match: re.Match[str], details: _Details) -> GymComposeError:
    port = int(next(group for group in match.groups() if group is not None))
    return PortTakenError(
        f"port {port} of this host is in use",
        port=port,
        hint=f"Stop what listens there (`ss -ltnp 'sport = :{port}'` names it), or choose another port.",
        details=details,
    )


def _image_missing(match: re.Match[str], details: _Details) -> GymComposeError:
    name = next(group for group in match.groups() if group is not None)
    return ImageMissingError(f"the image {name} is not there", hint="`gym compose build` makes what is missing.", details=details)


PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "address_pool",
        re.compile(
            r"could not find an available, non-overlapping IPv4 address pool|all predefined address pools have been fully subnetted"
        ),
        lambda _, details: AddressPoolError(
            "Docker has no address range left for another network (about 30 fit on a host)",
            hint="Stop projects that you do not need; `docker network prune` removes networks that nobody uses.",
            details=details,
        ),
    ),
    Pattern(
        "port_taken",
        re.compile(
            r"Bind for \S+?:(\d+) failed: port is already allocated"
            r"|listen (?:tcp|udp)[46]? \S*?:(\d+): bind: address already in use"
            r"|failed to bind host port (?:for )?\S*?:(\d+)\b.*address already in use"
        ),
        _port_taken,
    ),
    Pattern(
        "disk_full",
        re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE),
        lambda _, details: DiskFullError(
            "no space is left on the disk",
            hint="`docker system df` shows what Docker holds, `docker system prune` frees it.",
            details=details,
        ),
    ),
    Pattern(
        "image_missing",
        re.compile(
            r"No such image: (\S+)|pull access denied for (\S+?),|manifest for (\S+) not found|image \"?([^\s\"]+)\"? not found"
            r"|unable to find image '([^']+)' locally",
            re.IGNORECASE,
        ),
        _image_missing,
    ),
    Pattern(
        "bind_source",
        re.compile(r"bind source path does not exist: (.+?)(?:$|\n)", re.MULTILINE),
        lambda match, details: BindSourceError(
            "a file or directory that a service mounts is not there",
            where=match.group(1).strip(),
            hint="Put it back, or start again so that it is written anew.",
            details=details,
        ),
    ),
    Pattern(
        "socket_permission",
        re.compile(
            r"permission denied while trying to connect to the Docker daemon|dial unix \S+: connect: permission denied", re.IGNORECASE
        ),
        lambda _, details: no_permission(None, details),
    ),
    Pattern(
        "not_running",
        re.compile(r"Cannot connect to the Docker daemon|dial unix \S+: connect: (?:no such file or directory|connection refused)"),
        lambda _, details: not_running(None, details),
    ),
    Pattern(
        "permission",
        re.compile(r"(?:open|mkdir|stat|lstat|read|unlink) (\S+): permission denied"),
        lambda match, details: AccessDeniedError(
            "this user may not use it", where=match.group(1), hint="Mend its owner or mode; did root make it?", details=details
        ),
    ),
)

# What an idempotent verb may simply be asked again for: the engine was busy, nothing was wrong with the question.
_TRANSIENT = re.compile(
    r"context deadline exceeded|i/o timeout|unexpected EOF|connection reset by peer|TLS handshake timeout|resource temporarily unavailable"
)


def recognise(text: str, redactor: Redactor, *, details: _Details | None = None) -> GymComposeError | None:
    """The error that ``text`` means, or None. The engine's own lines become the details, masked."""
    shown = tuple(redactor.lines(text.strip().splitlines()[-10:])) if details is None else details
    for pattern in PATTERNS:
        match = pattern.expression.search(text)
        if match is not None:
            return pattern.error(match, shown)
    return None


def is_transient(text: str) -> bool:
    """Whether asking again may help."""
    return _TRANSIENT.search(text) is not None


def no_permission(socket: str | None, details: _Details = ()) -> DockerUnavailableError:
    return DockerUnavailableError(
        "this user may not talk to the Docker engine",
        where=socket,
        hint="`sudo usermod -aG docker $USER`, then log in again; or use --engine process.",
        details=details,
    )


def not_running(socket: str | None, details: _Details = ()) -> DockerUnavailableError:
    return DockerUnavailableError(
        "the Docker engine does not run",
        where=socket,
        hint="Start it (`sudo systemctl start docker`), or use --engine process.",
        details=details,
    )


def not_installed(details: _Details = ()) -> DockerUnavailableError:
    return DockerUnavailableError(
        "Docker is not installed",
        hint="Install Docker Engine 20.10 or newer with its compose plugin, or use --engine process.",
        details=details,
    )
