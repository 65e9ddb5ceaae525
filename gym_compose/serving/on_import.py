"""A call when a module is imported, whoever imports it and whenever: how a process is prepared for code that is not ours.

Standard library only: the interpreter of every subprocess of a peer's server imports it at its start (``peer_site``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def on_import(name: str, call: Callable[[ModuleType], None]) -> None:
    """Have ``call(module)`` right after the module ``name`` has run; at once when it is imported already."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder(MetaPathFinder):
    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._call)
        return spec


class _Loader(Loader):
    """The module's own loader, and one call more."""

    def __init__(self, inner: Loader, call: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._call = call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._call(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)  # get_source for tracebacks, get_filename, …
