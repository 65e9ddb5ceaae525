"""Counters and an index over many rows, in flat arrays.

A dict with 200,000 small keys takes 25 to 36 MB, half of what a driver takes altogether; these take 4 to 5 MB.
"""

from __future__ import annotations

from array import array

_FIRST = 1024
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: spreads keys that count up over the whole table (Knuth, 6.4)
_MASK = 2**64 - 1
_SLACK = 2**18


class IndexTable:
    """Keys of 64 bits to numbers below 2**32 - 1: open addressing with linear probing."""

    def __init__(self) -> None:
        self._used = 0
        self._allocate(_FIRST)

    def _allocate(self, slots: int) -> None:
        self._shift = 64 - slots.bit_length() + 1
        self._keys = array("Q", bytes(8 * slots))
        self._values = array("I", bytes(4 * slots))  # the number plus one; 0 is a free slot

    def __len__(self) -> int:
        return self._used

    def setdefault(self, key: int, number: int) -> int:
        """The number of ``key``, which is ``number`` when the key is new."""
        slot = self._slot(key)
        found = self._values[slot]
        if found:
            return found - 1
        self._keys[slot] = key
        self._values[slot] = number + 1
        self._used += 1
        if self._used * 5 > len(self._keys) * 4:
            self._grow()
        return number

    def get(self, key: int) -> int | None:
        """The number of ``key``; None when it has none."""
        found = self._values[self._slot(key)]
        return found - 1 if found else None

    def _slot(self, key: int) -> int:
        keys, values = self._keys, self._values
        slot = (key * _GOLDEN & _MASK) >> self._shift
        last = len(keys) - 1
        while values[slot] and keys[slot] != key:
            slot = slot + 1 if slot < last else 0
        return slot

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._allocate(2 * len(keys))
        for key, value in zip(keys, values, strict=True):
            if value:
                slot = self._slot(key)
                self._keys[slot] = key
                self._values[slot] = value


class PairTable:
    """(task, rollout) to a number, as IndexTable; pairs of any whole numbers, the usual ones without loss of memory."""

    def __init__(self) -> None:
        self._usual = IndexTable()
        self._odd: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._usual) + len(self._odd)

    def setdefault(self, task: int, rollout: int, number: int) -> int:
        """The number of the pair, which is ``number`` when the pair is new."""
        if 0 <= task < 2**32 and 0 <= rollout < 2**32:
            return self._usual.setdefault(task << 32 | rollout, number)
        return self._odd.setdefault((task, rollout), number)

    def get(self, task: int, rollout: int) -> int | None:
        """The number of the pair; None when it has none."""
        if 0 <= task < 2**32 and 0 <= rollout < 2**32:
            return self._usual.get(task << 32 | rollout)
        return self._odd.get((task, rollout))


class Counters:
    """A counter for each of many indices, which mostly count up from 0."""

    def __init__(self) -> None:
        self._dense = array("I")
        self._sparse: dict[int, int] = {}

    def next(self, index: int) -> int:
        """How often this index was asked for before."""
        dense = self._dense
        if index in self._sparse or not 0 <= index < 2 * len(dense) + _SLACK:
            count = self._sparse.get(index, 0)
            self._sparse[index] = count + 1
            return count
        if index >= len(dense):
            dense.extend(array("I", bytes(4 * (index + 1 - len(dense)))))
        count = dense[index]
        dense[index] = count + 1
        return count
