"""``retry_invalid_judge_responses``: rollouts whose judge gave nothing usable become failures, so that a resume runs them again
(contract-data 1.12). Other verifiers score such a reply with zero on purpose, so it is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from gym_compose.driver.errors import OutputFailedError
from gym_compose.driver.output import OutputPaths, full_or
from gym_compose.driver.record import FAILURE_CLASS
from gym_compose.driver.stored import stored_lines
from gym_compose.tasks.rows import ATTEMPT_INDEX, ROLLOUT_INDEX, TASK_INDEX

INVALID_JUDGE = "invalid_judge_response"
JUDGE_INVALID = "judge_invalid"
MIGRATED = "_ng_migrated_invalid_judge_response"
_REUSE = "reuse_cached_deliverable"
_NO_DELIVERABLE = frozenset(
    ("finish_params.json", "history.json", "history.pkl", "inprogress_history.json", "metadata.json", "log.txt", "reference_files")
)
"""Files of an agent's own in its deliverables' directory (the names are NeMo Gym's)."""


def migration_key(record: Mapping[str, Any]) -> tuple[int, Any, Any, int]:
    """What tells one migrated attempt from another: stage, task, rollout, attempt."""
    return int(record.get("stage_index") or 0), record.get(TASK_INDEX), record.get(ROLLOUT_INDEX), int(record.get(ATTEMPT_INDEX) or 0)


def as_failure(record: Mapping[str, Any]) -> dict[str, Any]:
    """The failure that such a rollout becomes; not terminal, marked as migrated."""
    failure = {key: value for key, value in record.items() if key not in ("_ng_failure_terminal", _REUSE)}
    failure[FAILURE_CLASS] = record.get(FAILURE_CLASS) or JUDGE_INVALID
    if _has_deliverable(record.get("deliverables_dir")):
        failure[_REUSE] = True
    failure[MIGRATED] = True
    return failure


def migrate(paths: OutputPaths) -> None:
    """Move them from the output to the failures file. The latter is on the disk before the former is replaced, and an attempt that is
    there already is not written again, so it may be interrupted anywhere. Raises OutputFailedError."""
    done = {migration_key(line.record) for line in stored_lines(paths.failures, []) if line.record.get(MIGRATED)}
    part = paths.rollouts.with_name(paths.rollouts.name + ".part")
    try:
        with part.open("wb") as kept, paths.failures.open("ab") as failures:
            for line in stored_lines(paths.rollouts, []):
                if not line.record.get(INVALID_JUDGE):
                    kept.write(line.text)
                elif migration_key(line.record) not in done:
                    failures.write(orjson.dumps(as_failure(line.record), option=orjson.OPT_APPEND_NEWLINE))
            for file in (failures, kept):
                file.flush()
                os.fsync(file.fileno())
        part.chmod(paths.rollouts.stat().st_mode & 0o7777)
        os.replace(part, paths.rollouts)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputFailedError(f"cannot be rewritten: {full_or(error)}", where=str(paths.rollouts)) from None


def _has_deliverable(directory: Any) -> bool:
    if not isinstance(directory, str) or not directory:
        return False
    try:
        return any(path.is_file() and path.name not in _NO_DELIVERABLE for path in Path(directory).iterdir())
    except OSError:
        return False
