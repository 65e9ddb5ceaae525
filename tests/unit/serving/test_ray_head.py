"""Around Ray's own command: when it is ready, when it is tried again, how it ends. The command here is a script that says what Ray says."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gym_compose
from gym_compose.serving.ray_head import ATTEMPTS, main

SLOW = "echo 'Exception: The current node timed out during startup.' >&2; exit 1"


def script(tmp_path: Path, text: str) -> list[str]:
    return ["--ready", str(tmp_path / "ready"), "--", "bash", "-c", f"echo x >> {tmp_path}/tries; {text}"]


def tries(tmp_path: Path) -> int:
    return len((tmp_path / "tries").read_text().splitlines())


def test_the_file_is_there_while_it_runs_and_not_after_it(tmp_path: Path) -> None:
    text = f"test -e {tmp_path}/ready && exit 3; echo 'Ray runtime started.'; until test -e {tmp_path}/ready; do sleep 0.02; done; exit 5"
    assert main(script(tmp_path, text)) == 5
    assert not (tmp_path / "ready").exists()
    assert tries(tmp_path) == 1


def test_a_start_that_was_too_slow_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"if test $(wc -l < {tmp_path}/tries) -lt 3; then {SLOW}; fi; echo 'Ray runtime started.'; exit 0"
    assert main(script(tmp_path, text)) == 0
    assert tries(tmp_path) == 3
    out, err = capsys.readouterr()
    assert "timed out during startup" in out
    assert f"attempt 3 of {ATTEMPTS}" in err


def test_not_for_ever_and_not_for_another_reason(tmp_path: Path) -> None:
    assert main(script(tmp_path, SLOW)) == 1
    assert tries(tmp_path) == ATTEMPTS
    assert main(script(tmp_path, "exit 2")) == 2
    assert tries(tmp_path) == ATTEMPTS + 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_with_0_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    root = str(Path(gym_compose.__file__).parents[1])
    text = "trap '' INT TERM; echo 'Ray runtime started.'; echo pid $$; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "gym_compose.serving.ray_head", *script(tmp_path, text)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": root, "PATH": os.environ["PATH"]},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "Ray runtime started.\n"
    child = int(process.stdout.readline().split()[1])
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 0
    end = time.monotonic() + 20
    while state(child) not in (None, "Z"):
        assert time.monotonic() < end, "Ray's process was left"
        time.sleep(0.02)


def state(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return None
