"""NeMo Gym's own CLI beside ours: what is not ours is handed to it where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence

from gym_compose.cli.command import Handed
from gym_compose.cli.console import Console
from gym_compose.wire.errors import PrerequisiteError

_MODULE = "nemo_gym.cli.main"


class NotOursError(PrerequisiteError):
    """A command that NeMo Gym's CLI does, and NeMo Gym is not installed here."""


def is_installed() -> bool:
    """Whether NeMo Gym is importable in this environment; found, not imported."""
    return importlib.util.find_spec("nemo_gym") is not None


def hand_over(name: str, place: Handed, argv: Sequence[str], console: Console) -> int:
    """Run ``gym ARGV`` with NeMo Gym's CLI in this process, saying so in one line on stderr. Returns its exit status.

    Raises NotOursError with the reason where NeMo Gym is not installed, or cannot be loaded.
    """
    if not is_installed():
        raise NotOursError(f"gym {name} is NeMo Gym's, which is not installed here; {place.reason}", hint="pip install nemo-gym gives it.")
    console.err(f"gym {name}: handed to NeMo Gym's own CLI.")
    try:
        peer = importlib.import_module(_MODULE)
    except ImportError as error:
        raise NotOursError(
            f"NeMo Gym's CLI cannot be loaded: {error}", where=_MODULE, hint="Is nemo-gym installed whole, and 0.7.0 or near it?"
        ) from error
    saved = sys.argv
    sys.argv = ["gym", *argv]
    try:
        peer.main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    finally:
        sys.argv = saved
    return 0
