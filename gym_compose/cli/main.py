"""The entry point of ``gym`` and ``gym-compose``: understand, call, and the one place that prints errors.

Exit codes. ``gym compose``: 0 ok, 1 run failed, 2 usage, 3 config or input, 4 prerequisite, 5 build, 6 not ready, 7 incomplete,
130 interrupted (field-notes C3). Every other group: the contract's 0, 1, 2, and 130.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from gym_compose.cli.command import Handed, Native, Refused
from gym_compose.cli.console import Console
from gym_compose.cli.translate import Invocation, Stop, translate
from gym_compose.wire.errors import GymComposeError, UsageError

INTERRUPTED = 130
_BROKEN_PIPE = 141
Handler = Callable[[Invocation, Console], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an ASCII locale must not end a command at its first check mark
            stream.reconfigure(errors="backslashreplace")
    prog = "gym-compose" if Path(sys.argv[0]).name == "gym-compose" else "gym"
    try:
        return run(arguments, cwd=Path.cwd(), environ=os.environ, console=Console.of(os.environ), last=_last_roots(), prog=prog)
    except BrokenPipeError:  # the reader of our stdout has gone (`gym list … | head`): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def run(
    argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], console: Console, last: Sequence[Path] = (), prog: str = "gym"
) -> int:
    """``main`` with everything handed in. ``last`` are roots that are searched for components after ``cwd``."""
    found = translate(argv, cwd=cwd, environ=environ, last=last, prog=prog)
    if isinstance(found, Stop):
        return _stop(found, console)
    for warning in found.warnings:
        console.err(f"Warning: {warning}")
    if found.verbose:
        import logging

        logging.basicConfig(level=logging.DEBUG, stream=console.stderr)
    try:
        with _terminable():
            return _call(found, console)
    except KeyboardInterrupt:
        console.err("Interrupted.")
        return INTERRUPTED
    except GymComposeError as error:
        return show_error(error, found, console)


def show_error(error: GymComposeError, call: Invocation, console: Console) -> int:
    """Print one error and return the exit status of its class: ours on stderr, the contract's groups on stdout (contract-config 1.17)."""
    ours = call.command.exits == "compose"
    usage = isinstance(error, UsageError)
    stream = console.stderr if ours or usage or _is_hydras(error) or _is_our_json(call) else console.stdout
    lines = [f"Error: {error}", *(f"  {line}" for line in error.details)]
    print("\n".join(lines), file=stream, flush=True)
    if ours or error.exit_code == INTERRUPTED:
        return error.exit_code
    return 2 if usage else 1


def _is_our_json(call: Invocation) -> bool:
    """Whether stdout is a JSON document that NeMo Gym's command does not print: no line of ours may stand behind it."""
    return call.json and any(flag.name == "json" and flag.ours for flag in call.command.flags)


def _call(call: Invocation, console: Console) -> int:
    place = call.command.place
    if isinstance(place, Refused):
        raise GymComposeError(f"gym {call.name} is not done here: {place.reason}")
    if isinstance(place, Handed):
        from gym_compose.cli.peer import hand_over

        return hand_over(call.name, place, call.argv, console)
    return _handler(place)(call, console)


def _handler(place: Native) -> Handler:
    module, _, function = place.handler.partition(":")
    return cast("Handler", getattr(importlib.import_module(f"gym_compose.cli.{module}"), function))


def _stop(stop: Stop, console: Console) -> int:
    if stop.version:
        from gym_compose.cli.version import show_version

        show_version(console, json=stop.json)
        return 0
    if stop.stdout:
        print(stop.stdout, end="", file=console.stdout, flush=True)
    if stop.stderr:
        print(stop.stderr, end="", file=console.stderr, flush=True)
    return stop.exit_status


def _is_hydras(error: GymComposeError) -> bool:
    """Errors of the override grammar: NeMo Gym's come from Hydra, on stderr (contract-config 2.1)."""
    return type(error).__name__ == "OverrideError"


def _last_roots() -> tuple[Path, ...]:
    from gym_compose.config.roots import installed_root, last_roots

    return last_roots(installed_root())


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and a terminal that is closed (SIGHUP, unless nohup) do what Ctrl+C does: stop in order, leave nothing. (NeMo Gym's default
    action orphans its servers.)"""

    before: dict[int, Any] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            try:
                before[number] = signal.signal(number, signal.default_int_handler)
            except ValueError:  # not the main thread: whoever called us owns the signals
                break
    try:
        yield
    finally:
        for taken, handler in before.items():
            signal.signal(taken, handler)


if __name__ == "__main__":
    sys.exit(main())
