"""The end of a run as data: the last event, and ``<stem>_summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gym_compose.driver.output import OutputPaths
from gym_compose.driver.progress import Tally
from gym_compose.wire.errors import GymComposeError, IncompleteError
from gym_compose.wire.run import RunSummary

INTERRUPTED = 130


@dataclass(frozen=True)
class Ending:
    """How a run ended: asked to stop, by its dispatch budget, or by an error."""

    interrupted: bool = False
    error: GymComposeError | None = None
    drained: bool = False


def check_counts(tally: Tally, stored: int, failed: int) -> IncompleteError | None:
    """completed + failed + unresolved = requested, and what was counted is what was written; else the error that says the numbers."""
    counts = tally.counts()
    if counts.completed + counts.failed + counts.unresolved == counts.requested and (counts.completed, counts.failed) == (stored, failed):
        return None
    return IncompleteError(
        f"the rows do not add up: {counts.requested} requested, {counts.completed} completed ({stored} written), "
        f"{counts.failed} failed ({failed} written), {counts.unresolved} unresolved"
    )


def nothing_completed(tally: Tally) -> GymComposeError | None:
    """The error of a run in which rows came back and none of them as a rollout or a failure that is stored (contract-data 1.7 step 8)."""
    if tally.requested == 0 or tally.completed > 0:
        return None
    classes = ", ".join(f"{count} {name}" for name, count in sorted(tally.failures.items())) or "no failure was reported"
    if tally.waiting:
        classes += f"; {tally.waiting} rows were not started within dispatch_budget_s"
    hint = "The failures file says why." if tally.failures else "--resume runs them."
    return GymComposeError(f"none of {tally.requested} rollouts completed: {classes}", hint=hint)


def unresolved(tally: Tally, ending: Ending) -> dict[str, int]:
    """Why rows have no answer. A run that was asked to stop or drained says so, whatever came after."""
    not_started = "interrupted" if ending.interrupted else "dispatch_budget" if ending.drained else "run_ended"
    counts = {not_started: tally.waiting, "cancelled": tally.unstored, "not_persisted": tally.dropped}
    return {reason: count for reason, count in counts.items() if count}


def beside(summary: RunSummary) -> RunSummary:
    """As it is written: its files stand in its own directory, so they are named without it. In a container that directory has another
    path than on the host, and results are moved and copied."""
    return summary.model_copy(update={"files": {kind: Path(path).name for kind, path in summary.files.items()}})


def summarize(run_id: str, tally: Tally, paths: OutputPaths, ending: Ending, *, written: bool = True) -> RunSummary:
    """The summary; ``files`` are those that exist, its own among them unless it could not be ``written``."""
    kinds = {
        "rollouts": paths.rollouts,
        "failures": paths.failures,
        "materialized_inputs": paths.materialized,
        "aggregate_metrics": paths.aggregate,
        "journal": paths.journal,
    }
    files = {kind: str(path) for kind, path in kinds.items() if path.exists()}
    if written:
        files["summary"] = str(paths.summary)
    exit_code = INTERRUPTED if ending.interrupted else 0
    if ending.error is not None:
        exit_code = ending.error.exit_code
    return RunSummary(
        run_id=run_id,
        counts=tally.counts(),
        elapsed_seconds=round(tally.elapsed, 3),
        rate=round(tally.rate, 3),
        mean_reward=tally.mean_reward,
        failures=dict(sorted(tally.failures.items())),
        unresolved=unresolved(tally, ending),
        latency=tally.latencies.summary(),
        groups=tally.groups(),
        files=files,
        interrupted=ending.interrupted,
        error=None if ending.error is None else str(ending.error),
        exit_code=exit_code,
    )
