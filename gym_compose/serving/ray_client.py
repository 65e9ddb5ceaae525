"""Ray Client's connection from a server: tried again where Ray's own first step fails.

The head forks a server for each client out of a process with gRPC's threads. Now and then that child dies before it has written a line, and
the client is told "Starting Ray client server failed" (Ray 2.60: seen at the first connection to a head, never twice in a row). NeMo Gym
connects while its server starts, so the server would end with it. To be retired with a Ray that starts these another way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

ATTEMPTS: Final = 4
FAILED: Final = "Starting Ray client server failed"


def patient(module: ModuleType) -> None:
    """Replace ``ray.init`` by one that tries again, ``ATTEMPTS`` times in all, when the head could not start the client's server.

    Nothing was begun then, and Ray has closed the connection itself. Every other failure is raised as it is.
    """
    module.init = _patient(module.init)  # type: ignore[attr-defined]


def _patient(init: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(init)
    def connect(*arguments: Any, **options: Any) -> Any:
        for attempt in range(1, ATTEMPTS):
            try:
                return init(*arguments, **options)
            except ConnectionAbortedError as error:
                if FAILED not in str(error):
                    raise
                said = f"gym-compose: Ray's head could not start this client's server; attempt {attempt + 1} of {ATTEMPTS}"
                print(said, file=sys.stderr, flush=True)
        return init(*arguments, **options)

    return connect
