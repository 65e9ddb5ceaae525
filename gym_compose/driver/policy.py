"""What a run does about failures: how many it takes, what is sent again, what ends it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gym_compose.driver.errors import RolloutFailedError, TooManyFailuresError
from gym_compose.driver.progress import Tally
from gym_compose.driver.record import Outcome
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.serving.client import PeerDropped, PeerError, Reply
from gym_compose.wire.run import RunRequest
from gym_compose.wire.settings import Settings

OnServerDeath = Literal["fail", "wait"]
_LEAST_RETRIES = 10.0
_AGAIN = frozenset((429, 502, 503, 504))


@dataclass(frozen=True)
class FailurePolicy:
    """When failed rollouts end a run. ``most``: so many are taken, None is any number. ``strict``: NeMo Gym's rules (contract-data 1.11):
    a failed request ends the run unless ``to_sidecar``, a reply that breaks the protocol always does."""

    most: int | None = None
    strict: bool = False
    to_sidecar: bool = True

    @classmethod
    def of(cls, request: RunRequest, requested: int) -> FailurePolicy:
        """That of a run of ``requested`` rollouts."""
        return cls(most_failures(request.max_failures, requested), request.strict_compatibility, request.route_failures_to_sidecar)

    def check_outcome(self, outcome: Outcome) -> None:
        """Before it is stored. Raises RolloutFailedError under ``strict``."""
        if self.strict and (outcome.fault == "reply" or (outcome.fault == "request" and not self.to_sidecar)):
            raise RolloutFailedError(
                f"{outcome.failure_class}: {outcome.record.get('_ng_failure_message')}",
                where=f"task {outcome.record['_ng_task_index']}, rollout {outcome.record['_ng_rollout_index']}",
                hint="Without strict compatibility it would be a line in the failures file; route_failures_to_sidecar=true does that for "
                "failed requests.",
            )

    def check_tally(self, tally: Tally) -> None:
        """After it is stored. Raises TooManyFailuresError."""
        if self.most is not None and tally.failed > self.most:
            classes = ", ".join(f"{count} {name}" for name, count in sorted(tally.failures.items()))
            raise TooManyFailuresError(
                f"{tally.failed} of {tally.requested} rollouts failed ({classes}), more than the {self.most} that max_failures allows",
                hint="The failures file says why; --resume goes on.",
            )


def most_failures(given: int | float | None, requested: int) -> int | None:
    """``max_failures`` as a number of rollouts: an int as it is, a float below 1 as a share of ``requested``, rounded down."""
    if given is None:
        return None
    return math.floor(given * requested) if isinstance(given, float) and given < 1 else math.floor(given)


class RetryPolicy:
    """What is sent a second time. Only where that is safe: to a server that declares its episodes idempotent (``compose: {servers: {NAME:
    {idempotent_episodes: true}}}``), ``run_retries`` times a row. Altogether 10 times and ``run_retry_share`` of the rows so far: a server
    that is going down does not get all of its work twice. ``strict``: as NeMo Gym does it, after any broken connection, for ever.

    A connection that was refused is not a matter of this policy: nothing was sent over it.
    """

    def __init__(self, settings: Settings, *, strict: bool) -> None:
        self._settings = settings
        self._strict = strict
        self._left = _LEAST_RETRIES

    def row(self) -> None:
        """One more row is sent."""
        self._left += self._settings.run_retry_share

    def pause(self, server: EnvironmentServer, retried: int, what: PeerError | Reply) -> float | None:
        """Seconds until the row may be sent again, after ``retried`` times; None: it may not."""
        if self._strict:
            return self._settings.connect_retry_seconds if isinstance(what, PeerDropped) else None
        came_to_nothing = what.status in _AGAIN if isinstance(what, Reply) else isinstance(what, PeerDropped)
        if not server.idempotent or not came_to_nothing or retried >= self._settings.run_retries or self._left < 1:
            return None
        self._left -= 1
        return self._settings.run_retry_seconds * 2.0**retried
