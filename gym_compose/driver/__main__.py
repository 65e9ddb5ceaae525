"""``python -m gym_compose.driver --request FILE``: one run, one JSON event a line on stdout.

Exit code: 0 when the run went through (failed rollouts included), that of the error's class, 130 when interrupted. The first SIGINT or
SIGTERM ends the run in order, the second ends it now.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
from pydantic import BaseModel, ValidationError

from gym_compose.driver.jobs import do_job
from gym_compose.driver.run import collect
from gym_compose.driver.summary import INTERRUPTED
from gym_compose.serving.loop import event_loop
from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.jobs import JOB, Job
from gym_compose.wire.run import RUN_FORMAT, RunFailed, RunRequest


class EventWriter:
    """Events to a file descriptor. When nobody reads any more (the CLI died), the run goes on without them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._open = True

    def __call__(self, event: BaseModel) -> None:
        line = memoryview(event.model_dump_json().encode() + b"\n")
        try:
            while self._open and line:
                line = line[os.write(self._fd, line) :]
        except BrokenPipeError:
            self._open = False


def read_request(path: Path) -> RunRequest | Job:
    """The request. Raises InvalidInputError when it cannot be read or is of another format."""
    try:
        document = path.read_bytes()
        if _is_job(document):
            return JOB.validate_json(document)
        request = RunRequest.model_validate_json(document)
    except OSError as error:
        raise InvalidInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "request"
        raise InvalidInputError(f"{place}: {first['msg']}", where=str(path)) from None
    if request.format != RUN_FORMAT:
        raise InvalidInputError(f"format {request.format} is not {RUN_FORMAT}", where=str(path), hint="It was made by another gym_compose.")
    return request


def _is_job(document: bytes) -> bool:
    """A run has no field of this name; what is no JSON is complained of by whoever validates it."""
    try:
        parsed = orjson.loads(document)
    except orjson.JSONDecodeError:
        return False
    return isinstance(parsed, dict) and "job" in parsed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the driver."""
    parser = argparse.ArgumentParser(prog="python -m gym_compose.driver", description="Collect the rollouts of one request.")
    parser.add_argument("--request", type=Path, required=True, help="the run request (JSON)")
    arguments = parser.parse_args(argv)
    write = EventWriter(sys.stdout.fileno())
    try:
        with asyncio.Runner(loop_factory=event_loop) as runner:
            return runner.run(_run(read_request(arguments.request), write))
    except GymComposeError as error:
        message = "\n  ".join((f"{error.where}: {error.message}" if error.where else error.message, *error.details))
        write(RunFailed(message=message, hint=error.hint, exit_code=error.exit_code))
        return error.exit_code
    except asyncio.CancelledError:
        write(RunFailed(message="interrupted", exit_code=INTERRUPTED))
        return INTERRUPTED


async def _run(request: RunRequest | Job, write: EventWriter) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()

    def asked_to_stop() -> None:
        if stop.is_set() and running is not None:
            running.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop)
    try:
        summary = await (collect(request, write, stop) if isinstance(request, RunRequest) else do_job(request, write, stop))
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # uvloop's close leaves them (0.23)
    return summary.exit_code


if __name__ == "__main__":
    sys.exit(main())
