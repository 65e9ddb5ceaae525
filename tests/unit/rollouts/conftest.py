"""Runs as they stand on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

Records = Iterable[Mapping[str, Any]]
WriteRun = Callable[..., Path]


def lines(records: Records) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes ``<name>.jsonl`` and, where given, what stands beside it; gives the rollouts file."""

    def write(
        rollouts: Records,
        *,
        failures: Records | None = None,
        inputs: Records | None = None,
        journal: Records | None = None,
        name: str = "run",
    ) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(lines(rollouts))
        for ending, records in (("_failures", failures), ("_materialized_inputs", inputs), ("_journal", journal)):
            if records is not None:
                path.with_name(f"{name}{ending}.jsonl").write_bytes(lines(records))
        return path

    return write


def record(task: int, rollout: int, reward: float | None = None, **more: Any) -> dict[str, Any]:
    """A stored rollout."""
    scored = {} if reward is None else {"reward": reward}
    return {
        **scored,
        **more,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "a"},
        "_ng_environment_server": "e",
    }
