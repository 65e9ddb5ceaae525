"""Errors of a project.

GymComposeError
├── PrerequisiteError
│   ├── ProjectBusyError        another command works on the project
│   ├── HeadPortTakenError      the head's port on this host belongs to somebody else
│   └── OtherEngineError        the project runs on the other engine
├── InvalidInputError
│   ├── ProjectNotFoundError    no project of that name, or none, or several, under the current directory
│   ├── NoHeadError             nothing answers where the head server should be
│   └── DriverHookError         rollout_collection_driver names no function
├── NotReadyError
│   ├── ServerDiedError         a server ended while it was waited for
│   └── HeadFailedError         the head server gave its verdict, or none
└── RunFailedError              the driver ended with an error of its own; its exit code is the driver's
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from gym_compose.wire.errors import GymComposeError, InvalidInputError, NotReadyError, PrerequisiteError
from gym_compose.wire.slice import withheld_hint


class ProjectBusyError(PrerequisiteError):
    """Another command holds the project's lock."""

    def __init__(self, project: str) -> None:
        super().__init__(
            "another gym_compose command works on this project",
            where=f"project {project}",
            hint="Wait until it is done, or stop it.",
        )


class DriverHookError(InvalidInputError):
    """``rollout_collection_driver`` is not of its form, or what it names is not there."""


class HeadPortTakenError(PrerequisiteError):
    """Somebody else listens on the port that the config gives the head server."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} on 127.0.0.1 is taken",
            where="head_server.port",
            hint="Stop what listens there, give another port with ++head_server.port=N, or leave the key out: then a free one is chosen.",
        )
        self.port = port


class OtherEngineError(PrerequisiteError):
    """Servers of the project are there on ``engine``, which is not the one to start it on."""

    def __init__(self, project: str, engine: str) -> None:
        super().__init__(
            f"it runs on the {engine} engine already",
            where=f"project {project}",
            hint=f"`gym compose -p {project} down` stops it there; or say --engine {engine}, or give this one another name with -p.",
        )
        self.engine = engine


class ProjectNotFoundError(InvalidInputError):
    """No project to act on; ``names`` are those that are there."""

    def __init__(self, message: str, cwd: Path, names: Sequence[str]) -> None:
        hint = (
            "Name one with -p: " + ", ".join(names) + "."
            if names
            else "Start one with `gym compose up`, or change to the directory it was started in."
        )
        super().__init__(message, where=str(cwd), hint=hint)
        self.names = tuple(names)


class NoHeadError(InvalidInputError):
    """Nothing that speaks the head server's protocol answers at ``url``."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no head server answers: {reason}",
            where=url,
            hint="Start the servers first (`gym env start` or `gym compose up -d`), or say where they are with ++head_server.port=N.",
        )
        self.url = url


def exit_text(code: int | None) -> str:
    """``exit code 3``, with the signal's name where the code stands for one (128 + its number)."""
    if code is None:
        return "an unknown exit code"
    try:
        return f"exit code {code} ({signal.Signals(code - 128).name})" if code > 128 else f"exit code {code}"
    except ValueError:  # no signal has that number
        return f"exit code {code}"


class ServerDiedError(NotReadyError):
    """A server ended before all were ready. ``log`` are its last lines, secrets masked."""

    def __init__(self, service: str, *, exit_code: int | None, oom_killed: bool, log: Sequence[str]) -> None:
        cause = "was killed for lack of memory" if oom_killed else f"ended with {exit_text(exit_code)}"
        hint = f"Its limit is `compose: servers: {service}: {{memory: …}}`." if oom_killed else None
        if exit_code == 0 and not oom_killed:
            hint = "Its entrypoint came to its end without serving: a native one ends in `MyServer.run_webserver()`."
        if not oom_killed:
            hint = withheld_hint(log) or hint
        details = tuple(log) if log else ("(it wrote nothing)",)
        super().__init__(f"the server {cause} before it was ready", where=f"services/{service}", hint=hint, details=details)
        self.service = service
        self.server_exit_code = exit_code
        self.oom_killed = oom_killed


class HeadFailedError(NotReadyError):
    """The head server said that it failed, or never said anything; the message names who is missing."""


class RunFailedError(GymComposeError):
    """The driver could not start its run or had to end it."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1, details: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint, details=tuple(details))
        self.exit_code = exit_code
