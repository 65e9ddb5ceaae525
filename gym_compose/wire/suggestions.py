"""Did you mean …? One rule for commands, flags, names of components and of instances."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.6


def close_matches(typo: str, candidates: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Up to ``count`` candidates that look like ``typo``, best first."""
    return tuple(difflib.get_close_matches(typo, sorted(set(candidates)), n=count, cutoff=_CUTOFF))


def did_you_mean(typo: str, candidates: Iterable[str]) -> str | None:
    """``Did you mean 'x'?`` for the best candidate; None when nothing is close."""
    best = close_matches(typo, candidates, 1)
    return f"Did you mean {best[0]!r}?" if best else None
