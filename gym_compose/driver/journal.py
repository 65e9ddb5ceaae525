"""The journal of a run: each attempt has an id and stands here before its request leaves.

One JSON document a line, ``<stem>_journal.jsonl``:

    {"event": "run", "run_id": …, "requested": …, "request": {…}, "at": …}
    {"event": "sent", "attempt_id": "<run>-<n>", "task": 3, "rollout": 0, "attempt": 0, "server": …, "at": …}
    {"event": "ended", "attempt_id": …, "outcome": "completed|failed|dropped|cancelled", "at": …}

An attempt that was sent and has not ended was in flight when the driver died. ``at`` is in epoch seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from gym_compose.driver.output import LineFile
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.settings import Settings

SyncPolicy = Literal["always", "interval", "never"]
Ended = Literal["completed", "failed", "dropped", "cancelled"]


def sync_policy(settings: Settings) -> SyncPolicy:
    """``settings.journal_fsync``. Raises InvalidInputError."""
    for policy in get_args(SyncPolicy):
        if settings.journal_fsync == policy:
            return policy  # type: ignore[no-any-return]  # get_args is untyped
    raise InvalidInputError(
        f"{settings.journal_fsync!r} is none of {', '.join(get_args(SyncPolicy))}", where="environment variable GYM_COMPOSE_JOURNAL_FSYNC"
    )


class Journal:
    """Writes the journal. A line is with the kernel when a call returns, so it survives the death of this process.

    Against the death of the machine: under ``always``, ``sent`` returns when the line is on the disk (waiting callers share one
    fsync); under ``interval`` journal and results are synced once a period by ``keep_synced``; under ``never`` the kernel decides.
    """

    def __init__(self, path: Path, run_id: str, policy: SyncPolicy, now: Callable[[], float]) -> None:
        self._file = LineFile(path)
        self._run_id = run_id
        self._policy = policy
        self._now = now
        self._attempts = 0
        self._synced = 0
        self._syncing = asyncio.Lock()

    def begin(self, requested: int, request: dict[str, Any]) -> None:
        """The first line: what the run was asked."""
        line = {"event": "run", "run_id": self._run_id, "requested": requested, "request": request, "at": self._now()}
        self._file.append(line)

    async def sent(self, task: int, rollout: int, attempt: int, server: str) -> str:
        """Note an attempt that is about to leave; its id."""
        attempt_id = f"{self._run_id}-{self._attempts}"
        self._attempts += 1
        self._file.append(
            {
                "event": "sent",
                "attempt_id": attempt_id,
                "task": task,
                "rollout": rollout,
                "attempt": attempt,
                "server": server,
                "at": self._now(),
            }
        )
        if self._policy == "always":
            await self._commit()
        return attempt_id

    def ended(self, attempt_id: str, outcome: Ended) -> None:
        """Note what became of an attempt, after its record was written."""
        self._file.append({"event": "ended", "attempt_id": attempt_id, "outcome": outcome, "at": self._now()})

    async def _commit(self) -> None:
        wanted = self._file.lines
        while self._synced < wanted:
            async with self._syncing:
                if self._synced < wanted:
                    reached = self._file.lines
                    await asyncio.to_thread(self._file.sync)
                    self._synced = reached

    async def keep_synced(self, results: Sequence[LineFile], seconds: float) -> None:
        """Under ``interval``: sync journal and results every ``seconds``, until cancelled."""
        while self._policy == "interval":
            await asyncio.sleep(seconds)
            for file in (*results, self._file):
                await asyncio.to_thread(file.sync)

    def close(self) -> None:
        """Sync (unless under ``never``) and close."""
        if self._policy != "never":
            self._file.sync()
        self._file.close()
