"""One measured figure, and the table of all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from gym_compose.wire.errors import GymComposeError


@dataclass(frozen=True)
class Figure:
    """``value`` in ``unit``; ``at_most`` or ``at_least`` is the target (neither: printed only), ``peer`` NeMo Gym's figure with where it is
    from.

    ``unmeasured`` says why there is no value here; a target is then missed.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    peer: float | None = None
    note: str = ""
    at_least: float | None = None
    unmeasured: str = ""

    @classmethod
    def missing(cls, name: str, unit: str, why: str, *, at_most: float | None = None, at_least: float | None = None) -> Figure:
        """A figure that cannot be measured here."""
        return cls(name, float("nan"), unit, at_most, at_least=at_least, unmeasured=why)

    @property
    def met(self) -> bool:
        if self.unmeasured:
            return self.at_most is None and self.at_least is None
        return (self.at_most is None or self.value <= self.at_most) and (self.at_least is None or self.value >= self.at_least)

    @property
    def said(self) -> str:
        """The value as it is printed."""
        return "not measured" if self.unmeasured else f"{self.value:.3g} {self.unit}"

    @property
    def target(self) -> str:
        bounds = ((sign, bound) for sign, bound in (("≤", self.at_most), ("≥", self.at_least)) if bound is not None)
        return " ".join(f"{sign} {bound:g} {self.unit}" for sign, bound in bounds)

    @property
    def ratio(self) -> float | None:
        """The peer's figure divided by ours: how many times less we take."""
        return self.peer / self.value if self.peer is not None and self.value > 0 else None


def used_memory(stats: Mapping[str, Any]) -> int:
    """Bytes as `docker stats` counts them: without the page cache that can be dropped (cgroup v1 and v2 name it differently)."""
    memory = stats["memory_stats"]
    detail = memory.get("stats", {})
    return int(memory["usage"]) - int(detail.get("total_inactive_file", detail.get("inactive_file", 0)))


def print_table(figures: Iterable[Figure], console: Console) -> None:
    """All figures side by side; a missed target is marked."""
    table = Table(title="gym_compose bench", title_justify="left")
    for name, justify in (
        ("figure", "left"),
        ("here", "right"),
        ("target", "right"),
        ("peer", "right"),
        ("peer / here", "right"),
        ("", "left"),
        ("note", "left"),
    ):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for figure in figures:
        table.add_row(
            figure.name,
            figure.said,
            figure.target,
            "" if figure.peer is None else f"{figure.peer:g} {figure.unit}",
            "" if figure.ratio is None else f"{figure.ratio:.1f}",
            "ok" if figure.met else "MISSED",
            figure.unmeasured or figure.note,
        )
    console.print(table)


def report(figures: Iterable[Figure]) -> int:
    """Measure and print: each figure on stderr as it comes, then the table of all that were measured. Exit code: 1 when a target is
    missed, an error's own when one ends it."""
    measured: list[Figure] = []
    code = 0
    try:
        for figure in figures:
            measured.append(figure)
            print(f"{figure.name}: {figure.said}", file=sys.stderr, flush=True)
    except GymComposeError as error:
        print(f"Error: {error}", *error.details, sep="\n  ", file=sys.stderr)
        code = error.exit_code
    print_table(measured, Console(width=170))
    missed = [figure.name for figure in measured if not figure.met]
    if missed:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return code or (1 if missed else 0)
