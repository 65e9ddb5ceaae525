"""What is shown while rollouts are collected: a bar on a terminal, plain lines elsewhere, the events themselves with ``--json``; and the
table at the end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from gym_compose.cli.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from gym_compose.wire.run import RunFailed, RunProgress, RunSummary, RunWarning


class RunDisplay(Protocol):
    """Takes the events of a driver; a context manager around the run."""

    def __call__(self, event: RunProgress | RunWarning | RunSummary | RunFailed) -> None: ...

    def __enter__(self) -> RunDisplay: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...


_REFRESH_PER_SECOND = 4
_BAR_WIDTH = 40


def describe(event: RunProgress) -> str:
    """``12/100 done, 3.4/s, ETA 0:26, 64 in flight, 24 queued, reward 0.710, 2 failed (agent_run_error 2)``."""
    counts = event.counts
    parts = [f"{counts.completed + counts.failed}/{counts.requested} done", f"{event.rate:.1f}/s"]
    if event.eta_seconds is not None:
        parts.append(f"ETA {duration(event.eta_seconds)}")
    parts.extend(_beside(event))
    if counts.failed:
        parts.append(f"{counts.failed} failed" + (f" ({_classes(event)})" if event.failures else ""))
    return ", ".join(parts)


def queued(event: RunProgress) -> int:
    """Rollouts that were not sent yet."""
    return max(0, event.counts.unresolved - event.in_flight)


def _beside(event: RunProgress) -> list[str]:
    parts = [f"{event.in_flight} in flight", f"{queued(event)} queued"] if event.in_flight or queued(event) else []
    return [*parts, *([] if event.mean_reward is None else [f"reward {event.mean_reward:.3f}"])]


def _classes(event: RunProgress) -> str:
    return ", ".join(f"{_printable(kind)} {count}" for kind, count in sorted(event.failures.items(), key=lambda item: (-item[1], item[0])))


def _printable(kind: str) -> str:
    """A class as a server named it, without what a terminal would obey."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in kind)


def told(event: RunWarning) -> str:
    """A warning or a note as a line."""
    return f"Warning: {event.text}" if event.level == "warning" else event.text


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
            self._console.err(told(event))
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
    """On stderr: a bar with rate and time left, a line of what is under way and how it went, a line of failures by class."""

    def __init__(self, console: Console) -> None:
        self._rich = console.rich(console.stderr)
        self._live: Live | None = None

    def __call__(self, event: RunProgress | RunWarning | RunSummary | RunFailed) -> None:
        if self._live is None:
            return
        if event.event == "warning":
            self._live.console.print(told(event), markup=False)
        elif event.event == "progress":
            self._live.update(self._drawn(event))

    def __enter__(self) -> BarRun:
        from rich.live import Live

        self._live = Live(console=self._rich, refresh_per_second=_REFRESH_PER_SECOND)
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def _drawn(self, event: RunProgress) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        counts = event.counts
        done = counts.completed + counts.failed
        left = "" if event.eta_seconds is None else f"ETA {duration(event.eta_seconds)}"
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(1, counts.requested), completed=done, width=_BAR_WIDTH),
            Text(f"{done:,}/{counts.requested:,}"),
            Text(f"{event.rate:.1f}/s"),
            Text(left),
            Text(duration(event.elapsed_seconds), style="dim"),
        )
        lines: list[RenderableType] = [bar, Text(", ".join(_beside(event)))]
        if counts.failed:
            lines.append(Text(f"{counts.failed} failed: {_classes(event)}", style="red"))
        return Group(*lines)


class JsonRun:
    """Each event as one line of JSON on stderr; stdout stays for the summary."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, event: RunProgress | RunWarning | RunSummary | RunFailed) -> None:
        if event.event != "finished":  # that is the summary
            self._console.err(event.model_dump_json())

    def __enter__(self) -> JsonRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None


def run_display(console: Console, interval: float, *, json: bool = False) -> RunDisplay:
    """The display for these streams: the events with ``json``, else a bar on a terminal and a line each ``interval`` seconds elsewhere."""
    if json:
        return JsonRun(console)
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
    if rows:
        console.table(("environment server", "taskset or agent", "rollouts", "failed", "mean reward"), rows, title=f"run {summary.run_id}")
    counts = summary.counts
    reward = "none" if summary.mean_reward is None else f"{summary.mean_reward:.4f}"
    console.out(
        f"{counts.requested} requested: {counts.completed} completed, {counts.failed} failed, {counts.unresolved} unresolved; "
        f"mean reward {reward}; {duration(summary.elapsed_seconds)}, {summary.rate:.1f} rollouts/s"
    )
    for kind, count in sorted(summary.failures.items()):
        console.out(f"  failed: {_printable(kind)} {count}")
    for kind, path in summary.files.items():
        console.out(f"{kind}: {path}")
