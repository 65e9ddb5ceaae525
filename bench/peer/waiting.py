"""What a deployment waits for while a rollout does not end: whose requests are open, and what the last of the chain said.

Read from the connections of the servers' network namespaces (``/proc/PID/net/tcp``): one that is still open after the limit is a request
that waits, since idle ones are closed after 15 s by both sides.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gym_compose.testing import GymDeployment
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.names import SERVER_PORT

PROC = Path("/proc")
_OPEN = frozenset({"01", "02"})  # ESTABLISHED, SYN_SENT
_LINE_LENGTH = 160


@dataclass(frozen=True)
class Request:
    """An open connection from a server to ``target``: a service's name, or ``address:port`` of somebody outside."""

    source: str
    target: str


def waiting_for(gym: GymDeployment) -> str:
    """One line: the open requests, and the last line of who is asked and asks nobody. Empty where nothing can be seen (not root)."""
    try:
        requests = tuple(dict.fromkeys(_requests(gym)))
        if not requests:
            return ""
        services = {state.service for state in gym.observe().services}
        last = end_of(requests) & services
        said = [f"{name} last said: {line}" for name in sorted(last) if (line := _last_line(gym, name))]
    except (GymComposeError, OSError):
        return ""
    return "; ".join((chain(requests), *said))


def chain(requests: tuple[Request, ...]) -> str:
    """``a asks b, c; b asks d``."""
    targets: dict[str, list[str]] = {}
    for request in requests:
        targets.setdefault(request.source, []).append(request.target)
    return "; ".join(f"{source} asks {', '.join(found)}" for source, found in targets.items())


def end_of(requests: tuple[Request, ...]) -> set[str]:
    """Those that are asked and ask nobody: what all wait for."""
    return {request.target for request in requests} - {request.source for request in requests}


def open_connections(text: str) -> Iterator[tuple[int, str, int]]:
    """(local port, remote address, remote port) of the open IPv4 connections of a ``/proc/net/tcp``."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 4 or fields[3] not in _OPEN:
            continue
        (_, local), (remote, port) = fields[1].split(":"), fields[2].split(":")
        yield int(local, 16), socket.inet_ntoa(bytes.fromhex(remote)[::-1]), int(port, 16)


def named(address: str, port: int, services: Mapping[str, str]) -> str:
    """``services`` is address to service."""
    return services.get(address, f"{address}:{port}")


def _requests(gym: GymDeployment) -> Iterator[Request]:
    api = gym.docker.api
    deadline = Deadline.after(gym.settings.docker_call_seconds, "what a rollout waits for")
    facts = {
        state.service: api.inspect(state.identity, deadline)
        for state in gym.observe().services
        if state.status == "running" and state.identity is not None
    }
    services = {
        str(network["IPAddress"]): service
        for service, fact in facts.items()
        for network in fact["NetworkSettings"]["Networks"].values()
        if network.get("IPAddress")
    }
    for service, fact in facts.items():
        if service == "head":  # its probes are no requests of the rollout
            continue
        text = (PROC / str(fact["State"]["Pid"]) / "net" / "tcp").read_text(encoding="ascii")
        for local, address, port in open_connections(text):
            if local != SERVER_PORT and not address.startswith("127."):
                yield Request(service, named(address, port, services))


def _last_line(gym: GymDeployment, service: str) -> str:
    lines = [line.strip() for line in gym.logs(service, tail=3).splitlines() if line.strip()]
    return lines[-1][:_LINE_LENGTH] if lines else ""
