"""A driver's output, line by line: events as data, everything else as a tail for its error message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from gym_compose.project.errors import RunFailedError
from gym_compose.wire.run import RunFailed, RunProgress, RunSummary, RunWarning

RunEvent = RunProgress | RunWarning | RunSummary | RunFailed
OnEvent = Callable[[RunEvent], None]
_EVENT: TypeAdapter[RunEvent] = TypeAdapter(Annotated[RunEvent, Field(discriminator="event")])


class DriverOutput:
    """Collects what a driver says. ``last`` is its last word (RunSummary or RunFailed); ``tail`` the last lines that are no events."""

    def __init__(self, on_event: OnEvent, *, tail_lines: int, redact: Callable[[str], str]) -> None:
        self._on_event = redacted(on_event, redact)
        self._redact = redact
        self._tail: deque[str] = deque(maxlen=tail_lines)
        self.last: RunSummary | RunFailed | None = None

    @property
    def tail(self) -> tuple[str, ...]:
        return tuple(self._tail)

    def feed(self, line: str) -> None:
        """One line of the driver's stdout or stderr."""
        event = parse_event(line)
        if event is None:
            if line.strip():
                self._tail.append(self._redact(line.rstrip()))
            return
        if isinstance(event, RunSummary | RunFailed):
            self.last = event
        else:
            self._on_event(event)

    def summary(self, exit_code: int | None) -> RunSummary:
        """The run's summary. Raises RunFailedError when the driver failed or ended without a word."""
        if isinstance(self.last, RunSummary):
            return self.last
        if isinstance(self.last, RunFailed):
            raise RunFailedError(self._redact(self.last.message), hint=self.last.hint, exit_code=self.last.exit_code, details=self.tail)
        ended = "was stopped" if exit_code in (137, 143) else f"ended with exit code {'unknown' if exit_code is None else exit_code}"
        raise RunFailedError(
            f"the driver {ended} before it was done",
            hint="What it wrote is there: the same command with --resume goes on.",
            exit_code=exit_code or 1,
            details=self.tail,
        )


def redacted(on_event: OnEvent, redact: Callable[[str], str]) -> OnEvent:
    """``on_event`` with the free text of warnings masked; all other events hold names and numbers."""

    def tell(event: RunEvent) -> None:
        on_event(event.model_copy(update={"text": redact(event.text)}) if isinstance(event, RunWarning) else event)

    return tell


def parse_event(line: str) -> RunEvent | None:
    """The event that a line holds, or None for any other text."""
    if not line.startswith("{"):
        return None
    try:
        return _EVENT.validate_python(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError):
        return None
