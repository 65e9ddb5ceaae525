"""Starting one service as a process on this host.

The process that is started is a shell which runs the server and keeps its exit code in a file: another command, of which the server is no
child, can then tell it. The shell leads a session of its own; signals go to that whole group. It traps SIGINT, SIGTERM and SIGHUP without
ignoring them (a trap is reset in the child, an ignored signal is not), so it lives until its server has ended.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gym_compose.compiler.deployment import Service
from gym_compose.engine.command import start_process
from gym_compose.engine.errors import EngineError
from gym_compose.engine.process import proc
from gym_compose.engine.process.environment import server_environment
from gym_compose.engine.process.ports import require_free
from gym_compose.engine.process.records import ProcessRecord, exit_file, log_file

_SHELL = 'trap : INT TERM HUP; "$@"; code=$?; echo "$code" > "$0"; exit "$code"'

_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process, kept so that they are waited for: one that nobody waits for stays a zombie."""


def start_service(service: Service, directory: Path, environ: Mapping[str, str], python_path: Sequence[str]) -> ProcessRecord:
    """Start it; returns when it runs, not when it answers. Its output goes to ``logs/<service>.log``; that of the process before it is
    kept beside it, so that the last lines of a server that died are its own.

    Raises PortTakenError, CommandNotFoundError, EngineError.
    """
    require_free(service.name, service.host, service.port)
    log, code = log_file(directory, service.name), exit_file(directory, service.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    code.parent.mkdir(parents=True, exist_ok=True)
    code.unlink(missing_ok=True)
    _put_by(log)
    mark = f"{directory}/{service.name}"
    process = start_process(
        ["/bin/sh", "-c", _SHELL, str(code), *service.command],
        environ=server_environment(environ, service.environment, python_path=python_path, mark=mark),
        cwd=directory,
        log=log,
    )
    _CHILDREN[process.pid] = process
    found = proc.facts(process.pid)
    if found is None:
        raise EngineError("the process was gone as soon as it started", where=f"services/{service.name}", hint=f"See {log}.")
    return ProcessRecord(
        service=service.name,
        role=service.role,
        instance=service.instance,
        pid=process.pid,
        start_ticks=found.start_ticks,
        boot_id=proc.boot_id(),
        mark=mark,
        image=service.image,
        slice_sha256=service.slice_sha256,
        started_at=time.time(),
        host=service.host,
        port=service.port,
        stop_grace_seconds=service.stop_grace_seconds,
    )


def reap() -> None:
    """Wait for those of our children that have ended."""
    for pid, process in list(_CHILDREN.items()):
        if process.poll() is not None:
            del _CHILDREN[pid]


def child_code(pid: int) -> int | None:
    """The exit code of a child of this process, as a shell would tell it; None when it runs or is not ours."""
    process = _CHILDREN.get(pid)
    code = process.poll() if process is not None else None
    return code if code is None or code >= 0 else 128 - code


def _put_by(log: Path) -> None:
    """Keep one old log. A recreated container begins an empty one too."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(log, log.with_suffix(".log.1"))
