"""The resolved config as a JSON document of our own: plain data, text keys, and walks over it by key path."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from gym_compose.compiler.errors import ValueNotPortableError
from gym_compose.config.model import KeyPath
from gym_compose.wire.slice import MASK

_MAX_INTEGER = 2**63


def key_text(key: object) -> str:
    """A mapping key as text: slices are JSON, whose keys are (YAML's ``1:`` and ``true:`` become "1" and "true")."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


def plain(value: Any, path: KeyPath = ()) -> Any:
    """A deep copy as dicts, lists and scalars. Raises ValueNotPortableError for what JSON cannot hold."""
    if isinstance(value, Mapping):
        found = {key_text(key): plain(item, (*path, key_text(key))) for key, item in value.items()}
        if len(found) != len(value):  # ``1`` and ``"1"``
            raise ValueNotPortableError(path, value)
        return found
    if isinstance(value, list | tuple):
        return [plain(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, str):
        if not value.isascii() and not _is_unicode(value):
            raise ValueNotPortableError(path, value)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -_MAX_INTEGER <= value < 2 * _MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueNotPortableError(path, value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def normalize_paths(value: Any, paths: frozenset[KeyPath]) -> frozenset[KeyPath]:
    """``paths`` of the original config as paths of ``plain(value)``: mapping keys become text, list indices stay numbers."""
    found = set()
    for path in paths:
        node: Any = value
        steps: list[str | int] = []
        for step in path:
            if isinstance(node, Mapping):
                steps.append(key_text(step))
                node = node.get(step)
            elif isinstance(node, list | tuple) and isinstance(step, int) and step < len(node):
                steps.append(step)
                node = node[step]
            else:
                break
        else:
            found.add(tuple(steps))
    return frozenset(found)


def walk(node: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every node below and at ``node`` with its path, in document order."""
    yield path, node
    if isinstance(node, dict):
        for key, item in node.items():
            yield from walk(item, (*path, key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from walk(item, (*path, index))


def get(node: Any, path: KeyPath) -> Any:
    """The node at ``path``. Raises KeyError or IndexError."""
    for step in path:
        node = node[step]
    return node


def put(node: Any, path: KeyPath, value: Any) -> None:
    """Set the node at ``path``, whose parent exists."""
    get(node, path[:-1])[path[-1]] = value


def find(node: Any, name: str) -> KeyPath | None:
    """The path that a dotted name means. Keys may hold dots themselves; list items are named by their index."""
    if isinstance(node, dict):
        steps: list[tuple[str | int, str, Any]] = [(key, key, item) for key, item in node.items()]
    elif isinstance(node, list):
        steps = [(index, str(index), item) for index, item in enumerate(node)]
    else:
        return None
    for step, text, item in steps:
        if name == text:
            return (step,)
        if name.startswith(text + "."):
            rest = find(item, name[len(text) + 1 :])
            if rest is not None:
                return (step, *rest)
    return None


def masked(node: Any, secrets: frozenset[KeyPath], path: KeyPath = ()) -> Any:
    """A copy with every node of ``secrets`` replaced by the mask."""
    return _replace(node, path, secrets, lambda _: MASK)


def _replace(node: Any, path: KeyPath, chosen: frozenset[KeyPath], change: Callable[[Any], Any]) -> Any:
    if path in chosen:
        return change(node)
    if isinstance(node, dict):
        return {key: _replace(item, (*path, key), chosen, change) for key, item in node.items()}
    if isinstance(node, list):
        return [_replace(item, (*path, index), chosen, change) for index, item in enumerate(node)]
    return node


def canonical(value: Any) -> bytes:
    """JSON with sorted keys: what digests are taken over."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
