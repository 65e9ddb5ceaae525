"""Rollout correlation in paths: ``/ng-rollout/<id>/…`` and ``/ng-rollout/<id>/training-token-capture/…`` (contract-servers 1.6)."""

from __future__ import annotations

import re
from typing import Final

from gym_compose.wire.ids import ROLLOUT_ID

ROLLOUT_SEGMENT: Final = "ng-rollout"
CAPTURE_SEGMENT: Final = "training-token-capture"
PREFIX_KEY: Final = "gym_compose.rollout_prefix"
"""Key of the scope: the prefix that was taken off the path, without a slash at the end."""

_PREFIX = re.compile(rf"(/{ROLLOUT_SEGMENT}/{ROLLOUT_ID.pattern}(?:/{CAPTURE_SEGMENT})?)(/.*)", re.DOTALL)
_START = f"/{ROLLOUT_SEGMENT}/"


def split_prefix(path: str) -> tuple[str, str]:
    """``(prefix, rest)`` of a path; the prefix is empty when there is none or its id is not well formed."""
    if not path.startswith(_START):
        return "", path
    match = _PREFIX.fullmatch(path)
    return (match[1], match[2]) if match else ("", path)


def rollout_of(prefix: str) -> str | None:
    """The id inside a prefix."""
    return prefix.split("/")[2] if prefix else None


def rollout_path(rollout: str, path: str, *, token_capture: bool = False) -> str:
    """``path`` below the prefix of a rollout id (or capture key)."""
    segment = f"/{CAPTURE_SEGMENT}" if token_capture else ""
    return f"/{ROLLOUT_SEGMENT}/{rollout}{segment}{path}"
