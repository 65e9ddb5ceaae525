"""Ids of the rows of tasksets: is each there once? (contract-data 3.5; ours: the peer does not look)."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gym_compose.tasks.digests import BUFFERED, DigestSpool


@dataclass(frozen=True, order=True)
class Place:
    """A row: the number of its dataset, and its line (from 1) there."""

    dataset: int
    line: int


@dataclass(frozen=True)
class Duplicate:
    """A task id that a later row has once more. ``further``: rows besides ``again`` whose id was there before."""

    first: Place
    again: Place
    further: int


class TaskIds:
    """The ids of a taskset's rows, to find one that two rows have. 28 bytes for a row; 128-bit digests stand for the ids."""

    _RECORD = struct.Struct(">16sIQ")

    def __init__(self, directory: Path | None = None, *, buffered: int = BUFFERED) -> None:
        self._spool = DigestSpool(self._RECORD.size, directory, buffered=buffered)

    def add(self, taskset: str, task_id: str, place: Place) -> None:
        """A row of ``taskset`` has this id. Rows are added in their order."""
        digest = hashlib.blake2b(f"{len(taskset)}:{taskset}{task_id}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._spool.add(self._RECORD.pack(digest, place.dataset, place.line))

    def duplicate(self) -> Duplicate | None:
        """The first row, in the order of the rows, whose id an earlier row has; None when all ids are unique."""
        found: tuple[Place, Place] | None = None
        count = 0
        for bucket in self._spool.buckets():
            known: dict[bytes, Place] = {}
            for record in bucket:
                digest, dataset, line = self._RECORD.unpack(record)
                place = Place(dataset, line)
                first = known.setdefault(digest, place)
                if first is not place:
                    count += 1
                    if found is None or place < found[1]:
                        found = (first, place)
        return None if found is None else Duplicate(*found, further=count - 1)

    def __enter__(self) -> TaskIds:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._spool.__exit__(kind, error, traceback)
