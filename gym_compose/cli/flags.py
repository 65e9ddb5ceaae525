"""The kinds of flags that the command table is made of: how each is declared to argparse, and the override tokens that it becomes.

Rules of translation (contract-config 2.1): a value flag becomes ``+key=VALUE`` as it stands, so that Hydra's grammar applies to the value;
a quoted one uses JSON quoting; a switch becomes ``+key=true``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym_compose.wire.errors import UsageError


@dataclass
class Translation:
    """What flags are translated with and what comes out: search roots in, tokens and warnings out."""

    roots: Sequence[Path]
    tokens: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Flag:
    """A flag or positional. ``name`` is that of the option without dashes, or of the positional."""

    name: str
    help: str
    aliases: tuple[str, ...] = ()
    metavar: str | None = None
    ours: bool = False
    """Not in the contract: it never makes an abbreviation of a contract's flag ambiguous."""

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    def declare(self, parser: argparse._ActionsContainer) -> None:
        """Add it to a command's parser."""
        action = parser.add_argument(f"--{self.name}", *self.aliases, help=self.help, **{"dest": self.dest, **self._options()})
        action.ours = self.ours  # type: ignore[attr-defined]  # read by the parser's abbreviation rule

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        """Append the tokens of the parsed value; nothing when it was not given."""

    def _options(self) -> dict[str, Any]:
        return {} if self.metavar is None else {"metavar": self.metavar}


@dataclass(frozen=True)
class Value(Flag):
    """``--name VALUE`` to ``+key=VALUE``."""

    key: str = ""
    choices: tuple[str, ...] | None = None
    quoted: bool = False

    def _options(self) -> dict[str, Any]:
        return {"metavar": None if self.choices else "VALUE", **super()._options(), **({"choices": self.choices} if self.choices else {})}

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        value = getattr(args, self.dest)
        if value is not None:
            into.tokens.append(f"+{self.key}={json.dumps(value) if self.quoted else value}")


@dataclass(frozen=True)
class Switch(Flag):
    """``--name`` to ``+key=true``; without a key it only sets the attribute."""

    key: str = ""

    def _options(self) -> dict[str, Any]:
        return {"action": "store_true"}

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        if self.key and getattr(args, self.dest):
            into.tokens.append(f"+{self.key}=true")


@dataclass(frozen=True)
class StrictList(Flag):
    """``--name A,B`` to ``+key=["A","B"]``; an empty entry is a usage error."""

    key: str | None = None

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "type": _entries}

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        value = getattr(args, self.dest)
        if self.key and value is not None:
            into.tokens.append(f"+{self.key}={json.dumps(value, separators=(',', ':'))}")


@dataclass(frozen=True)
class LooseList(Flag):
    """``--name "A, B"`` to ``+key=["A","B"]``; empty entries are dropped."""

    key: str = ""

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        value = getattr(args, self.dest)
        if value is not None:
            items = [item.strip() for item in value.split(",") if item.strip()]
            into.tokens.append(f"+{self.key}=[{','.join(json.dumps(item) for item in items)}]")


@dataclass(frozen=True)
class ConfigFiles(Flag):
    """``--config PATH``, repeatable, to ``+config_paths=[…]``."""

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "action": "append"}

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        files = getattr(args, self.dest)
        if files:
            into.tokens.append(f"+config_paths=[{','.join(files)}]")


@dataclass(frozen=True)
class Component(Flag):
    """A named selector (``config.selectors``) to ``+config_paths=[file]``."""

    repeatable: bool = False

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "action": "append" if self.repeatable else "store"}

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        given = getattr(args, self.dest)
        if not given:
            return
        if self.name == "agent-type" and getattr(args, "no_serve", False):
            raise UsageError(
                "--agent-type cannot be combined with --no-serve: which agent runs is settled once the servers are up.",
                hint="Name a running agent with --agent.",
            )
        from gym_compose.config.selectors import select  # needs OmegaConf, which `gym --help` does not

        files = []
        for name in given if isinstance(given, list) else [given]:
            selected = select(self.name, name, into.roots)
            files.append(selected.path)
            into.warnings.extend(selected.warnings)
        into.tokens.append(f"+config_paths=[{','.join(files)}]")


@dataclass(frozen=True)
class Local(Flag):
    """A flag that the command reads itself: no override."""

    options: tuple[tuple[str, Any], ...] = ()

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), **dict(self.options)}


@dataclass(frozen=True)
class Positional(Flag):
    """A positional argument; ``key`` as in ``Value``. One that looks like an override (``+a=1``, ``a=1``, ``~a``) is passed on as one.

    Not so ``verbatim`` ones: they are what they are, as in NeMo Gym's CLI.
    """

    key: str | None = None
    quoted: bool = False
    verbatim: bool = False
    nargs: str | None = "?"
    choices: tuple[str, ...] | None = None

    def declare(self, parser: argparse._ActionsContainer) -> None:
        options: dict[str, Any] = {"help": self.help, "metavar": self.metavar, "choices": self.choices}
        if self.nargs is not None:
            options["nargs"] = self.nargs
        parser.add_argument(self.dest, **{name: value for name, value in options.items() if value is not None})

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        value = getattr(args, self.dest, None)
        if isinstance(value, list):
            into.tokens.extend(item for item in value if "=" in item)
            setattr(args, self.dest, [item for item in value if "=" not in item])
        elif value and self.nargs == "?" and ("=" in value or value.startswith("~")) and not self.verbatim:
            into.tokens.append(value)
            setattr(args, self.dest, None)
        elif value and self.key:
            into.tokens.append(f"+{self.key}={json.dumps(value) if self.quoted else value}")


@dataclass(frozen=True)
class Special(Flag):
    """A flag of one command that follows no other kind: declared and translated by two functions."""

    declare_with: Callable[[argparse._ActionsContainer], None] | None = None
    tokens: Callable[[argparse.Namespace], list[str]] | None = None

    def declare(self, parser: argparse._ActionsContainer) -> None:
        if self.declare_with is None:
            super().declare(parser)
        else:
            self.declare_with(parser)

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        if self.tokens is not None:
            into.tokens.extend(self.tokens(args))


@dataclass(frozen=True)
class Json(Flag):
    """``--json``, before or after the command. SUPPRESS: an absent trailing one must not overwrite a leading one."""

    key: str | None = "json=true"

    def _options(self) -> dict[str, Any]:
        return {"action": "store_true", "default": argparse.SUPPRESS}

    def translate(self, args: argparse.Namespace, into: Translation) -> None:
        if self.key and getattr(args, "json", False):
            into.tokens.append(f"+{self.key}")


def _entries(text: str) -> list[str]:
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entries):
        raise argparse.ArgumentTypeError("a comma-separated list must not hold empty entries")
    return entries
