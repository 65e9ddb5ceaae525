"""A stream for messages whose reader may go away."""

from __future__ import annotations

import io
import os
from typing import TextIO


class MessageStream(io.TextIOBase):
    """Writes to ``target`` until its reader has gone (``gym compose up 2>&1 | head``), then drops what it is given.

    Messages are advice: that nobody reads them any more must end neither a run nor, above all, the stopping of servers.
    """

    def __init__(self, target: TextIO) -> None:
        super().__init__()
        self._target = target
        self._gone = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._target.encoding

    def isatty(self) -> bool:
        return self._target.isatty()

    def fileno(self) -> int:
        return self._target.fileno()

    def write(self, text: str) -> int:
        if not self._gone:
            try:
                return self._target.write(text)
            except BrokenPipeError:
                self._lose()
        return len(text)

    def flush(self) -> None:
        if not self._gone:
            try:
                self._target.flush()
            except BrokenPipeError:
                self._lose()

    def _lose(self) -> None:
        # What stands in the target's buffer goes nowhere, so that Python does not fail on it once more when it exits.
        self._gone = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._target.fileno())
        os.close(nowhere)
