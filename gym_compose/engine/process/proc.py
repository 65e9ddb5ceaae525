"""Facts about processes from Linux's /proc: is it still the one that was started, who belongs to it, how much memory they take.

A pid alone says nothing, since the kernel gives it out again; pid, start time (in clock ticks since boot) and boot id together name one
process for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessFacts:
    """One process as /proc/<pid>/stat shows it. ``ended``: a zombie, or about to be one."""

    pid: int
    group: int
    session: int
    start_ticks: int
    resident_bytes: int
    ended: bool


def boot_id() -> str:
    """Names this boot of the machine; start times of another one mean nothing."""
    return (PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()


def facts(pid: int) -> ProcessFacts | None:
    """None when there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return parse_stat(text)


def parse_stat(text: str) -> ProcessFacts:
    """The fields of proc(5). The second one, the name in parentheses, may itself hold blanks and parentheses: it ends at the last ')'."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return ProcessFacts(
        pid=int(head.split(" ", 1)[0]),
        ended=fields[0] in {"Z", "X", "x"},
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        resident_bytes=int(fields[21]) * _PAGE,
    )


def all_facts() -> Iterator[ProcessFacts]:
    """Every process of this machine that can be seen."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            found = facts(int(entry.name))
            if found is not None:
                yield found


def variable(pid: int, name: str) -> str | None:
    """An environment variable that a process was started with; None when it has none, is gone, or belongs to somebody else."""
    try:
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    prefix = name.encode() + b"="
    for entry in data.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("utf-8", errors="replace")
    return None


def marked(name: str, value: str) -> list[ProcessFacts]:
    """Living processes that were started with ``name=value``, those that left their group and session too."""
    return [found for found in all_facts() if not found.ended and variable(found.pid, name) == value]
