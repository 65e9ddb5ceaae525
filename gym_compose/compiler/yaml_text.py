"""YAML as compose reads it: every string double-quoted, every ``$`` of a value escaped, keys sorted: the same data is the same bytes.

An emitter of our own because PyYAML quotes by its YAML 1.1 rules, folds long lines and knows nothing of compose's interpolation
(field-notes B2, B4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Yaml: TypeAlias = "str | int | float | bool | Mapping[str, Yaml] | Sequence[Yaml] | None"

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}

_SIMPLE_KEY = 1000
"""YAML allows 1024 characters in a key that is not marked as one."""


def escape_dollar(text: str) -> str:
    """``text`` such that compose's interpolation gives it back: ``$`` starts a variable, ``$$`` is one ``$``."""
    return text.replace("$", "$$")


def quote(text: str) -> str:
    """``text`` as a YAML double-quoted scalar of ASCII characters. Raises ValueError for a lone surrogate, which UTF-8 cannot carry."""
    parts = ['"']
    for character in text:
        code = ord(character)
        if character in _SHORT:
            parts.append(_SHORT[character])
        elif 0x20 <= code < 0x7F:
            parts.append(character)
        elif 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"{text!r} holds a lone surrogate")
        elif code <= 0xFF:
            parts.append(f"\\x{code:02x}")
        elif code <= 0xFFFF:
            parts.append(f"\\u{code:04x}")
        else:
            parts.append(f"\\U{code:08x}")
    parts.append('"')
    return "".join(parts)


def dump_compose(document: Mapping[str, Yaml], *, heading: str = "") -> str:
    """A compose file: block style, keys sorted, all strings quoted and their ``$`` escaped. ``heading`` becomes comment lines."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    if document:
        _mapping(document, 0, lines)
    else:
        lines.append("{}")
    return "\n".join(lines) + "\n"


def _mapping(value: Mapping[str, Yaml], depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    for key in sorted(value):
        quoted = quote(key)
        if len(quoted) <= _SIMPLE_KEY:
            _entry(f"{indent}{quoted}:", value[key], depth + 1, lines)
        else:
            lines.append(f"{indent}? {quoted}")
            _entry(f"{indent}:", value[key], depth + 1, lines)


def _sequence(value: Sequence[Yaml], depth: int, lines: list[str]) -> None:
    for item in value:
        if isinstance(item, Mapping) and item:
            below: list[str] = []
            _mapping(item, depth + 1, below)
            lines.append(f"{'  ' * depth}- {below[0].lstrip(' ')}")
            lines.extend(below[1:])
        else:
            _entry(f"{'  ' * depth}-", item, depth + 1, lines)


def _entry(head: str, value: Yaml, depth: int, lines: list[str]) -> None:
    if isinstance(value, Mapping) and value:
        lines.append(head)
        _mapping(value, depth, lines)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        lines.append(head)
        _sequence(value, depth, lines)
    else:
        lines.append(f"{head} {_scalar(value)}")


def _scalar(value: Yaml) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return quote(escape_dollar(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no place in a compose file")
        text = repr(value)
        mantissa, e, exponent = text.partition("e")
        return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text  # YAML 1.1 takes ``1e+16`` for text
    if isinstance(value, Mapping):
        return "{}"
    return "[]"
