"""Errors of the compiler.

InvalidInputError
└── CompileError              a config that is well-formed and yet no deployment
    ├── NameClashError        two instances that would get one compose service or one alias
    ├── SourceError           a server whose directory, runtime or entry point cannot be used
    ├── ValueNotPortableError a value that no JSON file can carry
    ├── HostFileError         a file of the host that a server needs and that is not there
    └── ExtensionError        the `compose:` key
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import EXTENSION_KEY


class CompileError(InvalidInputError):
    """``where`` names the instance and the key."""


class NameClashError(CompileError):
    """``first`` and ``second`` are instances (or what else holds the name); ``name`` is what both would be called."""

    def __init__(self, first: str, second: str, name: str, kind: str) -> None:
        super().__init__(
            f"{first!r} and {second!r} would both be the {kind} {name!r}",
            where=f"instances {first}, {second}",
            hint="Rename one of them (and the references to it).",
        )


class SourceError(CompileError):
    """A server that cannot be made into an image or process."""

    def __init__(self, instance: str, message: str, hint: str) -> None:
        super().__init__(message, where=f"instance {instance}", hint=hint)


class ValueNotPortableError(CompileError):
    """Slices are JSON: no infinite numbers, bytes or objects."""

    def __init__(self, path: Sequence[str | int], value: object) -> None:
        super().__init__(
            f"a value of type {type(value).__name__} cannot be handed to a server",
            where=dotted(path),
            hint="Use text, a finite number, true, false, null, a list or a mapping.",
        )


class HostFileError(CompileError):
    """A manifest's ``files`` field, or a mount, names a file that is not found."""

    def __init__(self, instance: str, field: str, path: str, message: str = "there is no such file in any search root") -> None:
        super().__init__(
            f"{path!r}: {message}", where=f"{instance}.{field}", hint="Give a path under the current directory, or an absolute one."
        )
        self.path = path


class ExtensionError(CompileError):
    """Something under the ``compose`` key is unknown or has the wrong form."""

    def __init__(self, path: Sequence[str | int], message: str, *, hint: str | None = None) -> None:
        super().__init__(message, where=dotted((EXTENSION_KEY, *path)), hint=hint)


def dotted(path: Iterable[str | int]) -> str:
    """A key path as people write it: ``policy_model.headers.0``."""
    return ".".join(str(step) for step in path)
