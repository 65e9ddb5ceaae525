"""Keys that the parser writes into every config, in their order (contract-config 1.3, 1.16)."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gym_compose.config.errors import ConfigError
from gym_compose.config.interpolation import Tree
from gym_compose.config.ports import DEFAULT_HEAD_PORT

HEAD_SERVER_DEPS: Final = ("ray[default]>=2.58.0", "openai==2.44.0")
"""What NeMo Gym 0.7.0 asks for itself; its parser writes the versions of its own process here, and we have no such process."""


def head_port(tree: Tree) -> Any:
    """The head server's port as configured; 11000 when the key is absent, None when it is null.

    Raises ConfigError when ``head_server`` is neither a mapping nor null.
    """
    head = tree.value(("head_server",)) or {}
    if not isinstance(head, dict):
        raise ConfigError(f"it has to be a mapping with host and port, not {head!r}.", where="head_server")
    if "port" not in head:
        return DEFAULT_HEAD_PORT
    return tree.value(("head_server", "port"))


def fill_defaults(
    tree: Tree, *, default_host: Any, disallowed_ports: list[Any], cwd: Path, working_directory: Path, environ: Mapping[str, str]
) -> None:
    """Write the head server and every default that follows it. Raises ConfigError for a value of the wrong kind."""
    raw = tree.data.get("head_server")
    head = dict(raw) if isinstance(raw, dict) else dict(tree.value(("head_server",)) or {})
    head.setdefault("host", default_host)
    head.setdefault("port", DEFAULT_HEAD_PORT)
    tree.put(("head_server",), head)
    tree.put(("disallowed_ports",), disallowed_ports)
    skew = _setdefault(tree, "allow_openai_version_skew", False)
    if not isinstance(skew, bool):
        raise ConfigError(f"it has to be true or false, not {skew!r}.", where="allow_openai_version_skew")
    tree.put(("head_server_deps",), list(HEAD_SERVER_DEPS))
    tree.put(("python_version",), platform.python_version())
    _setdefault(tree, "skip_venv_if_present", False)
    _setdefault(tree, "dry_run", False)
    _setdefault(tree, "server_spinup_timeout_seconds", 600)
    _setdefault(tree, "model_endpoint_readiness_timeout_seconds", 600)
    for key in ("results_dir", "cache_dir"):
        value = _setdefault(tree, key, str(working_directory / key.removesuffix("_dir")))
        if not isinstance(value, str) or not value:
            raise ConfigError(f"it has to be a path, not {value!r}.", where=key)
        tree.put((key,), _absolute(value, cwd, environ))
    _setdefault(tree, "uv_cache_dir", os.path.join(tree.data["cache_dir"], "uv"))
    exported = environ.get("UV_LOCK_TIMEOUT", "").strip()
    _setdefault(tree, "uv_lock_timeout_seconds", int(exported) if exported.isdecimal() else 1800)
    _setdefault(tree, "uv_venv_dir", str(working_directory))


def _setdefault(tree: Tree, key: str, default: Any) -> Any:
    if key not in tree.data:
        tree.put((key,), default)
        return default
    return tree.value((key,))


def _absolute(value: str, cwd: Path, environ: Mapping[str, str]) -> str:
    """Made absolute here, as every process reads it from another directory; ``~`` is the caller's HOME."""
    if value == "~" or value.startswith("~/"):
        value = environ.get("HOME", "~") + value[1:]
    return str((cwd / value).resolve())
