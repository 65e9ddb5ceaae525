"""The command line as argparse sees it (contract-config 2.1): known flags are parsed, everything else is an override."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from gym_compose.cli.command import PROJECT, Command
from gym_compose.cli.commands import COMMANDS, GROUPS
from gym_compose.wire.suggestions import did_you_mean

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.+)\)")


class GymArgumentParser(argparse.ArgumentParser):
    """Adds a suggestion to wrong choices; flags of ours never make an abbreviation of a contract's flag ambiguous."""

    def error(self, message: str) -> NoReturn:
        match = _CHOICE.search(message)
        if match:
            choices = [choice.strip().strip("'") for choice in match[2].split(",")]
            hint = did_you_mean(match[1], choices)
            message = f"{message}. {hint}" if hint else message
        super().error(message)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # `--flag=--` is a value; before 3.13 argparse takes it for the end of options and gives an empty list.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            return self._get_value(action, "--")  # type: ignore[attr-defined,unused-ignore]
        return super()._get_values(action, arg_strings)  # type: ignore[misc,unused-ignore]

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # argparse's own hook for abbreviations; each tuple starts with its action (Python 3.11 to 3.14).
        found = super()._get_option_tuples(option_string)
        contract = [entry for entry in found if not getattr(entry[0], "ours", False)]
        return contract if len(found) > 1 and contract else found


def build_parser(prog: str = "gym") -> argparse.ArgumentParser:
    """The parser of all commands. Parsed arguments carry ``command_name`` (None at a group), ``command`` and ``parser`` (for errors)."""
    parser = GymArgumentParser(
        prog=prog,
        description="Run NeMo Gym configs, servers and datasets as one container per server.",
        epilog=_epilog(("gym compose up --config configs/quickstart.yaml", "gym env start --help")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--json", action="store_true", help="print JSON, where the command can")
    parser.add_argument("-v", "--verbose", action="store_true", help="log in detail, in the servers too")
    parser.set_defaults(command_name=None, command=None, parser=parser)
    top = parser.add_subparsers(metavar="COMMAND")
    groups: dict[str, Any] = {}
    for group, summary in GROUPS.items():
        inner = top.add_parser(group, help=summary, description=summary)
        inner.set_defaults(parser=inner)
        if group == "compose":  # as docker compose takes it: `gym compose -p NAME down`
            PROJECT.declare(inner)
        groups[group] = inner.add_subparsers(metavar="COMMAND")
    for name, command in COMMANDS.items():
        group, _, leaf = name.rpartition(" ")
        _add(groups[group] if group else top, name, leaf, command)
    return parser


def unknown_flags(parser: argparse.ArgumentParser, extras: Sequence[str]) -> str | None:
    """The error text for tokens that start with ``-``: overrides never do. None when there are none."""
    wrong = [token for token in extras if token.startswith("-")]
    if not wrong:
        return None
    known = [option for action in parser._actions for option in action.option_strings]
    hints = []
    for token in wrong:
        name = token.split("=", 1)[0]
        hint = did_you_mean(name, (option for option in known if option != name))
        if hint and hint not in hints:
            hints.append(hint)
    return " ".join([f"unrecognized arguments: {' '.join(wrong)}.", *hints])


def accepts_json(parser: argparse.ArgumentParser) -> bool:
    return any("--json" in action.option_strings for action in parser._actions)


def _add(subparsers: Any, name: str, leaf: str, command: Command) -> None:
    summary = command.summary[0].upper() + command.summary[1:] + "."
    parser = subparsers.add_parser(
        leaf,
        help=command.summary,
        description=summary,
        epilog=_epilog(command.examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command_name=name, command=command, parser=parser)
    # SUPPRESS: an absent trailing flag must not overwrite one given before the command.
    parser.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="log in detail, in the servers too")
    for flag in command.flags:
        flag.declare(parser)


def _epilog(examples: Sequence[str]) -> str | None:
    return "examples:\n" + "\n".join(f"  {example}" for example in examples) if examples else None
