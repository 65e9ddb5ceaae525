"""Where relative paths of a config are looked for (contract-config 1.6.3)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gym_compose.wire.names import EXTRA_ROOTS_VARIABLE

ENVIRONMENT_FILE = "env.yaml"


def search_roots(
    cwd: Path, environ: Mapping[str, str], *, extra: Sequence[str | os.PathLike[str]] = (), last: Sequence[Path] = ()
) -> tuple[Path, ...]:
    """The roots in order: ``extra`` (``--search-dir``), the entries of NEMO_GYM_EXTRA_ROOTS, ``cwd``, then ``last`` (install roots).

    Relative ones are made absolute against ``cwd``: a server process has another working directory, so the text as given would mean
    something else there (contract-config 1.6.3). Two spellings of one directory count once, the earlier wins.
    """
    listed = [*extra, *(entry for entry in environ.get(EXTRA_ROOTS_VARIABLE, "").split(os.pathsep) if entry), cwd, *last]
    roots: dict[Path, Path] = {}
    for entry in listed:
        root = cwd / Path(entry)
        roots.setdefault(root.resolve(), root)
    return tuple(roots.values())


def relative_roots(environ: Mapping[str, str], extra: Sequence[str | os.PathLike[str]] = ()) -> tuple[str, ...]:
    """The extra roots that were given as relative paths, for a warning."""
    listed = [*extra, *(entry for entry in environ.get(EXTRA_ROOTS_VARIABLE, "").split(os.pathsep) if entry)]
    return tuple(os.fspath(entry) for entry in listed if not Path(entry).is_absolute())


def installed_root() -> Path | None:
    """The directory that holds an installed ``nemo_gym``, found without importing it; None without one."""
    spec = importlib.util.find_spec("nemo_gym")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]).parent if places else None


def native_root() -> Path:
    """The directory that holds our own ``servers`` and ``configs``: package data in a wheel, the repository in a checkout."""
    package = Path(__file__).resolve().parent.parent
    assets = package / "_assets"
    return assets if assets.is_dir() else package.parent


def native_roots() -> tuple[Path, ...]:
    """Roots of our own trees: the server trees first, so that ``resources_servers/…`` is found, then the directory above."""
    root = native_root()
    return (root / "servers", root)


def last_roots(installed: Path | None) -> tuple[Path, ...]:
    """What is searched after all that the user named: an installed NeMo Gym, where there is one, then our own trees."""
    return (*((installed,) if installed is not None else ()), *native_roots())


def find_file(entry: str, roots: Sequence[Path]) -> tuple[Path, tuple[Path, ...]]:
    """(the first existing candidate or the one under the first root, all candidates) of one path."""
    path = Path(entry)
    candidates = (path,) if path.is_absolute() else tuple(root / path for root in roots)
    for candidate in candidates:
        if candidate.exists():
            return candidate, candidates
    return candidates[0], candidates
