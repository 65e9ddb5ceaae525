"""What one server may know: the two files that its container mounts (design decisions 6 and 7).

The public file may be read by anyone; the secret one holds the values that were taken out of it, each with its path in ``config``.
The launcher puts them back together.
"""

from __future__ import annotations

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
