"""Deployments inside pytest, on testcontainers: ``GymDeployment``, the fixtures of ``plugin``, and the count of what is left.

Names are loaded on first use: testcontainers and the Docker SDK are heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.testing.deployment import GymDeployment
    from gym_compose.testing.leftovers import Leftovers, find_leftovers
    from gym_compose.testing.reaper import reap

_HOME = {"GymDeployment": "deployment", "Leftovers": "leftovers", "find_leftovers": "leftovers", "reap": "reaper"}

__all__ = ["GymDeployment", "Leftovers", "find_leftovers", "reap"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gym_compose.testing' has no attribute {name!r}")
    return getattr(import_module(f"gym_compose.testing.{_HOME[name]}"), name)
