"""What stored failures say of a row's further attempts (contract-data 1.12). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gym_compose.driver.record import FAILURE_CLASS

ATTEMPTS_VARIABLE = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
TERMINAL = "_ng_failure_terminal"
MOST_ATTEMPTS = 2**16 - 1
_ATTEMPTS = 3
_REPAIRABLE = frozenset(("timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"))


def attempts_allowed(environ: Mapping[str, str]) -> tuple[int, str | None]:
    """How often a row may fail before it is given up, and what is wrong with the variable that says it."""
    text = environ.get(ATTEMPTS_VARIABLE, "")
    if text == "":
        return _ATTEMPTS, None
    try:
        allowed = int(text)
    except ValueError:
        allowed = 0
    if allowed < 1:
        return _ATTEMPTS, f"{ATTEMPTS_VARIABLE} is {text!r} and not a number of 1 or more; {_ATTEMPTS} is taken"
    return min(allowed, MOST_ATTEMPTS), None


def is_terminal(record: Mapping[str, Any], *, retry_timeouts: bool) -> bool:
    """Whether a stored failure is never tried again. ``retry_timeouts``: those whose cause may have gone are, whatever they say."""
    if retry_timeouts:
        failure_class = str(record.get(FAILURE_CLASS))
        if failure_class in _REPAIRABLE:
            return False
        if failure_class == "skipped":
            return True
    return bool(record.get(TERMINAL))


def elapsed_of(record: Mapping[str, Any]) -> float | None:
    """Seconds that an attempt took, where its record says so."""
    response = record.get("response")
    metadata = response.get("metadata") if isinstance(response, Mapping) else None
    for value in (record.get("elapsed_seconds"), metadata.get("elapsed_seconds") if isinstance(metadata, Mapping) else None):
        try:
            seconds = float(value)  # type: ignore[arg-type]  # whatever it is, a text among others
        except (TypeError, ValueError):
            continue
        if seconds > 0:
            return seconds
    return None
