"""Requirement sets of native servers without containers: what this interpreter has already is used, the rest goes into a cached directory.

A set is keyed by its lines, the Python version and the platform, installed once with ``pip install --target`` and put on PYTHONPATH. What
gym_compose itself depends on is pinned to the versions that run here, so that a server does not get a second, different fastapi.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gym_compose.engine.command import run_command
from gym_compose.engine.errors import RequirementsError
from gym_compose.engine.interface import Report
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

_MARKER = ".gym-compose-complete"

Version = Callable[[str], str | None]
"""Installed version of a distribution, None when it is not installed."""


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def unsatisfied(lines: Sequence[str], version: Version = installed_version) -> list[str]:
    """The lines that the interpreter does not satisfy.

    A line with extras counts when the extras' own requirements are there too. What is no plain requirement (a URL, an option) cannot be
    checked and counts as unsatisfied.
    """
    return [line for line in lines if not _satisfied(line, version)]


def _satisfied(line: str, version: Version, extra: str = "") -> bool:
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return False
    if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
        return True
    if wanted.url is not None:
        return False
    found = version(wanted.name)
    if found is None or not wanted.specifier.contains(found, prereleases=True):
        return False
    return all(_satisfied(line, version, chosen) for chosen in sorted(wanted.extras) for line in _of_extra(wanted.name, chosen))


def _of_extra(name: str, extra: str) -> Iterator[str]:
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        marker = Requirement(line).marker
        if marker is not None and "extra" in str(marker) and marker.evaluate({"extra": extra}):
            yield line


def set_key(lines: Sequence[str]) -> str:
    """Names a set on this interpreter."""
    text = "\n".join([sys.implementation.cache_tag or "", sys.platform, os.uname().machine, *sorted(lines)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RequirementSets:
    """Sets in a cache directory (``$XDG_CACHE_HOME/gym-compose/requirements``)."""

    def __init__(self, environ: Mapping[str, str], settings: Settings, python: str) -> None:
        self._environ = environ
        self._settings = settings
        self._python = python
        cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
        self.root = Path(cache) / "gym-compose" / "requirements"

    def directory(self, lines: Sequence[str]) -> Path | None:
        """Where the set is installed; None when it is not, or not needed."""
        path = self.root / set_key(lines)
        return path if (path / _MARKER).is_file() else None

    def install(self, lines: Sequence[str], name: str, deadline: Deadline, report: Report, cancel: threading.Event | None = None) -> bool:
        """Make the set available; False when it was already (in the interpreter or the cache).

        Raises RequirementsError with the last lines of pip's output.
        """
        if not unsatisfied(lines) or self.directory(lines) is not None:
            return False
        self.root.mkdir(parents=True, exist_ok=True)
        target = self.root / set_key(lines)
        with _locked(self.root / f"{target.name}.lock"):
            if self.directory(lines) is not None:
                return False  # another command made it meanwhile
            shutil.rmtree(target, ignore_errors=True)
            report(f"installing the requirements of {name}: {', '.join(lines)}")
            made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=self.root))
            try:
                self._pip(lines, name, made, deadline, cancel)
                (made / _MARKER).write_text("\n".join(lines) + "\n", encoding="utf-8")
                made.replace(target)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        return True

    def _pip(self, lines: Sequence[str], name: str, target: Path, deadline: Deadline, cancel: threading.Event | None) -> None:
        with tempfile.TemporaryDirectory(prefix="gym-compose-") as work:
            wanted, constraints = Path(work) / "requirements.txt", Path(work) / "constraints.txt"
            wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
            constraints.write_text("".join(f"{line}\n" for line in own_constraints()), encoding="utf-8")
            files = ["--target", str(target), "--requirement", str(wanted), "--constraint", str(constraints)]
            result = run_command(
                [*self._installer(), *files],
                environ=self._environ,
                cwd=Path(work),
                deadline=deadline.within(self._settings.requirements_seconds, f"the requirements of {name}"),
                redactor=Redactor(),
                cancel=cancel,
                kill_grace_seconds=self._settings.kill_grace_seconds,
            )
        if not result.ok:
            raise RequirementsError(
                f"the requirements could not be installed (exit code {result.exit_code}): {', '.join(lines)}",
                where=name,
                hint="The last lines of the installer's output:",
                details=result.tail(self._settings.build_tail_lines),
            )

    def _installer(self) -> list[str]:
        if importlib.util.find_spec("pip") is not None:
            return [self._python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
        uv = shutil.which("uv", path=self._environ.get("PATH"))
        if uv is None:
            raise RequirementsError(
                "neither pip nor uv is there to install a server's requirements",
                where=self._python,
                hint=f"`{self._python} -m ensurepip` brings pip.",
            )
        return [uv, "pip", "install", "--python", self._python, "--quiet"]


def own_constraints() -> list[str]:
    """``name==version`` of what gym_compose depends on and runs with here, sorted."""
    try:
        lines = metadata.requires("gym-compose") or []
    except metadata.PackageNotFoundError:
        return []
    found: dict[str, str] = {}
    for line in lines:
        wanted = Requirement(line)
        version = installed_version(wanted.name)
        if version is not None and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found[canonicalize_name(wanted.name)] = version
    return [f"{name}=={version}" for name, version in sorted(found.items())]


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("a", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
