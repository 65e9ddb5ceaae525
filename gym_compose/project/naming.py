"""Names that are made once and kept: the project's, a run's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from gym_compose.wire.errors import UsageError

PROJECT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Compose's own grammar for a project name, with a length that leaves room for ``_<service>_1`` in a host name."""
_STEM_LENGTH = 40


def project_name(config_paths: Sequence[str], cwd: Path) -> str:
    """The name of a project that was given none: ``<slug of the first config's stem>-<6 hex of cwd and paths>``.

    The same configs in the same directory give the same name whatever the other overrides say, so that ``up`` after an edit
    finds what runs; another checkout gives another one.
    """
    stem = PurePosixPath(config_paths[0]).stem if config_paths else ""
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:_STEM_LENGTH].strip("-") or "gym"
    digest = hashlib.sha256("\0".join((str(cwd), *config_paths)).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{slug}-{digest[:6]}"


def check_project_name(name: str) -> str:
    """``name`` as the user gave it with ``-p``; raises UsageError when compose would refuse it."""
    if not PROJECT_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no project name",
            where="-p/--project-name",
            hint="Use lower-case letters, digits, '-' and '_', starting with a letter or digit, at most 63 characters.",
        )
    return name


def run_id(now: float, token: str) -> str:
    """A run's name: UTC time to the second and a few random characters, so that a list of runs sorts by time.

    ``now`` is in epoch seconds; ``token`` is random and of ``[a-z0-9]``.
    """
    import time

    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{token}"
