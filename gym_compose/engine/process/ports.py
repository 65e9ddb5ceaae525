"""Is a port of this host free? Asked just before a server starts, so that the message names the port and its holder, not a traceback."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from gym_compose.engine.errors import PortTakenError
from gym_compose.engine.process import proc

_TCP_FILES = ("net/tcp", "net/tcp6")
_LISTENING = "0A"


def require_free(service: str, host: str, port: int) -> None:
    """Raise PortTakenError when nobody else may bind ``host:port`` now. Port 0 is always free.

    SO_REUSEADDR is set as servers set it, so that connections of an earlier run in TIME_WAIT do not count.
    """
    if port == 0:
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            reason = "is in use" if error.errno == errno.EADDRINUSE else "is reserved for root"
            raise PortTakenError(
                f"port {port} of {host} {reason}{holder_text(port)}",
                port=port,
                where=f"services/{service}",
                hint="Stop what listens there, or give the server another port.",
            ) from error


def holder_text(port: int) -> str:
    """`` by pid N (name)`` of whoever listens there, as far as this user may see it; else nothing."""
    pid = _holder(port)
    if pid is None:
        return ""
    try:
        name = (proc.PROC / str(pid) / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return f" by pid {pid}"
    return f" by pid {pid} ({name})"


def _holder(port: int) -> int | None:
    inodes = {inode for file in _TCP_FILES for inode in _listeners(proc.PROC / file, port)}
    if not inodes:
        return None
    for found in proc.all_facts():
        try:
            for descriptor in (proc.PROC / str(found.pid) / "fd").iterdir():
                target = descriptor.readlink().name
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    return found.pid
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return None


def _listeners(file: Path, port: int) -> list[str]:
    try:
        lines = file.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    wanted = f":{port:04X}"
    rows = (line.split() for line in lines)
    return [row[9] for row in rows if len(row) > 9 and row[3] == _LISTENING and row[1].endswith(wanted)]
