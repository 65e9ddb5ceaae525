"""Where ports come from (contract-config 1.14): probed on this host, one fixed port for all, or none at all."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from gym_compose.config.errors import PortAllocationError

DEFAULT_HEAD_PORT = 11000
DEFAULT_LOW = 10_001
DEFAULT_HIGH = 20_000
_ATTEMPTS = 50


class PortAllocator(Protocol):
    """Gives one port for a server whose config names none."""

    @property
    def offline(self) -> bool:
        """Nothing is looked up or allocated: what it gives says nothing about this host."""
        ...

    def allocate(self, low: int, high: int, disallowed: Collection[int]) -> int:
        """A port of ``low..high`` (both included, as the config has them) that is not disallowed. Raises PortAllocationError."""
        ...


@dataclass
class ProbePorts:
    """Random ports of the range that can be bound on this host, as the peer does it. For the process engine."""

    randint: Callable[[int, int], int] = field(default_factory=lambda: random.SystemRandom().randint)
    is_free: Callable[[int], bool] = field(default_factory=lambda: can_bind)
    offline: bool = False

    def allocate(self, low: int, high: int, disallowed: Collection[int]) -> int:
        if not _is_port(low) or not _is_port(high) or low > high:
            raise PortAllocationError(
                f"the port range is {low!r}..{high!r}; both bounds have to be integers of 1..65535, the lower one first.",
                where="port_range_low, port_range_high",
            )
        taken = {port for port in disallowed if low <= port <= high}
        if len(taken) > high - low:
            raise PortAllocationError(
                f"every port of {low}..{high} is disallowed.", where="port_range_low, port_range_high", hint="Widen the range."
            )
        for _ in range(_ATTEMPTS):
            port = self.randint(low, high)
            while port in taken:
                port = self.randint(low, high)
            if self.is_free(port):
                return port
        raise PortAllocationError(
            f"no free port in {low}..{high} after {_ATTEMPTS} attempts.",
            where="port_range_low, port_range_high",
            hint="Widen the range or stop what holds its ports.",
        )


@dataclass(frozen=True)
class FixedPort:
    """The same port for every server: each has a network namespace of its own. For the Docker engine."""

    port: int
    offline: bool = False

    def allocate(self, low: int, high: int, disallowed: Collection[int]) -> int:  # noqa: ARG002 - the range is the host's
        return self.port


@dataclass(frozen=True)
class OfflinePorts:
    """-1 for every server: a static look at a config allocates nothing."""

    offline: bool = True

    def allocate(self, low: int, high: int, disallowed: Collection[int]) -> int:  # noqa: ARG002 - nothing is allocated
        return -1


def probe() -> ProbePorts:
    return ProbePorts()


def fixed(port: int) -> FixedPort:
    return FixedPort(port)


def offline() -> OfflinePorts:
    return OfflinePorts()


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def can_bind(port: int) -> bool:
    """Whether a TCP socket can be bound to the port on all addresses of this host."""
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def machine_address() -> str:
    """The address that this machine's host name resolves to (``use_absolute_ip``)."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise PortAllocationError(
            f"the host name does not resolve: {error}", where="use_absolute_ip", hint="Set default_host to an address instead."
        ) from error
