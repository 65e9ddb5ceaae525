"""Deployments inside pytest, on testcontainers: ``GymDeployment``, the fixtures of ``plugin``, and the count of what is left; one server
in the test's own process: ``Served``.

Names are loaded on first use: testcontainers and the Docker SDK are heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.testing.deployment import GymDeployment
    from gym_compose.testing.leftovers import Leftovers, find_leftovers
    from gym_compose.testing.reaper import reap
    from gym_compose.testing.served import AgentPeer, Peer, PeerAnswer, ResourcesPeer, Served, episode, load_app, response

_HOMES = {
    "deployment": ("GymDeployment",),
    "leftovers": ("Leftovers", "find_leftovers"),
    "reaper": ("reap",),
    "served": ("AgentPeer", "Peer", "PeerAnswer", "ResourcesPeer", "Served", "episode", "load_app", "response"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AgentPeer",
    "GymDeployment",
    "Leftovers",
    "Peer",
    "PeerAnswer",
    "ResourcesPeer",
    "Served",
    "episode",
    "find_leftovers",
    "load_app",
    "reap",
    "response",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gym_compose.testing' has no attribute {name!r}")
    return getattr(import_module(f"gym_compose.testing.{_HOME[name]}"), name)
