"""What one server may know: the two files that its container mounts (design decisions 6 and 7).

The public file may be read by anyone; the secret one holds the values that were taken out of it, each with its path in ``config``.
The launcher puts them back together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SLICE_FORMAT = 1
MASK = "****"


class SecretValue(BaseModel):
    """One value of ``config`` that stands masked in the public file. ``path`` holds mapping keys and list indices from the root."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: tuple[str | int, ...]
    value: Any


class PublicSlice(BaseModel):
    """The public half. ``config`` is the merged config cut to what the server reads: interpolations resolved, secrets masked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = SLICE_FORMAT
    gym_compose: str
    instance: str
    server_type: str
    implementation: str
    entrypoint: str
    server_dir: str
    """Absolute path of the server's directory where it runs: working directory and first entry of PYTHONPATH."""
    runtime: str
    """``native`` or ``nemo-gym``."""
    python_path: tuple[str, ...] = ()
    """Further PYTHONPATH entries after ``server_dir``."""
    config: dict[str, Any]
    environment: dict[str, str] = Field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    """Top-level keys of the merged config that are not in ``config``: a server that reads one is told how to get it. Names only."""
    ray: str = "off"
    """``off``: a class that leaves ``ray_enabled`` undeclared gets False; ``peer``: today's behaviour of NeMo Gym."""


class SecretSlice(BaseModel):
    """The secret half, 0400 of the uid that runs the server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = SLICE_FORMAT
    values: tuple[SecretValue, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    session_key: str | None = None
    """Signs session cookies when every server of the deployment is native; None: the peer's rule, key = cookie name."""


_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_NOTICE = re.compile(r"gym-compose: (.+?) read (.+), which it was not given\.")


def withheld_notice(instance: str, key: str) -> str:
    """The line in the log of a server that read a config value that it was not given (``key``: its dotted name)."""
    return f"gym-compose: {json.dumps(instance)[1:-1]} read {json.dumps(key)[1:-1]}, which it was not given. {_grant(instance, [key])}"


def withheld_hint(log: Iterable[str]) -> str | None:
    """What to add to the config, out of the notices in a server's log; None without any."""
    found = [match.groups() for line in log if (match := _NOTICE.search(line))]
    if not found:
        return None
    instance = found[-1][0]
    keys = list(dict.fromkeys(key for owner, key in found if owner == instance))
    return f"It read {', '.join(keys)}, which it was not given. {_grant(instance, keys)}"


def _grant(instance: str, keys: Iterable[str]) -> str:
    return f"To give it: compose: {{servers: {{{_flow(instance)}: {{secrets: [{', '.join(map(_flow, keys))}]}}}}}}"


def _flow(name: str) -> str:
    """A name as YAML's flow style has it."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)
