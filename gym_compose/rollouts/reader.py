"""Files of a run, line by line: rollouts, failures, materialized inputs. Any size; one line at a time is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym_compose.rollouts.errors import RolloutFileError
from gym_compose.wire.run_body import ROLLOUT_INDEX, TASK_INDEX


@dataclass(frozen=True)
class Line:
    """One record and where it stands: 1-based ``number``, byte ``offset``."""

    path: Path
    number: int
    offset: int
    record: dict[str, Any]

    @property
    def named(self) -> bool:
        """Whether the record says which rollout it is of."""
        return type(self.record.get(TASK_INDEX)) is int and type(self.record.get(ROLLOUT_INDEX)) is int

    @property
    def key(self) -> tuple[int, int]:
        """Task and rollout index. Raises RolloutFileError when the record has none."""
        task, rollout = self.record.get(TASK_INDEX), self.record.get(ROLLOUT_INDEX)
        if type(task) is not int or type(rollout) is not int:
            raise RolloutFileError(
                f"no {TASK_INDEX} and {ROLLOUT_INDEX}", where=f"{self.path}:{self.number}", hint="Is this a file of rollouts?"
            )
        return task, rollout


def read_lines(path: Path, *, flag: str = "", missing: bool = False) -> Iterator[Line]:
    """The records of a JSONL file. A last line that a kill has cut off is left out, blank lines are passed over.

    ``missing``: no file gives no lines. ``flag`` names the option that the file came from. Raises RolloutFileError with file and line.
    """
    named = f" ({flag})" if flag else ""
    try:
        with path.open("rb") as lines:
            offset = 0
            for number, text in enumerate(lines, 1):
                record = _record(text)
                if record is None and not text.endswith(b"\n"):
                    return
                if record is None and text.strip():
                    raise RolloutFileError("not a JSON object", where=f"{path}:{number}", hint="Mend or remove that line.")
                if record is not None:
                    yield Line(path, number, offset, record)
                offset += len(text)
    except FileNotFoundError:
        if not missing:
            raise RolloutFileError(f"there is no such file{named}", where=str(path)) from None
    except OSError as error:
        raise RolloutFileError(f"cannot be read{named}: {error.strerror}", where=str(path)) from None


def read_at(path: Path, offset: int) -> dict[str, Any]:
    """The record whose line begins at ``offset``, as ``read_lines`` has told it."""
    with path.open("rb") as lines:
        lines.seek(offset)
        record = _record(lines.readline())
    if record is None:
        raise RolloutFileError("the file changed while it was read", where=str(path))
    return record


def _record(text: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
