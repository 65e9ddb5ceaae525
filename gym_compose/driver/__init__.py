"""Rows to rollouts. ``await collect(request, on_event, stop)``, or ``python -m gym_compose.driver --request FILE``; for programs that hold
the rows themselves ``async for rollout in collect_rollouts(rows, head_url=...)``, and ``run_from_config`` for NeMo Gym's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.driver.from_config import run_from_config
    from gym_compose.driver.run import collect
    from gym_compose.driver.stream import Rollout, collect_rollouts

__all__ = ["Rollout", "collect", "collect_rollouts", "run_from_config"]

_LAZY = {"collect": "run", "collect_rollouts": "stream", "Rollout": "stream", "run_from_config": "from_config"}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"gym_compose.driver.{module}"), name)
