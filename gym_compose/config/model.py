"""A merged config and the server trees behind it, as frozen data: what the compiler takes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gym_compose.wire.names import ServerType

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class ServerInstance:
    """One recognised server block (contract-config 1.1). ``block`` is the implementation mapping, interpolations resolved."""

    name: str
    server_type: ServerType
    implementation: str
    entrypoint: str
    host: str
    port: int
    block: Mapping[str, Any]
    port_pinned: bool = False
    """The config itself gave the port; else the allocator did."""


@dataclass(frozen=True)
class ServerReference:
    """A field of ``source`` that names another instance. ``checked``: a direct field of the block, which the parser checks (1.11);
    deeper ones are edges too, but only diagnosed."""

    source: str
    field: str
    server_type: ServerType
    target: str
    checked: bool = True


@dataclass(frozen=True)
class GymConfig:
    """One merged, validated config.

    ``merged`` is exactly what NeMo Gym's parse makes of the same input (key order kept, interpolations unresolved); ``resolved`` is the
    same with every interpolation resolved in the caller's environment. ``secret_paths`` name the leaves of ``resolved`` that are secret
    (by key name, by being interpolated from a secret, or as credentials inside a URL).
    """

    merged: Mapping[str, Any]
    resolved: Mapping[str, Any]
    instances: tuple[ServerInstance, ...]
    references: tuple[ServerReference, ...]
    secret_paths: frozenset[KeyPath]
    config_files: tuple[str, ...] = ()
    """Absolute paths of the files that were merged, in merge order, env.yaml included."""
    warnings: tuple[str, ...] = ()
    extension: Mapping[str, Any] = field(default_factory=dict)
    """The top-level ``compose`` block, resolved."""

    def instance(self, name: str) -> ServerInstance:
        for candidate in self.instances:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


@dataclass(frozen=True)
class SourceFile:
    """A file of a server directory: path relative to it (``/`` separators), content digest, mode bits that matter."""

    path: str
    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True)
class ClassFlags:
    """What is read from the entry point by AST, never by import (contract-config 4.4, 4.5)."""

    class_name: str | None = None
    ray_enabled: bool | None = None
    multi_worker: bool = False
    keeps_sessions: bool = False
    """It holds something of a session between two requests."""
    opens_agent_sessions: bool = False
    """An environment server that speaks ``/v1/agent_sessions`` to its agents (an agent refuses that with several workers)."""


@dataclass(frozen=True)
class ServerManifest:
    """``gym_compose.yaml`` beside a native server's app.py: what a compiler cannot see in its code."""

    files: tuple[str, ...] = ()
    """Dotted fields of the server's block that name files of the host; each is mounted read-only and rewritten to its path there."""
    egress: bool | None = None
    """None: by server type (model servers have it)."""
    stateful: bool = True


Runtime = Literal["native", "nemo-gym", "dockerfile"]
Origin = Literal["user", "native", "wheel"]


@dataclass(frozen=True)
class ServerSource:
    """The snapshot of one server directory that ``compile`` works from."""

    server_type: ServerType
    implementation: str
    directory: str
    """Absolute path on this host."""
    origin: Origin
    runtime: Runtime
    requirement_lines: tuple[str, ...]
    """Effective lines: comments, blanks, ``gym-compose`` and ``nemo-gym`` themselves taken out."""
    files: tuple[SourceFile, ...]
    flags: ClassFlags
    manifest: ServerManifest
    shadowed: tuple[str, ...] = ()
    """Directories of the same server in lower-priority trees."""
    entrypoint_flags: tuple[tuple[str, ClassFlags], ...] = ()
    """Flags by entry point, for the rare server whose instances run different ones; ``flags`` is the first of them."""
    extras: tuple[str, ...] = ()
    """Extras that the requirements ask of ``nemo-gym`` itself (``sandbox``), sorted."""
    overrides: tuple[str, ...] = ()
    """Lines of ``overrides.txt``: what the resolver takes whatever else asks for it."""
    unindexed: tuple[tuple[str, str], ...] = ()
    """(package, why) of a ``pyproject.toml``'s dependencies that come from elsewhere than an index."""
    computed: tuple[str, ...] = ()
    """Files that a build backend computes the dependencies from, where ``pyproject.toml`` leaves them to it; else empty."""
    places: tuple[tuple[str, str], ...] = ()
    """(requirement line, ``file:line``) as the files have them, for messages."""
    build_arguments: tuple[str, ...] = ()
    """Names that the server's own Dockerfile declares with ARG."""

    def place(self, line: str) -> str:
        """Where a requirement line stands, ``/dir/requirements.txt:3``; the directory where that is not known."""
        return dict(self.places).get(line, self.directory)


@dataclass(frozen=True)
class NemoGymTree:
    """The NeMo Gym that a deployment's servers are written for.

    ``wheel``: an installed (or unpacked) wheel in ``directory``; images install the same version from the index. ``checkout``: a source
    tree, of which ``files`` go into the images. ``python`` is the lowest Python version it asks for.
    """

    directory: str
    form: Literal["wheel", "checkout"]
    version: str
    python: str
    files: tuple[SourceFile, ...] = ()
