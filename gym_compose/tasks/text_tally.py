"""Texts of datasets' keys: how many, and how many different ones, exactly and in bounded memory (contract-data 3.4)."""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Final

from gym_compose.tasks.digests import BUFFERED, DigestSpool

_SEEN: Final = 20_000
_SHORT: Final = 64
"""So many texts of so many characters are remembered: a label that comes again and again is kept once in a while, not each time."""


class TextTally:
    """How many texts each key of each dataset held, and how many different ones: 64-bit digests stand for the texts."""

    _RECORD = struct.Struct(">8sI")

    def __init__(self, directory: Path | None = None, *, buffered: int = BUFFERED) -> None:
        self._spool = DigestSpool(self._RECORD.size, directory, buffered=buffered)
        self._slots: dict[tuple[int, str], int] = {}
        self._totals: list[int] = []
        self._seen: set[tuple[int, str]] = set()

    def observe(self, dataset: int, key: str, text: str, times: int = 1) -> None:
        """Dataset number ``dataset`` holds ``text`` under ``key``, ``times`` times."""
        slot = self._slots.get((dataset, key))
        if slot is None:
            slot = self._slots[dataset, key] = len(self._totals)
            self._totals.append(0)
        self._totals[slot] += times
        if len(text) <= _SHORT:
            if (slot, text) in self._seen:
                return
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen.add((slot, text))
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._spool.add(self._RECORD.pack(digest, slot))

    def summaries(self) -> tuple[dict[int, dict[str, dict[str, int]]], dict[str, dict[str, int]]]:
        """(by dataset and key, by key over all datasets): ``{unique_count, total_count}``."""
        places = {slot: place for place, slot in self._slots.items()}
        apart = [0] * len(self._totals)
        together: dict[str, int] = defaultdict(int)
        for bucket in self._spool.buckets():
            keys = set()
            for record in set(bucket):
                digest, slot = self._RECORD.unpack(record)
                apart[slot] += 1
                keys.add((digest, places[slot][1]))
            for _, key in keys:
                together[key] += 1
        by_dataset: dict[int, dict[str, dict[str, int]]] = defaultdict(dict)
        totals: dict[str, int] = defaultdict(int)
        for (dataset, key), slot in self._slots.items():
            by_dataset[dataset][key] = {"unique_count": apart[slot], "total_count": self._totals[slot]}
            totals[key] += self._totals[slot]
        return by_dataset, {key: {"unique_count": together[key], "total_count": total} for key, total in totals.items()}

    def __enter__(self) -> TextTally:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._spool.__exit__(kind, error, traceback)
