"""The scripted model endpoint ``mock_openai.py`` as a process of this host."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 120.0


@contextmanager
def mock(tools: Path) -> Iterator[str]:
    """Listening on every address of this host while the block runs; its base URL. ``tools`` is the directory of ``mock_openai.py``."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "mock_openai:app", "--host", "0.0.0.0", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=tools)
    try:
        end = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the model endpoint of {tools} does not answer")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
            return True
    except OSError:
        return False
