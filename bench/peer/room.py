"""Room on this machine for one more deployment: memory and disk."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path

LEAST_FREE_BYTES = 20 * 2**30
LEAST_MEMORY_BYTES = 5 * 2**30
"""A deployment of NeMo Gym's servers takes 0.5 to 2 GB while it runs, and its build another one."""
KEPT_CACHE = "10GB"
_OWN_IMAGES = ("gym-compose/nemo-gym-requirements:", "gym-compose/nemo-gym:")
_WAIT_SECONDS = 5.0
_MEMORY = Path("/proc/meminfo")


class Room:
    """Asked before each case, from several threads. Only images that this run has used are removed, and only those that nothing runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: set[str] = set()
        self._running = 0

    def enter(self) -> None:
        """Wait for memory while others run, and make room on the disk where there is less than ``LEAST_FREE_BYTES``."""
        while True:
            with self._lock:
                if self._running == 0 or available_memory(_MEMORY.read_text(encoding="ascii")) > LEAST_MEMORY_BYTES:
                    self._running += 1
                    self._make_room()
                    return
            time.sleep(_WAIT_SECONDS)

    def leave(self, images: tuple[str, ...]) -> None:
        """A case is done; ``images`` are those of its deployment."""
        with self._lock:
            self._running -= 1
            self._images.update(name for name in images if name.startswith(_OWN_IMAGES))

    def _make_room(self) -> None:
        if free_bytes() > LEAST_FREE_BYTES:
            return
        for name in sorted(self._images):  # one that is in use stays: docker refuses without --force
            subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False)
        self._images.clear()
        if free_bytes() < LEAST_FREE_BYTES:  # what is left of them is the builder's cache
            subprocess.run(["docker", "builder", "prune", "--force", "--keep-storage", KEPT_CACHE], capture_output=True, check=False)


def free_bytes() -> int:
    return shutil.disk_usage("/").free


def available_memory(text: str) -> int:
    """Bytes of MemAvailable out of ``/proc/meminfo``."""
    line = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024
