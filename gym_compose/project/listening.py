"""Who listens where: ports of this host that only its loopback addresses have, and what a server in a container really listens on."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
_ENGINE_DNS = ip_address("127.0.0.11")
"""Docker's name server listens there in every container."""


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
            if _unmapped(address).is_loopback:
                loopback.add(port)
            elif _unmapped(address).is_unspecified:
                everywhere.add(port)
    return frozenset((loopback - everywhere) & wanted)


def listening_text(pid: int, port: int, proc: Path = Path("/proc")) -> str | None:
    """What the container of process ``pid`` listens on, as a sentence for the user who waits for ``port``.

    None where it cannot be seen (the engine's processes are in a virtual machine) or where the port is listened on as it should be.
    """
    found: set[tuple[IPv4Address | IPv6Address, int]] = set()
    for table in ("tcp", "tcp6"):
        try:
            text = (proc / str(pid) / "net" / table).read_text(encoding="ascii")
        except OSError:
            if table == "tcp":
                return None
            continue  # a kernel without IPv6
        found.update((_unmapped(address), number) for address, number in listeners(text) if address != _ENGINE_DNS)
    right = f"it should on port {port}, at $GYM_HOST, its own name on the servers network, or at 0.0.0.0"
    if any(number == port and not address.is_loopback for address, number in found):
        return None
    shown = ", ".join(
        f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}" for address, number in sorted(found, key=str)
    )
    return f"it listens on {shown} only; {right}" if found else f"it listens on no port; {right}"


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address that stands in the table of IPv6 as itself."""
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def listeners(text: str) -> Iterable[tuple[IPv4Address | IPv6Address, int]]:
    """(address, port) of each listening socket in a table of ``/proc/net``. Addresses stand there in words of the machine's byte order."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 4 or fields[3] != _LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        words = (address[start : start + 8] for start in range(0, len(address), 8))
        yield ip_address(b"".join(bytes.fromhex(word)[::-1] for word in words)), int(port, 16)
