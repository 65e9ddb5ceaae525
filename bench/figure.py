"""One measured figure, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """``value`` in ``unit``; ``at_most`` is the target (None: printed only), ``peer`` NeMo Gym's figure with where it is from."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    peer: float | None = None
    note: str = ""

    @property
    def met(self) -> bool:
        return self.at_most is None or self.value <= self.at_most

    @property
    def ratio(self) -> float | None:
        """The peer's figure divided by ours: how many times less we take."""
        return self.peer / self.value if self.peer is not None and self.value > 0 else None


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
            f"{figure.value:.3g} {figure.unit}",
            "" if figure.at_most is None else f"≤ {figure.at_most:g} {figure.unit}",
            "" if figure.peer is None else f"{figure.peer:g} {figure.unit}",
            "" if figure.ratio is None else f"{figure.ratio:.1f}",
            "ok" if figure.met else "MISSED",
            figure.note,
        )
    console.print(table)
