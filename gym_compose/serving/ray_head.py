"""A Ray service's process: ``python -m gym_compose.serving.ray_head --ready FILE -- ray start --head --block …``.

Ray's own command does the work; around it is what a container needs and that does not have:

* ``FILE`` appears when the cluster has started. Ray Client's port answers earlier, and who connects then is turned away.
* Ray gives itself 30 s to start, a number in its code; a busy machine needs more. A start that fails of that is tried again.
* It ends at once when it is told to. Who used it has ended before (``engine.order``), and Ray alone takes 12 s to drain for nobody.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

ATTEMPTS = 4
STARTED = "Ray runtime started"
TOO_SLOW = "timed out during startup"


class RayHead:
    """Ray's process. ``run`` returns its exit code."""

    def __init__(self, command: Sequence[str], ready: Path) -> None:
        self._command = list(command)
        self._ready = ready
        self._process: subprocess.Popen[str] | None = None
        self._slow = False

    def run(self) -> int:
        """Start Ray and wait for its end; once more when it took too long to start, ``ATTEMPTS`` times at most."""
        for attempt in range(1, ATTEMPTS + 1):
            code, again = self._attempt()
            if not again:
                break
            if attempt < ATTEMPTS:
                print(
                    f"gym-compose: Ray did not start within its own 30 s; attempt {attempt + 1} of {ATTEMPTS}", file=sys.stderr, flush=True
                )
        return code

    def _attempt(self) -> tuple[int, bool]:
        """(exit code, whether it was too slow)."""
        self._ready.unlink(missing_ok=True)
        self._slow = False
        with subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:
            self._process = process
            reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
            reader.start()
            code = process.wait()
            _end(process)  # a daemon that is left of it may hold the pipe
            reader.join()
        slow = self._slow and not self._ready.exists()
        self._ready.unlink(missing_ok=True)
        return code, slow

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
            self._slow = self._slow or TOO_SLOW in line
            if STARTED in line:
                self._ready.touch()

    def stop(self, _number: int, _frame: FrameType | None) -> NoReturn:
        """Signal handler: end Ray and this process. What Ray has started ends with the container."""
        if self._process is not None:
            _end(self._process)
        # Not an exception: it would wait for the pipe that Ray's daemons still hold.
        os._exit(0)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of the session that ``process`` leads."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: Ray's own; 0 after SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m gym_compose.serving.ray_head", description="Run Ray's head in a container.")
    parser.add_argument("--ready", type=Path, required=True, metavar="FILE", help="made when Ray has started")
    parser.add_argument("command", nargs="+", help="ray start --head --block …")
    arguments = parser.parse_args(argv)
    head = RayHead(arguments.command, arguments.ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, head.stop)
    return head.run()


if __name__ == "__main__":
    sys.exit(main())
