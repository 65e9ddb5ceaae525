"""Streams, tables and colour."""

from __future__ import annotations

import io

import pytest

from gym_compose.cli.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "terminal", "interactive", "color"),
    [
        ({}, True, True, True),
        ({}, False, False, True),
        ({"TERM": "dumb"}, True, False, False),
        ({"NO_COLOR": "1"}, True, True, False),
        ({"NO_COLOR": ""}, True, True, True),
    ],
)
def test_what_a_terminal_takes(environ: dict[str, str], terminal: bool, interactive: bool, color: bool) -> None:
    console = Console.of(environ, io.StringIO(), Terminal() if terminal else io.StringIO())
    assert (console.interactive, console.color) == (interactive, color)


def test_a_piped_table_is_never_folded_and_has_no_trailing_blanks() -> None:
    out = io.StringIO()
    Console(out, io.StringIO()).table(("name", "path"), [("a", "x" * 500), ("[red]b[/red]", None)], title="things")
    lines = out.getvalue().splitlines()
    assert lines[0] == "things"
    assert lines[-2].split() == ["a", "x" * 500]
    assert lines[-1].split() == ["[red]b[/red]"]
    assert not any(line.endswith(" ") for line in lines)
    assert "\x1b" not in out.getvalue()


def test_no_color_on_a_terminal() -> None:
    out = Terminal()
    Console(out, io.StringIO(), color=False).table(("name",), [("a",)])
    assert "\x1b" not in out.getvalue()


def test_json_keeps_text_as_it_is() -> None:
    out = io.StringIO()
    Console(out, io.StringIO()).json({"a": "é", "b": [1]})
    assert out.getvalue() == '{\n  "a": "é",\n  "b": [\n    1\n  ]\n}\n'
