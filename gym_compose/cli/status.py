"""``gym env status``: who answers, as the running head server tells (contract-config 3.4)."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gym_compose.cli.console import Console

if TYPE_CHECKING:
    from gym_compose.wire.head import HealthReport, InstanceRecord

_KEYS = (
    "config_path", "dir_path", "entrypoint", "host", "name", "pid", "port", "process_name", "server_type", "start_time", "status",
    "uptime_seconds", "url",
)  # fmt: skip


def probe(url: str | None, seconds: float) -> str:
    """``success`` for any HTTP answer of ``url``, else ``connection_error``, ``timeout`` or ``unknown_error``. No proxy is used."""
    if not url:
        return "unknown_error"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=seconds):
            return "success"
    except urllib.error.HTTPError:
        return "success"
    except TimeoutError:
        return "timeout"
    except urllib.error.URLError as error:
        return "timeout" if isinstance(error.reason, TimeoutError | socket.timeout) else "connection_error"
    except (OSError, ValueError):
        return "unknown_error"


def rows(instances: Sequence[InstanceRecord], health: HealthReport | None, *, seconds: float, now: float) -> list[dict[str, Any]]:
    """One element of the JSON list for each instance. A server that is not published cannot be probed from here: then the head's own
    probe (``health``, of a head of ours) counts."""
    missing = None if health is None else {item.name for item in (*health.waiting, *health.unreachable)}
    found = []
    for record in instances:
        if record.url is None and missing is not None:
            status = "connection_error" if record.process_name in missing else "success"
        else:
            status = probe(record.url, seconds)
        values = {
            **record.model_dump(),
            "config_path": None,
            "dir_path": None,
            "start_time": None,
            "status": status,
            "uptime_seconds": None if record.start_time is None else now - record.start_time,
        }
        found.append({key: values[key] for key in _KEYS})
    return found


def show(servers: Sequence[dict[str, Any]], console: Console) -> None:
    """The text form: numbered lines and totals."""
    if not servers:
        console.out("No servers found.")
        return
    for number, server in enumerate(servers, 1):
        healthy = server["status"] == "success"
        mark = "✓" if healthy else "✗"
        console.out(f"[{number}] {mark} {server['process_name']} ({server['server_type']}/{server['name']})")
        details = {
            "server_type": server["server_type"],
            "name": server["name"],
            "port": server["port"],
            "pid": server["pid"],
            "uptime": uptime(server["uptime_seconds"]),
        }
        if not healthy:
            details["status"] = server["status"]
        console.out(f"    {details}")
    healthy_count = sum(server["status"] == "success" for server in servers)
    console.out(f"{healthy_count} healthy, {len(servers) - healthy_count} unhealthy")


def uptime(seconds: float | None) -> str:
    """``1d 2h 3m 4.5s``."""
    if seconds is None:
        return "unknown"
    minutes, rest = divmod(max(0.0, seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h {minutes}m {rest:.1f}s"


def clock() -> float:
    """Epoch seconds."""
    return time.time()
