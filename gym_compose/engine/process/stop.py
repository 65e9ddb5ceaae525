"""Stopping processes: SIGINT to each group, in order and with grace, SIGKILL for who stays, and a search for what left its group.

The peer gives one second and kills most of an idle fleet (contract-config 4.7); servers here get their own grace, told at once and together
within a tier, and a process that made itself independent is found by the mark in its environment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gym_compose.engine.command import signal_group
from gym_compose.engine.errors import LeftoverError
from gym_compose.engine.interface import Report, ServiceState, StopReport
from gym_compose.engine.order import server_types, stop_tiers
from gym_compose.engine.process import proc, records
from gym_compose.engine.process.environment import MARK_VARIABLE
from gym_compose.engine.process.records import ProcessRecord
from gym_compose.engine.process.start import reap
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.settings import Settings


def stop_all(
    directory: Path,
    project: str,
    listed: Sequence[ProcessRecord],
    states: Iterable[ServiceState],
    settings: Settings,
    deadline: Deadline,
    report: Report,
) -> StopReport:
    """End every process of ``listed`` and what they left. Raises LeftoverError naming pids that stay."""
    by_service = {record.service: record for record in listed}
    stopped: list[str] = []
    killed: list[str] = []
    removed = 0
    running = [state for state in states if state.status == "running"]
    for tier in stop_tiers(running, server_types(directory)):
        chosen = [by_service[state.service] for state in tier]
        ended = stop_group(chosen, settings, deadline)
        for record in chosen:
            name = record.instance or record.service
            stopped.append(name)
            removed += 1
            if ended[record.service]:
                killed.append(name)
                report(f"{name} did not stop in time and was killed")
            else:
                report(f"{name} stopped")
    left = sweep(listed, settings, deadline)
    if left:
        raise LeftoverError(
            f"processes of the project could not be ended: {', '.join(map(str, left))}",
            where=f"project {project}",
            hint="They wait for the kernel (state D in `ps`), or belong to another user.",
        )
    return StopReport(stopped=tuple(stopped), killed=tuple(killed), removed=removed)


def stop_group(chosen: Sequence[ProcessRecord], settings: Settings, deadline: Deadline) -> Mapping[str, bool]:
    """Stop some services together: service to whether it had to be killed.

    Each has its own grace from the same moment on, at most half of what is left of the deadline: the kill must still fit.
    """
    left = deadline.remaining()
    asked = time.monotonic()
    until = {
        record.service: asked + (record.stop_grace_seconds if left is None else min(record.stop_grace_seconds, left / 2))
        for record in chosen
    }
    for record in chosen:
        if record.alive():
            signal_group(record.pid, signal.SIGINT)
    killed = dict.fromkeys(until, False)
    waiting = list(chosen)
    while waiting:
        reap()
        for record in list(waiting):
            if not record.members():
                waiting.remove(record)
            elif not killed[record.service] and time.monotonic() >= until[record.service]:
                # The whole session: the shell, the server, its workers.
                killed[record.service] = True
                kill(record.members())
                until[record.service] = time.monotonic() + settings.kill_grace_seconds
            elif killed[record.service] and time.monotonic() >= until[record.service]:
                waiting.remove(record)  # sweep names it
        if waiting:
            time.sleep(settings.process_poll_seconds / 2)
    return killed


def sweep(listed: Iterable[ProcessRecord], settings: Settings, deadline: Deadline) -> list[int]:
    """Kill what bears a service's mark and still lives (it left its session); the pids that stay."""
    until = deadline.within(settings.kill_grace_seconds)
    marks = {record.mark for record in listed}
    while True:
        reap()
        found = [process for mark in marks for process in proc.marked(MARK_VARIABLE, mark) if process.pid != os.getpid()]
        if not found:
            return []
        kill(found)
        if until.expired:
            return sorted(process.pid for process in found)
        time.sleep(until.pause(settings.process_poll_seconds / 2))


def kill(processes: Iterable[proc.ProcessFacts]) -> None:
    for process in processes:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # gone meanwhile; one that is another user's is named by the sweep


def forget(directory: Path, project: str, services: Iterable[str]) -> None:
    """Take services out of the records and remove their exit codes."""
    gone = set(services)
    with records.locked(directory):
        listed = records.read(directory, project)
        kept = tuple(record for record in listed.processes if record.service not in gone)
        records.write(directory, listed.model_copy(update={"processes": kept}))
    for service in gone:
        records.exit_file(directory, service).unlink(missing_ok=True)
