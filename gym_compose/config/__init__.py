"""Sources to one merged, validated ``GymConfig``; and the snapshot of the server trees behind it.

Names are loaded on first use: OmegaConf, Hydra's parser and pydantic are heavy, and ``gym --help`` needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.config.dummy import NO_MODEL
    from gym_compose.config.environments import (
        environment_server_agent_names,
        environment_server_agent_refs,
        environment_server_attributed_agent,
    )
    from gym_compose.config.errors import ConfigError
    from gym_compose.config.load import load_config, require_instances
    from gym_compose.config.model import GymConfig, ServerInstance, ServerReference, ServerSource
    from gym_compose.config.origins import explain
    from gym_compose.config.resolve import resolve_config
    from gym_compose.config.sources import find_sources

_HOME = {
    "ConfigError": "errors",
    "GymConfig": "model",
    "NO_MODEL": "dummy",
    "ServerInstance": "model",
    "ServerReference": "model",
    "ServerSource": "model",
    "environment_server_agent_names": "environments",
    "environment_server_agent_refs": "environments",
    "environment_server_attributed_agent": "environments",
    "explain": "origins",
    "find_sources": "sources",
    "load_config": "load",
    "require_instances": "load",
    "resolve_config": "resolve",
}

__all__ = [
    "NO_MODEL",
    "ConfigError",
    "GymConfig",
    "ServerInstance",
    "ServerReference",
    "ServerSource",
    "environment_server_agent_names",
    "environment_server_agent_refs",
    "environment_server_attributed_agent",
    "explain",
    "find_sources",
    "load_config",
    "require_instances",
    "resolve_config",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gym_compose.config' has no attribute {name!r}")
    return getattr(import_module(f"gym_compose.config.{_HOME[name]}"), name)
