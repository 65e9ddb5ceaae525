"""From the arguments of ``gym`` to one call: which command, which override tokens, or the exit status of argparse."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.cli.command import Command
from gym_compose.cli.flags import Translation
from gym_compose.cli.parser import accepts_json, build_parser, unknown_flags
from gym_compose.config.roots import search_roots
from gym_compose.wire.errors import GymComposeError, UsageError
from gym_compose.wire.names import EXTRA_ROOTS_VARIABLE

_CONFIG_PATHS = "+config_paths=["


@dataclass(frozen=True)
class Invocation:
    """One understood command line. ``environ`` has ``--search-dir`` folded into NEMO_GYM_EXTRA_ROOTS."""

    name: str
    command: Command
    target: str
    args: argparse.Namespace
    overrides: tuple[str, ...]
    cwd: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> bool:
        return bool(getattr(self.args, "json", False))

    @property
    def verbose(self) -> bool:
        return bool(getattr(self.args, "verbose", False))


@dataclass(frozen=True)
class Stop:
    """The command line ends here: help, version or a usage error. The texts are what goes to stdout and stderr."""

    exit_status: int
    stdout: str = ""
    stderr: str = ""
    version: bool = False
    json: bool = False
    overrides: tuple[str, ...] = ()


def translate(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    roots: Sequence[Path] = (),
    last: Sequence[Path] = (),
    prog: str = "gym",
) -> Invocation | Stop:
    """Parse ``argv`` (without the program's name). ``roots`` are searched before ``cwd``, ``last`` after it: install roots, ours.

    Selectors become files here, so this reads the file system below the search roots and nothing else.
    """
    parser = build_parser(prog)
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return _translate(parser, tuple(argv), cwd, environ, _Places(roots, last))
    except SystemExit as stop:
        return Stop(stop.code if isinstance(stop.code, int) else 1, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class _Places:
    first: Sequence[Path]
    last: Sequence[Path]


def _translate(
    parser: argparse.ArgumentParser, argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str], places: _Places
) -> Invocation | Stop:
    args, extras = parser.parse_known_args(list(argv))
    here: argparse.ArgumentParser = args.parser
    wrong = unknown_flags(here, extras)
    if wrong:
        here.error(wrong)
    if args.version:
        return Stop(0, version=True, json=args.json, overrides=tuple(extras))
    command: Command | None = args.command
    if command is None:
        here.print_help()
        return Stop(1, stdout=here.format_help())
    if args.json and not accepts_json(here):
        here.error("--json is not supported by this command.")
    searched = _with_search_dirs(environ, getattr(args, "search_dir", None))
    translation = Translation(search_roots(cwd, searched, extra=places.first, last=places.last))
    try:
        for flag in command.flags:
            flag.translate(args, translation)
        tokens = [*translation.tokens, *extras]
        target = command.target if isinstance(command.target, str) else command.target(args, tokens)
        if command.exits == "compose":
            _no_stray_words(tokens)
    except UsageError as error:
        here.error(str(error))
    lead = command.lead if isinstance(command.lead, tuple) else command.lead(args)
    overrides = _coalesce(tokens)
    if args.verbose:
        overrides = ["+verbose=true", *overrides]
    return Invocation(
        name=args.command_name,
        command=command,
        target=target,
        args=args,
        overrides=(*lead, *overrides),
        cwd=cwd,
        environ=searched,
        argv=argv,
        warnings=tuple(translation.warnings),
    )


def _with_search_dirs(environ: Mapping[str, str], directories: Sequence[str] | None) -> Mapping[str, str]:
    if not directories:
        return environ
    known = environ.get(EXTRA_ROOTS_VARIABLE)
    return {**environ, EXTRA_ROOTS_VARIABLE: os.pathsep.join([*directories, *([known] if known else [])])}


def _no_stray_words(tokens: Sequence[str]) -> None:
    for token in tokens:
        if "=" not in token and not token.startswith("~"):
            raise UsageError(f"unexpected argument {token!r}.", hint="An override has the form +key=value, ++key=value or key=value.")


def _coalesce(tokens: Sequence[str]) -> list[str]:
    """All ``+config_paths=[…]`` as one, in the order of the flags, raw ones last: Hydra takes a key once."""
    files: list[str] = []
    rest: list[str] = []
    for token in tokens:
        if token.startswith(_CONFIG_PATHS) and token.endswith("]"):
            files.extend(path for path in token[len(_CONFIG_PATHS) : -1].split(",") if path)
        else:
            rest.append(token)
    return [f"{_CONFIG_PATHS}{','.join(files)}]", *rest] if files else rest


@dataclass(frozen=True)
class ResolvedCommand:
    """What ``gym`` would do with some arguments: the names are those of NeMo Gym's functions.

    ``exit`` is argparse's status when the command line ends there (then there is no target). ``merged`` is the merged config with
    secrets hidden; it raises the config error that ended the merge, which is also ``error``. None: the command merges none.
    """

    target: str | None = None
    overrides: tuple[str, ...] = ()
    exit: int | None = None
    message: str = ""
    error: Exception | None = None
    config: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def merged(self) -> Mapping[str, Any] | None:
        if self.error is not None:
            raise self.error
        return self.config


def resolve_command(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    environ: Mapping[str, str],
    roots: Sequence[str | os.PathLike[str]] = (),
    install_root: str | os.PathLike[str] | None = None,
) -> ResolvedCommand:
    """The function that ``gym ARGV`` would call, its overrides and the merged config, or the exit status.

    ``argv`` is without the program's name; ``roots`` are searched before ``cwd`` and ``install_root`` after it, as in
    ``resolve_config``. Starts nothing and prints nothing.
    """
    last = () if install_root is None else (Path(install_root),)
    found = translate(argv, cwd=Path(cwd), environ=environ, roots=[Path(root) for root in roots], last=last)
    if isinstance(found, Stop):
        if found.version:
            return ResolvedCommand("version", (*(("+json=true",) if found.json else ()), *found.overrides))
        return ResolvedCommand(exit=found.exit_status, message=found.stderr)
    if not found.command.parses:
        return ResolvedCommand(found.target, found.overrides)
    from gym_compose.config import resolve_config

    warnings: list[str] = []
    try:
        config = resolve_config(
            found.overrides, cwd=cwd, environ=found.environ, roots=roots, install_root=install_root, hide_secrets=True, warnings=warnings
        )
    except GymComposeError as error:
        return ResolvedCommand(found.target, found.overrides, error=error, warnings=(*found.warnings, *warnings))
    return ResolvedCommand(found.target, found.overrides, config=config, warnings=(*found.warnings, *warnings))
