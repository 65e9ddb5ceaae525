"""Which engine: the one that was asked for, or Docker where it answers and processes where it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from gym_compose.engine.interface import Engine
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import PrerequisiteError, UsageError
from gym_compose.wire.settings import Settings

EngineChoice = Literal["auto", "docker", "process"]
CHOICES: tuple[EngineChoice, ...] = ("auto", "docker", "process")
GYM_DIRECTORY = ".gym"


def select_engine(
    kind: str,
    environ: Mapping[str, str],
    settings: Settings,
    deadline: Deadline,
    *,
    home: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Engine:
    """An engine that was checked and works.

    ``kind``: ``auto`` takes Docker when it answers and else processes, telling ``say`` in one line why; ``docker`` and ``process`` take
    that one or raise PrerequisiteError with the reason and its fix. ``home`` is the directory of all projects (``./.gym``).
    Raises UsageError for another kind.
    """
    if kind not in CHOICES:
        raise UsageError(f"{kind!r} is no engine", where="--engine", hint=f"One of {', '.join(CHOICES)}.")
    if kind == "docker":
        return _docker(environ, settings, deadline)
    if kind == "auto":
        try:
            return _docker(environ, settings, deadline)
        except PrerequisiteError as error:
            engine = _process(environ, settings, home, deadline)
            if say is not None:
                say(f"Without Docker: {error.message}{f' ({error.where})' if error.where else ''}. Servers run as processes of this host.")
            return engine
    return _process(environ, settings, home, deadline)


def _docker(environ: Mapping[str, str], settings: Settings, deadline: Deadline) -> Engine:
    from gym_compose.engine.docker.engine import DockerEngine

    engine = DockerEngine(environ, settings)
    engine.check(deadline)
    return engine


def _process(environ: Mapping[str, str], settings: Settings, home: Path | None, deadline: Deadline) -> Engine:
    from gym_compose.engine.process.engine import ProcessEngine

    engine = ProcessEngine(environ, settings, home if home is not None else Path.cwd() / GYM_DIRECTORY)
    engine.check(deadline)
    return engine
