"""Short records of a million rows and more, grouped by digest, in bounded memory: beyond a few megabytes they go to files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from gym_compose.tasks.errors import DatasetError

BUFFERED: Final = 8_000_000
"""Bytes of records that are held before they are written."""
_BUCKETS: Final = 64


class DigestSpool:
    """Records of one size whose first byte is even over their range. Equal records share a bucket, and only one bucket is read at a time.

    ``directory``: where the files go (default TMPDIR). A context manager; its files are gone afterwards.
    """

    def __init__(self, size: int, directory: Path | None = None, *, buffered: int = BUFFERED) -> None:
        self._size = size
        self._parent = directory
        self._buffered = buffered
        self._held = 0
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._files: tempfile.TemporaryDirectory[str] | None = None

    def add(self, record: bytes) -> None:
        """Keep one record of the spool's size. Raises DatasetError when its file cannot be written."""
        self._buckets[record[0] % _BUCKETS] += record
        self._held += self._size
        if self._held >= self._buffered:
            try:
                self._spill()
            except OSError as error:
                raise DatasetError(
                    f"the digests of the rows cannot be kept: {error.strerror}",
                    where=str(self._parent or tempfile.gettempdir()),
                    hint="Free space there, or set TMPDIR to another directory.",
                ) from error

    def buckets(self) -> Iterator[Iterator[bytes]]:
        """The records, bucket by bucket; within one, in the order they were added."""
        for number, held in enumerate(self._buckets):
            yield self._records(number, held)

    def _records(self, number: int, held: bytearray) -> Iterator[bytes]:
        size = self._size
        path = self._path(number)
        data = (path.read_bytes() if path is not None and path.exists() else b"") + held
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="gym-compose-digests-", dir=self._parent)
        for number, held in enumerate(self._buckets):
            path = self._path(number)
            if held and path is not None:
                with path.open("ab") as file:
                    file.write(held)
                held.clear()
        self._held = 0

    def _path(self, number: int) -> Path | None:
        return None if self._files is None else Path(self._files.name) / str(number)

    def __enter__(self) -> DigestSpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._files is not None:
            self._files.cleanup()
            self._files = None
