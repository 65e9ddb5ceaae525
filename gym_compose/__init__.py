"""NeMo Gym configs, servers and datasets as one container per server.

For tools that hold a config in code: ``resolve_config`` merges one, ``resolve_command`` says what a command line of ``gym`` stands for.
For training frameworks: ``collect_rollouts`` and ``run_from_config`` (docs/library.md). Importing the package loads nothing heavy: all are
fetched at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.cli.translate import ResolvedCommand, resolve_command
    from gym_compose.config import resolve_config
    from gym_compose.driver import Rollout, collect_rollouts, run_from_config
    from gym_compose.wire.bounded import aggregate_metrics

__version__ = "0.1.0"

__all__ = [
    "ResolvedCommand",
    "Rollout",
    "__version__",
    "aggregate_metrics",
    "collect_rollouts",
    "resolve_command",
    "resolve_config",
    "run_from_config",
]

_LAZY = {
    "aggregate_metrics": "gym_compose.wire.bounded",
    "ResolvedCommand": "gym_compose.cli.translate",
    "resolve_command": "gym_compose.cli.translate",
    "resolve_config": "gym_compose.config",
    "Rollout": "gym_compose.driver",
    "collect_rollouts": "gym_compose.driver",
    "run_from_config": "gym_compose.driver",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)
