"""Who sits on which network, and what can be reached from there (design decision 8)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow]
SIOCGIFADDR = 0x8915
PYTHON = "/opt/gym/bin/python"
CLOSED = [
    "reasoning_gym",
    "reasoning_gym_simple_agent",
    "policy_model",
    "reasoning_gym_environment",
    "flat_environment",
    "own_tool",
    "outside_agent",
    "outside_environment",
]

CONNECT = """
import concurrent.futures, json, socket, sys

def answer(target):
    host, port = target.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=4) as connection:
            connection.settimeout(4)
            return connection.recv(64).decode() or "connected"
    except OSError:
        return ""

with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(json.dumps(dict(zip(sys.argv[1:], pool.map(answer, sys.argv[1:])))))
"""


@pytest.fixture(scope="module")
def listener() -> Iterator[int]:
    """A TCP service of this host on 0.0.0.0 that says a word to whoever connects; its port."""
    server = socket.create_server(("0.0.0.0", 0))
    server.settimeout(0.2)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                connection.sendall(b"host service")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    stop.set()
    thread.join()
    server.close()


def host_addresses(shared: Any) -> set[str]:
    """This host as a container may see it: its address on each of its interfaces, docker0 first of all, and every network's gateway."""
    networks = shared.gym.docker.api.networks([], Deadline.after(20))
    found = {entry["Gateway"] for network in networks for entry in (network.get("IPAM") or {}).get("Config") or [] if entry.get("Gateway")}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                found.add(socket.inet_ntoa(answer[20:24]))
    return found - {"127.0.0.1"}


def reached(shared: Any, service: str, targets: list[str]) -> dict[str, str]:
    result = shared.gym.exec(service, PYTHON, "-c", CONNECT, *targets)
    assert result.exit_code == 0, result.stderr
    found: dict[str, str] = json.loads(result.stdout)
    return found


def test_each_container_sits_on_its_networks_and_no_others(shared: Any) -> None:
    networks = {state.service: set(state.networks) for state in shared.gym.observe().services}
    # The head asks whether the model endpoint answers, so it has a way out here.
    expected = {
        "head": {"servers", "front", "egress"},
        "outside_model": {"servers", "egress"},
        **{service: {"servers"} for service in CLOSED},
    }
    assert networks == expected


def test_the_servers_network_is_internal_and_has_no_address_on_the_host(shared: Any) -> None:
    (network,) = shared.gym.docker.api.networks(
        [f"com.docker.compose.project={shared.gym.name}", "com.docker.compose.network=servers"], Deadline.after(20)
    )
    assert network["Internal"] is True
    assert network["Options"]["com.docker.network.bridge.inhibit_ipv4"] == "true"


def test_only_the_head_is_published_and_on_loopback(shared: Any) -> None:
    for state in shared.gym.observe().services:
        ports = shared.gym.docker.api.inspect(state.identity, Deadline.after(20))["NetworkSettings"]["Ports"]
        bound = [(entry["HostIp"], inner) for inner, entries in ports.items() for entry in entries or ()]
        assert bound == ([("127.0.0.1", "11001/tcp")] if state.service == "head" else []), state.service


def test_servers_reach_each_other_by_alias(shared: Any) -> None:
    code = "import urllib.request as r, sys; print([r.urlopen(u, timeout=5).status for u in sys.argv[1:]])"
    urls = ["http://policy-model.gym:8000/", "http://outside-model.gym:8000/", "http://head.gym:11000/"]
    assert shared.gym.exec("own_tool", PYTHON, "-c", code, *urls).stdout.strip() == "[200, 200, 200]"


OUTSIDE = """
import errno, json, socket, time
begun = time.monotonic()
try:
    name = bool(socket.getaddrinfo("example.com", 80))
except OSError:
    name = False
looked = time.monotonic() - begun
try:
    socket.create_connection(("192.0.2.1", 80), timeout=8).close()
    code = "connected"
except OSError as error:
    code = errno.errorcode.get(error.errno, "timed out") if error.errno else "timed out"
print(json.dumps([name, looked, code]))
"""
"""Looks a name up and sends a packet to an address that nobody has (RFC 5737): where there is no way out it does not even leave."""


def test_a_service_without_egress_has_no_way_outside_and_resolves_no_name(shared: Any) -> None:
    with ThreadPoolExecutor(len(CLOSED)) as pool:
        answers = pool.map(lambda service: json.loads(shared.gym.exec(service, PYTHON, "-c", OUTSIDE).stdout), CLOSED)
        for service, (name, looked, code) in zip(CLOSED, answers, strict=True):
            assert name is False, f"{service} resolves names of the outside"
            assert looked < 5, f"a lookup in {service} took {looked:.1f} s"
            assert code in ("EHOSTUNREACH", "ENETUNREACH"), f"{service}: a packet to the outside ended with {code}"
    _, _, code = json.loads(shared.gym.exec("outside_model", PYTHON, "-c", OUTSIDE).stdout)
    assert code not in ("EHOSTUNREACH", "ENETUNREACH"), "the model server has no way out either, so the test above shows nothing"


def test_a_service_without_egress_reaches_no_service_of_the_host(shared: Any, listener: int) -> None:
    targets = [f"{address}:{listener}" for address in sorted(host_addresses(shared))] + [f"host.docker.internal:{listener}"]
    assert len(targets) >= 3, "docker0, the way out of this host and the name: at least these"
    with ThreadPoolExecutor(len(CLOSED)) as pool:
        for service, found in zip(CLOSED, pool.map(lambda service: reached(shared, service, targets), CLOSED), strict=True):
            assert not any(found.values()), f"{service} reaches {found}"
    found = reached(shared, "outside_model", targets)
    assert found[f"host.docker.internal:{listener}"] == "host service", "the model server cannot either, so the test above shows nothing"
