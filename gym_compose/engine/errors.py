"""What can go wrong between a deployment and the machine.

GymComposeError
├── EngineError                 exit 1: a call to Docker or a process failed in a way that nothing below recognises
│   ├── CommandError            a command ended with another code than 0
│   ├── CommandTimeoutError     a command or API call did not end in its time; its process group was killed
│   ├── CommandCancelledError   a command was ended because its caller gave up
│   └── LeftoverError           stop could not remove everything; names what is left
├── PrerequisiteError           exit 4
│   ├── DockerUnavailableError  no Docker, not running, no permission, on another machine, too old
│   ├── ComposeMissingError     the compose plugin is missing or too old
│   ├── CommandNotFoundError    a program is not on PATH
│   ├── PortTakenError          a port on this host is in use (``port``, ``service``)
│   ├── AddressPoolError        Docker has no address range left for another network
│   ├── DiskFullError
│   ├── AccessDeniedError       a file or directory that this user may not read, write or mount
│   └── BindSourceError         a file or directory to be mounted is not there
└── BuildError                  exit 5 (``gym_compose.wire.errors``)
    ├── ImageBuildError         a Dockerfile failed; the last lines of its output are the details
    ├── ImageMissingError       an image is not there and cannot be had
    ├── BaseImageError          the base image can be neither pulled nor made
    └── RequirementsError       a requirement set could not be installed (process engine)
"""

from __future__ import annotations

from gym_compose.wire.errors import BuildError, GymComposeError, PrerequisiteError


class EngineError(GymComposeError):
    """A call to the engine failed."""


class CommandError(EngineError):
    """A command ended with another exit code than 0. ``code`` is that code."""

    def __init__(
        self, message: str, *, code: int, where: str | None = None, hint: str | None = None, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, where=where, hint=hint, details=details)
        self.code = code


class CommandTimeoutError(EngineError):
    """A command or call did not end in its time."""


class CommandCancelledError(EngineError):
    """A command was ended because its caller gave up."""


class LeftoverError(EngineError):
    """Not everything of a project could be removed."""


class DockerUnavailableError(PrerequisiteError):
    """Docker cannot be used here."""


class ComposeMissingError(PrerequisiteError):
    """``docker compose`` is missing or too old."""


class CommandNotFoundError(PrerequisiteError):
    """A program is not on PATH."""


class PortTakenError(PrerequisiteError):
    """A port on this host is in use. ``port`` is 0 when the message of the engine does not say."""

    def __init__(
        self, message: str, *, port: int, where: str | None = None, hint: str | None = None, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, where=where, hint=hint, details=details)
        self.port = port


class AddressPoolError(PrerequisiteError):
    """No address range is left for another network."""


class DiskFullError(PrerequisiteError):
    """No space left."""


class AccessDeniedError(PrerequisiteError):
    """A right that is missing."""


class BindSourceError(PrerequisiteError):
    """What is to be mounted is not there."""


class ImageBuildError(BuildError):
    """A Dockerfile failed."""


class ImageMissingError(BuildError):
    """An image is not there and cannot be had."""


class BaseImageError(BuildError):
    """The base image can be neither pulled nor made."""


class RequirementsError(BuildError):
    """A requirement set could not be installed."""
