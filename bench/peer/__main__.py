"""``python -m bench.peer [NAME…]``: the shipped servers of NeMo Gym in our images; all of the list, or those named.

Writes docs/peer-servers.md after every server. Exit 1 when one that used to work does not. ``GYM_COMPOSE_PEER_ROOT`` is an unpacked wheel
(default: .cache/peer), ``GYM_COMPOSE_SHARED`` holds tools/mock_openai.py (default: ../shared).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from bench.peer.case import Case, read_cases
from bench.peer.report import Line, lost, read, text
from bench.peer.run import Outcome, environment, run_case
from gym_compose.project.assets import root

PARALLEL = 2
LEAST_FREE_BYTES = 20 * 2**30
MOCK_START_SECONDS = 30
WHEEL_KINDS = ("gym-compose/nemo-gym-requirements:", "gym-compose/nemo-gym:")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peer", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a server's name or TYPE/NAME; all without one")
    parser.add_argument("--parallel", type=int, default=PARALLEL)
    arguments = parser.parse_args()
    cases = read_cases()
    chosen = [case for case in cases if not arguments.names or {case.name, case.label} & set(arguments.names)]
    if not chosen:
        print("no server of the list has such a name", file=sys.stderr)
        return 2
    peer_root = Path(os.environ.get("GYM_COMPOSE_PEER_ROOT", root() / ".cache" / "peer")).resolve()
    shared = Path(os.environ.get("GYM_COMPOSE_SHARED", root().parent / "shared"))
    if not (peer_root / "nemo_gym").is_dir():
        print(f"no unpacked nemo-gym wheel at {peer_root}: set GYM_COMPOSE_PEER_ROOT", file=sys.stderr)
        return 2
    page = root() / "docs" / "peer-servers.md"
    before = read(page)
    lines = dict(before)
    after: dict[str, Line] = {}
    with mock(shared / "tools") as url, ThreadPoolExecutor(max(1, arguments.parallel)) as pool:
        disk = Disk()
        running = {pool.submit(one, case, peer_root, url, disk): case for case in chosen}
        try:
            for number, future in enumerate(as_completed(running), 1):
                outcome = future.result()
                after[outcome.label] = lines[outcome.label] = Line.of(outcome)
                page.write_text(text(lines, [case.label for case in cases]), encoding="utf-8")
                line = after[outcome.label]
                print(
                    f"{number}/{len(chosen)} {outcome.label}: ready {line.ready}, rollout {line.rollout or '-'} {line.reason}", flush=True
                )
        except BaseException:  # Ctrl+C: those that run are stopped in order, the others are not begun
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    worse = lost(before, after)
    for label in worse:
        print(f"{label} used to work: {after[label].reason}", file=sys.stderr)
    return 1 if worse else 0


def one(case: Case, peer_root: Path, url: str, disk: Disk) -> Outcome:
    disk.wait()
    outcome = run_case(case, peer_root, url, environment())
    disk.used(outcome.images)
    return outcome


class Disk:
    """Keeps the disk from filling: before a server is built, images of this run that nothing uses go, and old build cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: set[str] = set()

    def used(self, images: tuple[str, ...]) -> None:
        with self._lock:
            self._images.update(name for name in images if name.startswith(WHEEL_KINDS))

    def wait(self) -> None:
        """Make room where there is less than LEAST_FREE_BYTES."""
        with self._lock:
            if shutil.disk_usage("/").free > LEAST_FREE_BYTES:
                return
            for name in sorted(self._images):  # one that is in use stays: docker refuses without --force
                subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False)
            self._images.clear()
            subprocess.run(["docker", "builder", "prune", "--force", "--keep-storage", "10GB"], capture_output=True, check=False)


@contextmanager
def mock(tools: Path) -> Iterator[str]:
    """The scripted model endpoint on every address of this host; its base URL."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "mock_openai:app", "--host", "0.0.0.0", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=tools)
    try:
        end = time.monotonic() + MOCK_START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
