"""The table of ``docs/commands.md``, made from the command table: where each command is done."""

from __future__ import annotations

from collections.abc import Iterator

from gym_compose.cli.command import Command, Handed, Native
from gym_compose.cli.commands import COMMANDS


def table() -> str:
    """The Markdown table, one row a command, ours first."""
    rows = ["| command | what it does | place |", "|---|---|---|"]
    rows += [f"| `gym {name}` | {_cell(command.summary)} | {_cell(place(command))} |" for name, command in _ordered()]
    return "\n".join(rows)


def place(command: Command) -> str:
    """*native*, *handed to the peer* or *refused*, with the note or reason."""
    if isinstance(command.place, Native):
        return "native" + (f": {command.place.note}" if command.place.note else "")
    if isinstance(command.place, Handed):
        return f"handed to the peer where it is installed; else refused: {command.place.reason}"
    return f"refused: {command.place.reason}"


def _ordered() -> Iterator[tuple[str, Command]]:
    yield from sorted(COMMANDS.items(), key=lambda item: item[1].exits != "compose")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
