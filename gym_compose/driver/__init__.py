"""Rows to rollouts. ``await collect(request, on_event, stop)``, or ``python -m gym_compose.driver --request FILE``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.driver.run import collect

__all__ = ["collect"]


def __getattr__(name: str) -> Any:
    if name == "collect":
        from gym_compose.driver.run import collect

        return collect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
