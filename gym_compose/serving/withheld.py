"""Config values that a server reads and was not given: one line in its log for each, with what to add to the config.

A slice leaves out what a server has no business with (design decision 6), and masks the secrets of the blocks that it does hold. A server
that reads such a value gets what it got before, an error, None or the mask; the line says why.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from gym_compose.wire.slice import MASK, withheld_notice


class Withheld:
    """``names`` are top-level keys that the slice of ``instance`` does not hold."""

    def __init__(self, instance: str, names: Iterable[str]) -> None:
        self._instance = instance
        self._names = tuple(names)
        self._told: list[str] = []
        self._places: dict[int, dict[object, str]] = {}
        self._kept: list[Any] = []
        self._silent = threading.local()

    def watch(self, config: Any, plain: dict[str, Any]) -> None:
        """Notice what is looked up in ``config``, the OmegaConf mapping made of ``plain``: missing keys of ``names``, and masked values.

        The mappings stay what they are, so that a server may copy, merge and pickle them: the lookups of their class are what is wrapped,
        for these very objects. Going over all items is no reading of one.
        """
        self._places[id(config)] = {name: name for name in self._names}
        for path in _masked(plain):
            parent = config
            for step in path[:-1]:
                parent = parent[step]
            self._places.setdefault(id(parent), {})[path[-1]] = ".".join(map(str, path))
            self._kept.append(parent)
        self._kept.append(config)  # a collected object's id may be another's
        kind = import_module("omegaconf").DictConfig
        for method in ("__getitem__", "__getattr__", "__contains__", "get"):
            setattr(kind, method, self._noticing(getattr(kind, method)))
        kind.items_ex = self._unnoticed(kind.items_ex)

    def repeat(self) -> None:
        """Write the lines once more: where a log ends is where people look."""
        for name in self._told:
            self._say(name)

    def _noticing(self, lookup: Any) -> Any:
        def looked_up(mapping: Any, key: Any, *arguments: Any, **named: Any) -> Any:
            places = self._places.get(id(mapping))
            if places is not None and not getattr(self._silent, "on", False):
                name = places.get(key) if isinstance(key, str) else None
                if name is not None and name not in self._told:
                    self._told.append(name)
                    self._say(name)
            return lookup(mapping, key, *arguments, **named)

        return looked_up

    def _unnoticed(self, walk: Any) -> Any:
        def walked(mapping: Any, *arguments: Any, **named: Any) -> Any:
            before = getattr(self._silent, "on", False)
            self._silent.on = True
            try:
                return walk(mapping, *arguments, **named)
            finally:
                self._silent.on = before

        return walked

    def _say(self, name: str) -> None:
        print(withheld_notice(self._instance, name), file=sys.stderr, flush=True)


def _masked(plain: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each masked value below that stands in a mapping."""
    for key, value in plain.items() if isinstance(plain, dict) else enumerate(plain):
        if isinstance(value, dict | list):
            yield from _masked(value, (*path, key))
        elif value == MASK and isinstance(plain, dict):
            yield (*path, key)
