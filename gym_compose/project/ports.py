"""The head's port on this host: as the config says, as it was, or a free one."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from gym_compose.project.errors import HeadPortTakenError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free to a server
        with contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return True
    return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; the system chooses."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def expected_head_port(wanted: int, *, explicit: bool, remembered: int | None) -> int:
    """The port a plan shows, without a look at the network: that of the running head when there is one, else the wanted one."""
    return wanted if explicit or remembered is None else remembered


def settled_head_port(
    wanted: int,
    *,
    explicit: bool,
    remembered: int | None,
    head_runs: bool,
    free: Callable[[int], bool] = is_free,
    choose: Callable[[], int] = free_port,
) -> int:
    """The port to start with.

    A head of ours that runs keeps its port, unless the config now names another one. Else it is the wanted one when nobody has it.
    A taken one is an error (HeadPortTakenError) when the config names it, and gives way to a free one when it is only the default.
    """
    if head_runs and remembered is not None and (remembered == wanted or not explicit):
        return remembered
    if free(wanted):
        return wanted
    if explicit:
        raise HeadPortTakenError(wanted)
    return choose()
