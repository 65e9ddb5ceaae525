"""Who is reached where: host and port of every instance, the head server, and endpoints on the host itself (design decisions 5, 15, 16)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from socket import inet_aton, inet_ntoa
from typing import Any

from gym_compose.compiler import document as doc
from gym_compose.compiler.errors import dotted
from gym_compose.compiler.slug import InstanceNames
from gym_compose.config.model import GymConfig, KeyPath
from gym_compose.wire.names import CONTAINER_HOME, HEAD_ALIAS, HEAD_PORT_INSIDE, RELAY_SERVICE, SERVER_PORT, EngineName

HOST_GATEWAY_NAME = "host.docker.internal"
LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"
_URL = re.compile(
    r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?)(?P<host>\[[^\]/?#]*\]|[^:/?#]*)(?P<tail>(?::\d*)?(?:[/?#].*)?)", re.DOTALL
)
_NUMERIC = re.compile(r"[0-9a-fx]*[0-9][0-9a-fx]*(?:\.[0-9a-fx]+){0,3}")
"""An IPv4 address as the C library reads it: 127.1 and 0 too."""
_DIRECTORIES = {"results_dir": f"{CONTAINER_HOME}/results", "cache_dir": f"{CONTAINER_HOME}/cache"}
"""Globals that the merge made absolute on this machine (contract-config 1.3, 7.3)."""


@dataclass(frozen=True)
class Address:
    """Where peers dial an instance, and what it binds."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class Addressed:
    """The config with the addresses of the target in it. ``host_urls`` are the paths whose URL was turned to the host gateway."""

    document: dict[str, Any]
    host_urls: tuple[KeyPath, ...]
    notes: tuple[tuple[str, str], ...]


def assign_addresses(config: GymConfig, names: Mapping[str, InstanceNames], target: EngineName) -> dict[str, Address]:
    """Docker: the alias, and port 8000 unless the config pins one. Processes: 127.0.0.1 and the port that the allocator gave."""
    addresses: dict[str, Address] = {}
    for instance in config.instances:
        if target == "docker":
            addresses[instance.name] = Address(names[instance.name].alias, instance.port if instance.port_pinned else SERVER_PORT)
        else:
            addresses[instance.name] = Address(LOOPBACK, instance.port)
    return addresses


def host_ports(config: GymConfig) -> dict[int, KeyPath]:
    """The ports of this host that loopback URLs of the config name, each with the first key that names it."""
    found: dict[int, KeyPath] = {}
    for path, value in doc.walk(doc.plain(config.resolved)):
        if isinstance(value, str) and _is_base_url(path) and turn_loopback(value) is not None:
            found.setdefault(_port_number(value), path)
    return found


def address_config(
    config: GymConfig,
    addresses: Mapping[str, Address],
    target: EngineName,
    head_port: int,
    relayed: frozenset[int] = frozenset(),
) -> Addressed:
    """A plain copy of the resolved config in which every address works where the servers run.

    Server blocks get ``host`` and ``port`` (contract-config 1.14), ``head_server`` the head's inner listener. For Docker, loopback URLs in
    fields whose name ends in ``base_url`` or ``base_urls``, lists too, become the host gateway's: a loopback URL in a config means the host
    (decision 16); ``relayed`` are the ports that a relay takes there. Raises ValueNotPortableError for a value that cannot be written as
    JSON.
    """
    document: dict[str, Any] = doc.plain(config.resolved)
    host_urls: list[KeyPath] = []
    notes: list[tuple[str, str]] = []
    if target == "docker":
        host_urls, notes = _turn_to_gateway(config, document, relayed)
        document.update({key: value for key, value in _DIRECTORIES.items() if key in document})
    for instance in config.instances:
        address = addresses[instance.name]
        block = document[instance.name][instance.server_type][instance.implementation]
        block["host"], block["port"] = address.host, address.port
    head = Address(HEAD_ALIAS, HEAD_PORT_INSIDE) if target == "docker" else Address(LOOPBACK, head_port)
    given = document.get("head_server")
    document["head_server"] = {**(given if isinstance(given, dict) else {}), "host": head.host, "port": head.port}
    if "disallowed_ports" in document:
        document["disallowed_ports"] = [head.port, *(addresses[instance.name].port for instance in config.instances)]
    return Addressed(document, tuple(host_urls), tuple(notes))


def _turn_to_gateway(config: GymConfig, document: dict[str, Any], relayed: frozenset[int]) -> tuple[list[KeyPath], list[tuple[str, str]]]:
    instances = {instance.name for instance in config.instances}
    turned: list[KeyPath] = []
    notes: list[tuple[str, str]] = []
    for path, value in list(doc.walk(document)):
        if not isinstance(value, str) or not _is_base_url(path):
            continue
        url = turn_loopback(value)
        if url is None:
            continue
        doc.put(document, path, url)
        turned.append(path)
        owner = str(path[0])
        if owner in instances:
            how = (
                f"the endpoint listens on loopback alone, so the service {RELAY_SERVICE} takes connections there"
                if _port_number(value) in relayed
                else "the endpoint must not listen on 127.0.0.1 alone"
            )
            notes.append((owner, f"{dotted(path)}: a loopback URL means this host, so it became {HOST_GATEWAY_NAME}{_port(value)}; {how}"))
    return turned, notes


def _is_base_url(path: KeyPath) -> bool:
    names = [step for step in path if isinstance(step, str)]
    return bool(names) and names[-1].lower().endswith(("base_url", "base_urls"))


def turn_loopback(url: str) -> str | None:
    """``url`` with the host gateway's name for its loopback host, all else untouched; None when it names no loopback host."""
    match = _URL.fullmatch(url)
    if match is None or not is_loopback(match["host"]):
        return None
    return f"{match['head']}{HOST_GATEWAY_NAME}{match['tail']}"


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine: localhost, 127.0.0.0/8, ::1, and the unspecified addresses that some write for it."""
    bare = host.strip("[]").lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        address = ip_address(inet_ntoa(inet_aton(bare)) if _NUMERIC.fullmatch(bare) else bare)
    except (ValueError, OSError):
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def probe_url(url: str, *, origin_only: bool = False) -> str | None:
    """A model endpoint's address for the controller: no user part, no query, no fragment, no trailing ``/``, and no path with
    ``origin_only``; None when it is no http URL."""
    match = _URL.fullmatch(url.strip())
    if match is None or not match["host"] or not match["head"].lower().startswith(("http://", "https://")):
        return None
    scheme = match["head"].split("://", 1)[0]
    tail = re.split(r"[/?#]" if origin_only else r"[?#]", match["tail"], maxsplit=1)[0]
    return f"{scheme}://{match['host']}{tail}".rstrip("/")


def _port_number(url: str) -> int:
    port = _port(url).lstrip(":")
    return int(port) if port else 443 if url.strip().lower().startswith("https:") else 80


def _port(url: str) -> str:
    match = _URL.fullmatch(url)
    port = re.match(r":\d+", match["tail"]) if match else None
    return port.group() if port else ""
