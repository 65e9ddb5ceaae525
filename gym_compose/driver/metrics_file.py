"""``<stem>_aggregate_metrics.json``: written entry by entry out of servers' answers, none of which is ever parsed as a whole.

The groups of 200,000 rollouts are 100 MB of JSON and several times that as Python objects; as raw slices of a mapped file they cost no
memory of ours.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec
import orjson

from gym_compose.driver.errors import OutputFailedError

_STEP = b"  "
_WHOLE = frozenset(("agent_metrics", "key_metrics", "perf_summary"))

Answer = Mapping[str, msgspec.Raw]


def parse_answer(file: BinaryIO) -> Answer:
    """The top-level values of a JSON object in a file, as slices of it. Raises ValueError when it is none."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise ValueError("the answer is empty")
    return msgspec.json.decode(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), type=dict[str, msgspec.Raw])


class MetricsFile:
    """A JSON list, two spaces a level, in place of an earlier one when all of it is there. A context manager.

    ``entries`` are those that were added, without their groups. Raises OutputFailedError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._file: BinaryIO | None = None
        self.entries: list[dict[str, Any]] = []

    def __enter__(self) -> MetricsFile:
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._path)) from None
        self._write(b"[")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._file is not None
        try:
            if error is None:
                self._write(b"\n]" if self.entries else b"]")
            self._file.close()
            if error is None:
                os.replace(self._part, self._path)
        except OSError as failed:
            raise OutputFailedError(f"cannot be written: {failed.strerror}", where=str(self._path)) from None
        finally:
            self._part.unlink(missing_ok=True)

    def add(self, head: Mapping[str, Any], answer: Answer, names: tuple[str, ...]) -> None:
        """An entry: ``head``, then the values of ``names`` in the answer (null where it has none)."""
        self._write(b",\n  {" if self.entries else b"\n  {")
        entry = dict(head)
        between = b"\n"
        for name, value in head.items():
            self._write(between + _STEP * 2 + _dumps(name) + b": " + _indented(orjson.dumps(value), 2))
            between = b",\n"
        for name in names:
            raw = answer.get(name, msgspec.Raw(b"null"))
            self._write(between + _STEP * 2 + _dumps(name) + b": ")
            for piece in _pieces(raw):
                self._write(piece)
            if name in _WHOLE:
                entry[name] = orjson.loads(bytes(raw))
            between = b",\n"
        self._write(b"\n  }")
        self.entries.append(entry)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            self._file.write(data)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._path)) from None


def _pieces(raw: msgspec.Raw) -> Iterator[bytes]:
    """A value two levels deep; the elements of a list one by one."""
    if bytes(memoryview(raw)[:1]) != b"[":
        yield _indented(bytes(raw), 2)
        return
    elements: list[msgspec.Raw] = msgspec.json.decode(raw, type=list[msgspec.Raw])
    if not elements:
        yield b"[]"
        return
    between = b"[\n"
    for element in elements:
        yield between + _STEP * 3 + _indented(bytes(element), 3)
        between = b",\n"
    yield b"\n" + _STEP * 2 + b"]"


def _indented(text: bytes, level: int) -> bytes:
    # A string of JSON holds no raw newline, so each one here is orjson's.
    return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).replace(b"\n", b"\n" + _STEP * level)


def _dumps(name: str) -> bytes:
    return orjson.dumps(name)
