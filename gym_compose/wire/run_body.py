"""Keys of rows and records that collector and servers share; the rollout id of a run body (contract-data 0, contract-servers 1.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gym_compose.wire.ids import ROLLOUT_ID

TASK_INDEX: Final = "_ng_task_index"
ROLLOUT_INDEX: Final = "_ng_rollout_index"
ATTEMPT_INDEX: Final = "_ng_attempt_index"
ROLLOUT_ID_KEY: Final = "_ng_rollout_id"
ENVIRONMENT_SERVER: Final = "_ng_environment_server"
RESULT_TYPE: Final = "_ng_result_type"
TASK_ID_KEY: Final = "_ng_task_id"
FAILURE_CLASS: Final = "_ng_failure_class"
FAILURE_TERMINAL: Final = "_ng_failure_terminal"
FAILURE_MESSAGE: Final = "_ng_failure_message"
FAILURE_STAGE: Final = "_ng_failure_stage"
FAILURE_PARTIAL_RESPONSE: Final = "_ng_failure_partial_response"
NO_PERSIST: Final = "_ng_no_persist"
AGENT_REF: Final = "agent_ref"
MASK_SAMPLE: Final = "mask_sample"
AGENT_OBSERVATIONS: Final = "ng_agent_observations"
PERF: Final = "ng_perf"


def rollout_key(body: Mapping[str, Any]) -> str | None:
    """The capture key of a flat run body: its own rollout id, else ``<task>-<rollout>``, with ``-a<N>`` for a repeated attempt.

    None when the body has neither. Raises ValueError when its own id is not well formed: it is never rewritten, the caller could not
    find it again.
    """
    explicit = body.get(ROLLOUT_ID_KEY)
    if explicit is not None:
        if not isinstance(explicit, str) or not ROLLOUT_ID.fullmatch(explicit):
            raise ValueError(
                f"{ROLLOUT_ID_KEY} must start with a letter or digit and hold letters, digits, '.', '_' and '-' only: {explicit!r}"
            )
        key = explicit
    else:
        task, rollout = body.get(TASK_INDEX), body.get(ROLLOUT_INDEX)
        if task is None or rollout is None:
            return None
        key = f"{task}-{rollout}"
    attempt = int(body.get(ATTEMPT_INDEX) or 0)
    return f"{key}-a{attempt}" if attempt > 0 else key
