"""Failure kinds: the one vocabulary for what went wrong (contract-data 2.3).

A kind is low in cardinality, so that it can be counted; it never implies a retry or a mask.
"""

from __future__ import annotations

import logging
import re
from typing import Final, Literal

FailureStage = Literal["admission", "seed", "agent", "verification", "cleanup"]

FAILURE_KINDS: Final = frozenset(
    {
        "transport_unreachable",
        "transport_peer_drop",
        "transport_timeout",
        "transport_local_resource",
        "agent_run_error",
        "agent_request_failed",
        "agent_timeout",
        "agent_command_not_allowed",
        "judge_failed",
        "judge_unparseable",
        "verifier_error",
        "provider_unavailable",
        "provider_quota_exhausted",
        "provider_oom_killed",
        "session_lost",
        "session_expired",
        "session_release_failed",
        "cancelled",
        "kill_shaped",
        "shutdown",
        "persistence_failed",
        "cohort_incomplete",
    }
)

# What the collector writes as ``_ng_failure_class`` of rows without a rollout (contract-data 1.11).
ENVIRONMENT_SERVER_FAILED: Final = "environment_server_failed"
AGENT_RUN_ERROR: Final = "agent_run_error"
AGENT_REQUEST_FAILED: Final = "agent_request_failed"
JUDGE_FAILED: Final = "judge_failed"

FAILURE_REASON_LIMIT: Final = 2000
"""Characters of ``failure_reason`` on the wire."""

_EXTENSION = re.compile(r"[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")
_log = logging.getLogger(__name__)
_warned: set[str] = set()


def is_registered(kind: str) -> bool:
    """Whether ``kind`` is in the shared vocabulary or has the extension form ``<server>:<kind>``."""
    return kind in FAILURE_KINDS or _EXTENSION.fullmatch(kind) is not None


def check_failure_kind(kind: str | None) -> str | None:
    """``kind`` unchanged; an unknown one is warned about once per process and name, never refused."""
    if kind is not None and kind not in _warned and not is_registered(kind):
        _warned.add(kind)
        _log.warning("failure_kind %r is neither registered nor of the form '<server>:<kind>'", kind)
    return kind


def cut_reason(text: str) -> str:
    """``text`` cut to what a ``failure_reason`` may hold."""
    return text[:FAILURE_REASON_LIMIT]
