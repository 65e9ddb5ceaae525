"""``python -m gym_compose.controller --document FILE [--secret FILE]``: the head server. Exits 0 on SIGINT and SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gym_compose.controller.document import read_document, read_secret
from gym_compose.controller.head import serve
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.settings import Settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the head server; the exit code of the error's class when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m gym_compose.controller", description="The head server of a deployment.")
    parser.add_argument("--document", type=Path, required=True, help="the head document (JSON)")
    parser.add_argument("--secret", type=Path, help="the values that are masked in it (JSON)")
    arguments = parser.parse_args(argv)
    try:
        asyncio.run(_run(arguments.document, arguments.secret, Settings.from_environ(os.environ)))
    except GymComposeError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


async def _run(document: Path, secret: Path | None, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(read_document(document), read_secret(secret), settings, stop, log=lambda line: print(line, flush=True))


if __name__ == "__main__":
    sys.exit(main())
