"""Which ports of this host are listened on at its loopback addresses alone: what containers cannot reach without a relay."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"


def loopback_only(ports: Iterable[int], tables: Iterable[str] = TABLES) -> frozenset[int]:
    """Those of ``ports`` that something listens on at a loopback address and nothing on every address.

    Where the kernel's tables cannot be read (no Linux) it is none: Docker Desktop reaches loopback endpoints by itself.
    """
    wanted = set(ports)
    loopback: set[int] = set()
    everywhere: set[int] = set()
    for table in tables if wanted else ():
        try:
            text = Path(table).read_text(encoding="ascii")
        except OSError:
            continue
        for address, port in listeners(text):
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            if (mapped or address).is_loopback:
                loopback.add(port)
            elif (mapped or address).is_unspecified:
                everywhere.add(port)
    return frozenset((loopback - everywhere) & wanted)


def listeners(text: str) -> Iterable[tuple[IPv4Address | IPv6Address, int]]:
    """(address, port) of each listening socket in a table of ``/proc/net``. Addresses stand there in words of the machine's byte order."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 4 or fields[3] != _LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        words = (address[start : start + 8] for start in range(0, len(address), 8))
        yield ip_address(b"".join(bytes.fromhex(word)[::-1] for word in words)), int(port, 16)
