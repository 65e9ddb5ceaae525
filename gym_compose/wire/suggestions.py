"""Did you mean …? One rule for commands, flags, names of components, of instances and of keys."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.6
"""Of difflib's ratio: the contract's for server references (contract-config 1.11)."""


def close_matches(typo: str, candidates: Iterable[str], count: int = 3, *, cutoff: float = _CUTOFF) -> tuple[str, ...]:
    """Up to ``count`` candidates that look like ``typo``, best first."""
    return tuple(difflib.get_close_matches(typo, sorted(set(candidates)), n=count, cutoff=cutoff))


def did_you_mean(typo: str, candidates: Iterable[str]) -> str | None:
    """``Did you mean 'x'?`` for the best candidate; None when nothing is close."""
    best = close_matches(typo, candidates, 1)
    return f"Did you mean {best[0]!r}?" if best else None


def close_or_all(typo: str, candidates: Iterable[str], *, what: str = "There is") -> str:
    """``Did you mean 'x' or 'y'?``, or all that there is to choose from: ``There is: 'x', 'y'.``"""
    known = sorted(set(candidates))
    close = close_matches(typo, known)
    if close:
        return f"Did you mean {' or '.join(repr(name) for name in close)}?"
    return f"{what}: {', '.join(repr(name) for name in known) or '(none)'}."
