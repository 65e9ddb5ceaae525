"""The journal of a run: each attempt has an id and stands here before its request leaves.

One JSON document a line, ``<stem>_journal.jsonl``:

    {"event": "run", "run_id": …, "requested": …, "request": {…}, "manifest": {…}, "at": …}
    {"event": "sent", "attempt_id": "<run>-<n>", "task": 3, "rollout": 0, "attempt": 0, "server": …, "at": …}
    {"event": "ended", "attempt_id": …, "outcome": "completed|failed|dropped|cancelled|retried", "at": …}

A resume appends a ``run`` line of its own. An attempt that was sent and has not ended before the next one was in flight when its driver
died. ``at`` is in epoch seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from gym_compose.driver.errors import OutputFailedError, ResumeError
from gym_compose.driver.manifest import RunManifest
from gym_compose.driver.output import LineFile
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.run import RunRequest
from gym_compose.wire.settings import Settings

SyncPolicy = Literal["always", "interval", "never"]
Ended = Literal["completed", "failed", "dropped", "cancelled", "retried"]


def sync_policy(settings: Settings) -> SyncPolicy:
    """``settings.journal_fsync``. Raises InvalidInputError."""
    for policy in get_args(SyncPolicy):
        if settings.journal_fsync == policy:
            return policy  # type: ignore[no-any-return]  # get_args is untyped
    raise InvalidInputError(
        f"{settings.journal_fsync!r} is none of {', '.join(get_args(SyncPolicy))}", where="environment variable GYM_COMPOSE_JOURNAL_FSYNC"
    )


def run_line(run_id: str, requested: int, request: RunRequest, manifest: RunManifest, at: float) -> dict[str, Any]:
    """What a run was asked and what it is made of."""
    asked, made_of = request.model_dump(mode="json"), manifest.model_dump(mode="json")
    return {"event": "run", "run_id": run_id, "requested": requested, "request": asked, "manifest": made_of, "at": at}


class JournalReader:
    """What a resume wants to know of a journal, line by line: the first run, and how many attempts a death has cut off (``lost``)."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.manifest: RunManifest | None = None
        self._open: set[str] = set()

    def read(self, line: Mapping[str, Any]) -> None:
        """Take one line. Raises ResumeError when it is the first of a journal and not one of ours."""
        event = line.get("event")
        if event == "run":
            self._open.clear()
            if self.run_id is None:
                self._first(line)
        elif event == "sent":
            self._open.add(str(line.get("attempt_id")))
        elif event == "ended":
            self._open.discard(str(line.get("attempt_id")))

    def _first(self, line: Mapping[str, Any]) -> None:
        try:
            self.manifest = RunManifest.model_validate(line.get("manifest"))
        except ValidationError:
            raise ResumeError(
                "the journal does not say what its run was made of",
                hint="Another version of gym_compose wrote it: start anew with --overwrite, or another --output.",
            ) from None
        self.run_id = str(line.get("run_id"))

    @property
    def lost(self) -> int:
        """Attempts of the last driver that have not ended."""
        return len(self._open)


class Journal:
    """Writes the journal. A ``sent`` line is with the kernel when its call returns, so it survives the death of this process; an
    ``ended`` one is there with the next, or a moment later: what is in the results says as much.

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
        self._flushing = False
        self._failed: OutputFailedError | None = None

    async def sent(self, task: int, rollout: int, attempt: int, server: str) -> str:
        """Note an attempt that is about to leave; its id. Raises OutputFailedError, also for earlier lines."""
        if self._failed is not None:
            raise self._failed
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
        """Note what became of an attempt, after its record was written. Needs a running loop."""
        self._file.defer({"event": "ended", "attempt_id": attempt_id, "outcome": outcome, "at": self._now()})
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        try:
            self._file.flush()
        except OutputFailedError as error:
            self._failed = error

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
        """Write what is left, sync (unless under ``never``) and close. Raises OutputFailedError; closed it is all the same."""
        try:
            self._flush()
            if self._policy != "never":
                self._file.sync()
        finally:
            self._file.close()
