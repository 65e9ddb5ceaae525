"""Reading back the lines that an earlier driver wrote, the last of which may be torn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym_compose.driver.errors import OutputFailedError, ResumeError


@dataclass(frozen=True)
class Repair:
    """What is wrong with the end of a file: ``torn`` bytes from ``start`` on that are no document, or (0) a missing newline."""

    path: Path
    start: int
    torn: int

    def apply(self) -> None:
        """Cut off what is torn, or end the last line. Raises OutputFailedError."""
        try:
            with self.path.open("r+b") as file:
                if self.torn:
                    file.truncate(self.start)
                else:
                    file.seek(0, os.SEEK_END)
                    file.write(b"\n")
        except OSError as error:
            raise OutputFailedError(f"cannot be repaired: {error.strerror}", where=str(self.path)) from None

    def __str__(self) -> str:
        what = f"its last line was torn ({self.torn} bytes): cut off" if self.torn else "its last line had no end: ended"
        return f"{self.path.name}: {what}"


@dataclass(frozen=True)
class StoredLine:
    """A line with its newline, as a document. ``number`` counts from 1."""

    number: int
    text: bytes
    record: dict[str, Any]


def stored_lines(path: Path, repairs: list[Repair]) -> Iterator[StoredLine]:
    """The documents of a JSONL file as a stream; empty when there is no such file. Blank lines are passed over.

    A last line without a newline is given when it is a document; what it needs is appended to ``repairs``. Raises ResumeError (file, line)
    for any other line that is no JSON object, OutputFailedError when the file cannot be read.
    """
    position = 0
    try:
        with path.open("rb") as lines:
            for number, text in enumerate(lines, 1):
                ended = text.endswith(b"\n")
                record = _object(text)
                if record is None and not ended:
                    repairs.append(Repair(path, position, len(text)))
                    return
                if not ended:
                    repairs.append(Repair(path, position, 0))
                if record is None and text.strip():
                    raise ResumeError(
                        "not a JSON object: the file was damaged",
                        where=f"{path}, line {number}",
                        hint="Mend or remove that line; nothing was changed.",
                    )
                if record is not None:
                    yield StoredLine(number, text if ended else text + b"\n", record)
                position += len(text)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputFailedError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
