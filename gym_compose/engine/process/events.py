"""Starts and deaths of a project's processes, whoever started them: the records say who there is, /proc whether they live."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gym_compose.engine.interface import EngineEvent
from gym_compose.engine.process import records
from gym_compose.engine.process.records import ProcessRecord
from gym_compose.engine.process.start import child_code, reap

_Key = tuple[str, int, int]


def project_events(directory: Path, project: str, stop: threading.Event, poll_seconds: float) -> Iterator[EngineEvent]:
    """Events from now on until ``stop`` is set. What runs is taken down when this is called, not when the first event is asked for."""
    present = _listed(directory, project)
    dead = {key for key, record in present.items() if not record.alive()}
    return _watch(directory, project, stop, poll_seconds, present, dead)


def _watch(
    directory: Path, project: str, stop: threading.Event, poll_seconds: float, seen: dict[_Key, ProcessRecord], told: set[_Key]
) -> Iterator[EngineEvent]:
    while not stop.is_set():
        for key, record in _listed(directory, project).items():
            if key not in seen:
                seen[key] = record
                yield EngineEvent(record.service, "start", at=record.started_at)
        # A process that was stopped or replaced is not in the list any more; its death is told all the same, as Docker does.
        for key, record in seen.items():
            if key not in told and not record.alive():
                told.add(key)
                yield EngineEvent(record.service, "die", exit_code=code_of(directory, record), at=time.time())
        reap()
        stop.wait(poll_seconds)


def code_of(directory: Path, record: ProcessRecord) -> int | None:
    """The exit code: as the shell wrote it, else as our own child's, else unknown."""
    code = records.exit_code(directory, record.service)
    return code if code is not None else child_code(record.pid)


def _listed(directory: Path, project: str) -> dict[_Key, ProcessRecord]:
    return {(record.service, record.pid, record.start_ticks): record for record in records.read(directory, project).processes}
