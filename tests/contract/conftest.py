"""Where the golden data and the peer's wheel are.

``GYM_COMPOSE_GOLDEN``: the directory of the golden files (default: ``../shared/golden`` beside the repository).
``GYM_COMPOSE_PEER_ROOT``: an unpacked nemo-gym 0.7.0 wheel (default: ``.cache/peer``, downloaded with pip at the first run).
Without them the tests skip; with ``GYM_COMPOSE_REQUIRE_PEER=1`` they fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PEER = "nemo-gym==0.7.0"


def _missing(what: str) -> None:
    if os.environ.get("GYM_COMPOSE_REQUIRE_PEER") == "1":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def golden_directory() -> Path:
    directory = Path(os.environ.get("GYM_COMPOSE_GOLDEN", REPOSITORY.parent / "shared" / "golden"))
    if not directory.is_dir():
        _missing(f"no golden data at {directory}")
    return directory


@pytest.fixture(scope="session")
def peer_root() -> Path:
    """The root of the unpacked wheel: its config files are test input."""
    given = os.environ.get("GYM_COMPOSE_PEER_ROOT")
    if given:
        return Path(given).resolve()
    root = REPOSITORY / ".cache" / "peer"
    if not (root / "nemo_gym").is_dir():
        _download(root)
    return root


def _download(root: Path) -> None:
    downloads = root.parent / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.13.14"]
    done = subprocess.run([*command, "--dest", str(downloads), PEER], capture_output=True, text=True, timeout=300, check=False)
    wheels = sorted(downloads.glob("nemo_gym-*.whl"))
    if done.returncode != 0 or not wheels:
        _missing(f"{PEER} cannot be downloaded: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(root)
