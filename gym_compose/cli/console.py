"""Where a command prints: data on stdout, messages on stderr; tables and colour only where a terminal takes them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

from gym_compose.cli.messages import MessageStream

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

PIPED_WIDTH = 10_000
"""Columns of a table off a terminal: wide enough that no cell is cut, as a reader of a pipe cannot widen it."""


@dataclass(frozen=True)
class Console:
    """The two streams of a command. ``interactive``: stderr is a terminal that takes cursor movement (not TERM=dumb)."""

    stdout: TextIO
    stderr: TextIO
    interactive: bool = False
    color: bool = True

    @classmethod
    def of(cls, environ: Mapping[str, str], stdout: TextIO | None = None, stderr: TextIO | None = None) -> Console:
        """The process's streams; NO_COLOR (any value) and TERM=dumb are respected."""
        out, err = stdout or sys.stdout, stderr or sys.stderr
        dumb = environ.get("TERM") == "dumb"
        return cls(
            out, cast("TextIO", MessageStream(err)), interactive=err.isatty() and not dumb, color=not environ.get("NO_COLOR") and not dumb
        )

    def out(self, text: str = "") -> None:
        """One line of data."""
        print(text, file=self.stdout, flush=True)

    def err(self, text: str) -> None:
        """One line of message."""
        print(text, file=self.stderr, flush=True)

    def alarm(self, text: str) -> None:
        """One line of data that is not to be overlooked: red where there is colour."""
        from rich.text import Text

        self.rich().print(Text(text, style="bold red"), soft_wrap=True)

    def json(self, value: Any) -> None:
        print(json.dumps(value, indent=2, ensure_ascii=False, default=str), file=self.stdout, flush=True)

    def rich(self, stream: TextIO | None = None) -> RichConsole:
        """A rich console on ``stream`` (default: stdout)."""
        from rich.console import Console as Rich

        target = stream or self.stdout
        terminal = target.isatty()
        return Rich(
            file=target,
            no_color=not self.color,
            highlight=False,
            markup=False,
            emoji=False,
            width=None if terminal else PIPED_WIDTH,
            force_terminal=terminal and self.color,
            legacy_windows=False,
        )

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, stream: TextIO | None = None
    ) -> None:
        """A table of text. Cells are printed as they are: no markup is read in them."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
        target = stream or self.stdout
        if target.isatty():
            self.rich(target).print(table)
            return
        text = io.StringIO()
        self.rich(text).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        print("\n".join(lines).strip("\n"), file=target, flush=True)
