"""What is shown while a project comes up: a live table of its services on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from gym_compose.cli.console import Console

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from gym_compose.engine.interface import PlannedAction
    from gym_compose.wire.head import HealthReport

_SHOWN = {"create": "to create", "recreate": "to recreate", "start": "to start", "keep": "running", "remove": "to remove"}
_REFRESH_PER_SECOND = 4


class UpProgress(Protocol):
    """Told what happens; a context manager around the wait."""

    def report(self, line: str) -> None:
        """A line of an engine or builder."""

    def plan(self, actions: Sequence[PlannedAction]) -> None:
        """What is going to be done, before it is."""

    def health(self, report: HealthReport) -> None:
        """The head server's answer, each time it is asked."""

    def __enter__(self) -> UpProgress: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...


class _States:
    """Service to its state, from the plan and the head's answers. Endpoints are listed below the services once they are waited for."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.services: tuple[str, ...] = ()
        self.told: set[str] = set()

    def warnings(self, report: HealthReport) -> list[str]:
        """Those of the head that were not told yet."""
        new = [warning for warning in report.warnings if warning not in self.told]
        self.told.update(new)
        return new

    def plan(self, actions: Sequence[PlannedAction]) -> None:
        self.rows = {action.service: _SHOWN[action.action] for action in actions}
        self.services = tuple(action.service for action in actions if action.action != "remove")

    def health(self, report: HealthReport) -> list[tuple[str, str]]:
        """The (name, state) pairs that changed."""
        missing = {
            item.name: f"{item.state}: {item.detail}" if item.detail else item.state for item in (*report.waiting, *report.unreachable)
        }
        kept = {name: state for name, state in self.rows.items() if state != _SHOWN["remove"]}
        states = {**kept, **{service: missing.get(service, "ready") for service in self.services}, **missing}
        for name in states.keys() - missing.keys() - set(self.services):
            if states[name] not in _SHOWN.values():
                states[name] = "ready"
        changed = [(name, state) for name, state in states.items() if self.rows.get(name) != state]
        self.rows = states
        return changed


class PlainProgress:
    """One line for each thing that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states = _States()

    def report(self, line: str) -> None:
        self._console.err(line)

    def plan(self, actions: Sequence[PlannedAction]) -> None:
        self._states.plan(actions)
        counts = {name: sum(action.action == name for action in actions) for name in _SHOWN}
        self._console.err("plan: " + (", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing to do"))

    def health(self, report: HealthReport) -> None:
        endpoints = {item.name: item.url for item in report.waiting if item.kind == "model_endpoint"}
        for name, state in self._states.health(report):
            if state == "ready":
                self._console.err(f"{name}: ready")
            elif name in endpoints:
                self._console.err(f"{name}: {state} ({endpoints[name]})")
        for warning in self._states.warnings(report):
            self._console.err(f"Warning: {warning}")

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        return None


class LiveProgress:
    """A table that is redrawn; lines of progress run above it."""

    def __init__(self, console: Console) -> None:
        self._rich = console.rich(console.stderr)
        self._states = _States()
        self._live: Live | None = None

    def report(self, line: str) -> None:
        self._rich.print(line)

    def plan(self, actions: Sequence[PlannedAction]) -> None:
        self._states.plan(actions)
        self._draw()

    def health(self, report: HealthReport) -> None:
        if self._states.health(report):
            self._draw()
        for warning in self._states.warnings(report):
            self._rich.print(f"Warning: {warning}", markup=False)

    def __enter__(self) -> LiveProgress:
        from rich.live import Live

        self._live = Live(console=self._rich, refresh_per_second=_REFRESH_PER_SECOND, transient=False)
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("service")
        table.add_column("state")
        for name, state in self._states.rows.items():
            table.add_row(Text(name), Text(state, style="green" if state in ("ready", "running") else "yellow"))
        return table


def up_progress(console: Console) -> UpProgress:
    """The live one where stderr is a terminal that can move its cursor."""
    return LiveProgress(console) if console.interactive else PlainProgress(console)
