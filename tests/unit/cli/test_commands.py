"""The command table is complete, its handlers exist, and the docs page says the same."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from gym_compose.cli.command import Handed, Native, Refused
from gym_compose.cli.commands import COMMANDS, GROUPS
from gym_compose.cli.parser import build_parser
from gym_compose.cli.reference import place, table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "commands.md"
CONTRACT = {
    "list benchmarks", "list environments", "list agents", "list models", "list resources-servers", "search",
    "dataset upload", "dataset download", "dataset rm", "dataset migrate", "dataset render", "dataset collate",
    "env init", "env resolve", "env schema", "env validate", "env packages", "env test", "env publish", "env start", "env prefetch",
    "env status",
    "eval prepare", "eval run", "eval aggregate", "eval health-check", "eval export", "eval reverify", "eval profile", "eval submit",
    "eval compare",
    "dev test",
}  # fmt: skip
OURS = {"eval attach", "eval list", "eval view", "migrate environment-servers"} | {
    f"compose {verb}" for verb in ("up", "down", "ps", "logs", "config", "plan", "build", "doctor")
}


def test_every_command_of_the_contract_and_every_one_of_ours_is_in_the_table() -> None:
    assert set(COMMANDS) == CONTRACT | OURS
    assert {name.rpartition(" ")[0] for name in COMMANDS} - {""} == set(GROUPS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_has_a_place_that_exists(name: str) -> None:
    command = COMMANDS[name]
    if isinstance(command.place, Native):
        module, _, function = command.place.handler.partition(":")
        handler = getattr(importlib.import_module(f"gym_compose.cli.{module}"), function)
        assert list(inspect.signature(handler).parameters) == ["call", "console"]
    else:
        assert isinstance(command.place, Handed | Refused)
        assert command.place.reason.endswith(".")


def test_the_docs_page_holds_the_table() -> None:
    text = PAGE.read_text("utf-8")
    shown = text.partition("<!-- commands -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == table()
    for name, command in COMMANDS.items():
        assert f"| `gym {name}` | " in shown
        assert place(command).split(":")[0] in ("native", "refused", "handed to the peer where it is installed; else refused")


def test_only_ours_use_our_exit_codes() -> None:
    assert {name for name, command in COMMANDS.items() if command.exits == "compose"} == {
        name for name in OURS if name.startswith("compose ")
    }


@pytest.mark.parametrize("name", ["", *GROUPS, *sorted(COMMANDS)])
def test_help_text_is_within_80_columns(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        build_parser().parse_args([*name.split(), "--help"])
    text = capsys.readouterr().out
    body = text.partition("examples:")[0]
    assert max(map(len, body.splitlines())) <= 80
    assert "-h, --help" in body
