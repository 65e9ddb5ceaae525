"""The server trees behind a config: which directory each server comes from, and a snapshot of it.

Search order: the user's trees (extra roots, then the working directory), then our native servers, then an installed NeMo Gym. The first
root that holds ``<server type>/<implementation>`` with a requirement file or a Dockerfile wins (contract-config 4.3). So a user may
replace any server, and a server that both we and the wheel have runs native, unless ``compose: {runtime: nemo-gym}`` turns the last two.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from gym_compose.config.dockerfile import DOCKERFILE, declared_arguments
from gym_compose.config.entrypoint import Entrypoint, EntrypointError
from gym_compose.config.model import ClassFlags, GymConfig, Origin, Runtime, ServerManifest, ServerSource, SourceFile
from gym_compose.config.nemo_gym import is_wheel_root
from gym_compose.config.requirements import (
    RequirementsError,
    computes_dependencies,
    is_project_file,
    override_lines,
    requirement_file,
    requirement_lines,
    requirement_places,
    runtime_extras,
    split_runtime,
    unindexed_dependencies,
)
from gym_compose.config.roots import search_roots as plain_roots
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.suggestions import close_matches

MANIFEST_NAME = "gym_compose.yaml"
_RANK: Mapping[Origin, int] = {"user": 0, "native": 1, "wheel": 2}
_PEER_RANK: Mapping[Origin, int] = {"user": 0, "wheel": 1, "native": 2}
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "tests", "node_modules", "outputs"})
_SKIPPED_SUFFIXES = (".pyc", ".pyo")


class ServerDirectoryError(InvalidInputError):
    """A server directory that is missing, empty of what makes it one, or outside its tree."""


@dataclass(frozen=True)
class SearchRoot:
    """A directory that holds ``<server type>/<implementation>`` trees."""

    path: Path
    origin: Origin = "user"


def search_roots(
    cwd: Path,
    environ: Mapping[str, str],
    *,
    extra: Sequence[str | os.PathLike[str]] = (),
    install_root: Path | None = None,
    native_root: Path | None = None,
) -> tuple[SearchRoot, ...]:
    """The roots of ``config.roots.search_roots`` with where each comes from, for ``find_sources``.

    ``extra`` are ``--search-dir`` values; ``install_root`` is the directory that holds an installed ``nemo_gym``; ``native_root`` our
    own ``servers`` tree. One of these two that is also named as a root keeps its origin: it is never the user's. Neither is a root that
    holds an unpacked NeMo Gym wheel.
    """
    known: dict[Path, Origin] = {}
    if native_root is not None:
        known[native_root.resolve()] = "native"
    if install_root is not None:
        known.setdefault(install_root.resolve(), "wheel")
    found: dict[Path, SearchRoot] = {}
    for path in (*(root.resolve() for root in plain_roots(cwd, environ, extra=extra)), *known):
        found.setdefault(path, SearchRoot(path, known.get(path) or ("wheel" if is_wheel_root(path) else "user")))
    return tuple(found.values())


def find_sources(config: GymConfig, roots: Sequence[SearchRoot]) -> dict[tuple[str, str], ServerSource]:
    """The snapshot of each server directory that ``config`` uses, by (server type, implementation).

    ``compose: {runtime: nemo-gym}`` of the config prefers an installed NeMo Gym's servers to ours. A server whose instances all name an
    image (``compose: servers: NAME: {image: …}``) needs no directory and then has no source.
    Raises ServerDirectoryError naming the instance, close matches and the places searched; RequirementsError, EntrypointError.
    Only directories that are used are read.
    """
    rank = _PEER_RANK if config.extension.get("runtime") == "nemo-gym" else _RANK
    ordered = sorted(roots, key=lambda root: rank[root.origin])
    entrypoints: dict[tuple[str, str], dict[str, str]] = {}
    pictured = _instances_with_image(config)
    needed: set[tuple[str, str]] = set()
    for instance in config.instances:
        key = (instance.server_type, instance.implementation)
        entrypoints.setdefault(key, {}).setdefault(instance.entrypoint, instance.name)
        if instance.name not in pictured:
            needed.add(key)
    trees = ((key, _Tree(*key, ordered, named)) for key, named in entrypoints.items())
    return {key: tree.source() for key, tree in trees if key in needed or tree.is_there}


def _instances_with_image(config: GymConfig) -> frozenset[str]:
    """Instances that run on an image which the user names. The key is validated later, by the compiler."""
    servers = config.extension.get("servers")
    named = servers.items() if isinstance(servers, Mapping) else ()
    return frozenset(str(name) for name, options in named if isinstance(options, Mapping) and options.get("image"))


@dataclass(frozen=True)
class _Tree:
    """One (server type, implementation) and the roots it may come from; ``entrypoints`` maps each to an instance that uses it."""

    server_type: str
    implementation: str
    roots: Sequence[SearchRoot]
    entrypoints: Mapping[str, str] = field(default_factory=dict)

    def source(self) -> ServerSource:
        hits = self._hits()
        root, directory = hits[0]
        runtime, lines, extras, flags = self._runtime(directory)
        file = requirement_file(directory) if runtime != "dockerfile" else None
        project = file if file is not None and file.name == "pyproject.toml" else None
        files = tuple(source_files(directory))
        computes = project is not None and computes_dependencies(project)
        return ServerSource(
            server_type=self.server_type,  # type: ignore[arg-type]  # the config's recogniser lets the four types through only
            implementation=self.implementation,
            directory=str(directory),
            origin=root.origin,
            runtime=runtime,
            requirement_lines=lines,
            files=files,
            flags=next(iter(flags.values()), ClassFlags()),
            manifest=read_manifest(directory),
            shadowed=tuple(str(other) for _, other in hits[1:]),
            entrypoint_flags=tuple(flags.items()),
            extras=extras,
            overrides=override_lines(directory) if runtime != "dockerfile" else (),
            unindexed=unindexed_dependencies(project) if project is not None else (),
            computed=tuple(item.path for item in files if computes and is_project_file(item.path)),
            places=_places(directory) if runtime != "dockerfile" else (),
            build_arguments=declared_arguments(directory / DOCKERFILE) if runtime == "dockerfile" else (),
        )

    @property
    def is_there(self) -> bool:
        """Some root has a directory of it that says how it runs."""
        parts = PurePosixPath(self.implementation).parts
        return any(_is_server(root.path.joinpath(self.server_type, *parts)) for root in self.roots)

    @property
    def _user(self) -> str:
        return next(iter(self.entrypoints.values()))

    def _hits(self) -> list[tuple[SearchRoot, Path]]:
        parts = PurePosixPath(self.implementation).parts
        if not parts or ".." in parts or PurePosixPath(self.implementation).is_absolute():
            raise ServerDirectoryError(
                f"implementation {self.implementation!r} is not a path below {self.server_type}/.", where=f"server instance {self._user}"
            )
        candidates = [(root, root.path.joinpath(self.server_type, *parts)) for root in self.roots]
        hits = [(root, path) for root, path in candidates if path.is_dir() and _is_server(path)]
        if hits:
            return hits
        bare = next((path for _, path in candidates if path.is_dir()), None)
        if bare is not None:
            raise ServerDirectoryError(
                "has no requirements.txt, pyproject.toml or Dockerfile, so nothing says how it runs.",
                where=f"server instance {self._user}: {bare}",
                hint="Add a requirements.txt that names gym-compose (native) or nemo-gym.",
            )
        known = sorted({name for root in self.roots for name in _implementations(root.path / self.server_type)})
        close = close_matches(self.implementation, known)
        raise ServerDirectoryError(
            f"there is no directory {self.server_type}/{self.implementation}.",
            where=f"server instance {self._user}",
            hint=f"Did you mean {' or '.join(close)}?" if close else "Give the tree that holds it with --search-dir DIR.",
            details=("searched:", *(f"  {path}" for _, path in candidates)),
        )

    def _runtime(self, directory: Path) -> tuple[Runtime, tuple[str, ...], tuple[str, ...], dict[str, ClassFlags]]:
        """The runtime, the requirement lines, the extras of the runtime, and the class flags of each entry point."""
        if (directory / DOCKERFILE).is_file():
            return "dockerfile", (), (), {}  # what it installs is its own matter
        file = requirement_file(directory)
        written = requirement_lines(file) if file else ()
        named, lines = split_runtime(written, file) if file else (None, ())
        parsed = {name: self._entrypoint(directory, name) for name in self.entrypoints}
        if named is None:  # the requirements leave it open: the code that runs tells
            native = any(entrypoint.imports("gym_compose") for entrypoint in parsed.values())
            named = "gym-compose" if native else "nemo-gym"
        runtime: Runtime = "native" if named == "gym-compose" else "nemo-gym"
        if runtime == "native" and file is not None and file.name == "pyproject.toml" and computes_dependencies(file):
            raise RequirementsError(
                "its dependencies are computed by its build backend.", where=str(file), hint="List them under project.dependencies."
            )
        return runtime, lines, runtime_extras(written), {name: entrypoint.flags for name, entrypoint in parsed.items()}

    def _entrypoint(self, directory: Path, name: str) -> Entrypoint:
        file = directory / name
        if not file.is_file():
            raise EntrypointError(f"entrypoint {name!r} is not a file in {directory}.", where=f"server instance {self.entrypoints[name]}")
        return Entrypoint(file, (directory, *(root.path for root in self.roots)))


def _places(directory: Path) -> tuple[tuple[str, str], ...]:
    """Where each line of the requirement files stands."""
    files = (requirement_file(directory), directory / "overrides.txt")
    return tuple(place for file in files if file is not None and file.is_file() for place in requirement_places(file))


def source_files(directory: Path) -> Iterator[SourceFile]:
    """The files of a server directory that belong into its image, in path order, each with its digest.

    Left out: hidden files, caches, virtual environments, ``tests``, and the datasets ``data/**/*.jsonl`` except ``example.jsonl``.
    """
    try:
        paths = sorted(_walk(directory, "", frozenset()))
    except OSError as error:
        raise ServerDirectoryError(f"cannot be read: {error.strerror}.", where=str(error.filename or directory)) from error
    for path in paths:
        file = directory / path
        if any(0xDC80 <= ord(character) <= 0xDCFF for character in path):
            raise ServerDirectoryError(
                "the name of a file is not UTF-8, so no image can hold it.", where=ascii(str(file)), hint="Rename or remove it."
            )
        try:
            status = file.stat()
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ServerDirectoryError(f"cannot be read: {error.strerror}.", where=str(file)) from error
        yield SourceFile(path=path, sha256=digest, size=status.st_size, executable=bool(status.st_mode & 0o111))


def read_manifest(directory: Path) -> ServerManifest:
    """``gym_compose.yaml`` of a server directory, or the defaults. Raises InvalidInputError naming the file and the field."""
    file = directory / MANIFEST_NAME
    if not file.is_file():
        return ServerManifest()
    try:
        document: Any = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInputError(f"cannot be read: {' '.join(str(error).split())}.", where=str(file)) from error
    try:
        parsed = _Manifest.model_validate(document if document is not None else {})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"]) or "the file"
        what = first["msg"].lower() if first["loc"] else "it has to be a mapping"
        raise InvalidInputError(
            f"{place}: {what}.", where=str(file), hint="Fields: files (list of dotted fields), egress, stateful."
        ) from error
    return ServerManifest(files=parsed.files, egress=parsed.egress, stateful=parsed.stateful)


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)

    files: tuple[str, ...] = ()
    egress: bool | None = None
    stateful: bool = True


def _is_server(directory: Path) -> bool:
    return any((directory / name).is_file() for name in ("requirements.txt", "pyproject.toml", DOCKERFILE))


def _implementations(tree: Path) -> Iterator[str]:
    """Names of the server directories of one type, one level of nesting included."""
    for path in _directories(tree):
        if _is_server(path):
            yield path.name
        else:
            yield from (f"{path.name}/{inner.name}" for inner in _directories(path) if _is_server(inner))


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__")))
    except OSError:  # not there, or not ours to read: nothing to suggest from it
        return []


def _walk(root: Path, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Relative paths of the files below; symbolic links are followed, loops are not."""
    here = root / prefix if prefix else root
    status = here.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    with os.scandir(here) as found:
        entries = list(found)
    for entry in entries:
        name = entry.name
        if name.startswith("."):
            continue
        path = f"{prefix}/{name}" if prefix else name
        if entry.is_dir():
            if name not in _SKIPPED_DIRECTORIES and not Path(entry.path, "pyvenv.cfg").is_file():
                yield from _walk(root, path, above | {identity})
        elif entry.is_file() and not name.endswith(_SKIPPED_SUFFIXES) and not _is_dataset(path):
            yield path


def _is_dataset(path: str) -> bool:
    return path.startswith("data/") and path.endswith(".jsonl") and PurePosixPath(path).name != "example.jsonl"
