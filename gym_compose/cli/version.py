"""``gym --version``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

from gym_compose.cli.console import Console


def show_version(console: Console, *, json: bool) -> None:
    """Versions of gym_compose, of NeMo Gym where it is installed, and of what they run on (shape: contract-config 2.4)."""
    report = version_report()
    if json:
        console.json(report)
        return
    console.out(f"gym_compose {report['gym_compose']}")
    if report["nemo_gym"]:
        console.out(f"nemo-gym {report['nemo_gym']}")
    console.out(f"Python {report['python']} ({report['python_path']})")


def version_report() -> dict[str, Any]:
    """The contract's keys plus ``gym_compose``; a package that is not installed is null."""
    from gym_compose import __version__

    system = platform.uname()
    return {
        "gym_compose": __version__,
        "nemo_gym": _version("nemo-gym"),
        "python": platform.python_version(),
        "python_path": sys.executable,
        "installation_path": str(Path(__file__).resolve().parent.parent),
        "dependencies": {
            "openai": _version("openai"),
            "ray": _version("ray"),
            "omegaconf": _version("omegaconf"),
            "docker": _version("docker"),
        },
        "system": {"os": f"{system.system} {system.release}", "platform": platform.platform(), "architecture": system.machine},
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
