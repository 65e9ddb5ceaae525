"""What is shown while rollouts are collected: a bar on a terminal, plain lines elsewhere; and the table at the end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from gym_compose.cli.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gym_compose.wire.run import RunFailed, RunProgress, RunSummary, RunWarning


class RunDisplay(Protocol):
    """Takes the events of a driver; a context manager around the run."""

    def __call__(self, event: RunProgress | RunWarning | RunSummary | RunFailed) -> None: ...

    def __enter__(self) -> RunDisplay: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...


def describe(event: RunProgress) -> str:
    """``12/100 done, 3.4/s, ETA 0:26, reward 0.71, 2 failed (agent_run_error 2)``."""
    counts = event.counts
    parts = [f"{counts.completed + counts.failed}/{counts.requested} done", f"{event.rate:.1f}/s"]
    if event.eta_seconds is not None:
        parts.append(f"ETA {duration(event.eta_seconds)}")
    if event.mean_reward is not None:
        parts.append(f"reward {event.mean_reward:.3f}")
    if counts.failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(event.failures.items()))
        parts.append(f"{counts.failed} failed" + (f" ({kinds})" if kinds else ""))
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class PlainRun:
    """A line every ``interval`` seconds of the run, and one at its end."""

    def __init__(self, console: Console, interval: float) -> None:
        self._console = console
        self._interval = interval
        self._shown_at: float | None = None

    def __call__(self, event: RunProgress | RunWarning | RunSummary | RunFailed) -> None:
        if event.event == "warning":
            self._console.err(f"Warning: {event.text}")
        elif event.event == "progress":
            done = event.counts.completed + event.counts.failed == event.counts.requested
            if self._shown_at is None or done or event.elapsed_seconds - self._shown_at >= self._interval:
                self._shown_at = event.elapsed_seconds
                self._console.err(describe(event))

    def __enter__(self) -> PlainRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None


class BarRun:
    """A progress bar on stderr."""

    def __init__(self, console: Console) -> None:
        self._rich = console.rich(console.stderr)
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, event: RunProgress | RunWarning | RunSummary | RunFailed) -> None:
        if self._progress is None:
            return
        if event.event == "warning":
            self._progress.console.print(f"Warning: {event.text}")
        elif event.event == "progress":
            counts = event.counts
            if self._task is None:
                self._task = self._progress.add_task("", total=counts.requested)
            done = counts.completed + counts.failed
            self._progress.update(self._task, total=counts.requested, completed=done, description=describe(event))

    def __enter__(self) -> BarRun:
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(BarColumn(), TextColumn("{task.description}", markup=False), console=self._rich)
        self._progress.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.__exit__(kind, error, traceback)


def run_display(console: Console, interval: float) -> RunDisplay:
    return BarRun(console) if console.interactive else PlainRun(console, interval)


def show_summary(summary: RunSummary, console: Console, *, json: bool) -> None:
    """The table at the end on stdout: a row for each environment server, the totals, and where the files are."""
    if json:
        console.json(summary.model_dump(mode="json"))
        return
    rows = [
        (
            group.environment_server,
            group.taskset or group.agent or "",
            group.rollouts,
            group.failed,
            "" if group.mean_reward is None else f"{group.mean_reward:.4f}",
        )
        for group in summary.groups
    ]
    console.table(("environment server", "taskset or agent", "rollouts", "failed", "mean reward"), rows, title=f"run {summary.run_id}")
    counts = summary.counts
    reward = "none" if summary.mean_reward is None else f"{summary.mean_reward:.4f}"
    console.out(
        f"{counts.requested} requested: {counts.completed} completed, {counts.failed} failed, {counts.unresolved} unresolved; "
        f"mean reward {reward}; {duration(summary.elapsed_seconds)}, {summary.rate:.1f} rollouts/s"
    )
    for kind, count in sorted(summary.failures.items()):
        console.out(f"  failed: {kind} {count}")
    for kind, path in summary.files.items():
        console.out(f"{kind}: {path}")
