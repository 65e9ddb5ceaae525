"""Masking as ``gym env resolve`` does it (contract-config 2.5). It is not what decides about secrets elsewhere: see ``secrets``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gym_compose.config.interpolation import Tree
from gym_compose.config.model import KeyPath

MASK: Final = "****"
_OVERRIDE = re.compile(r"(\+{1,2})([^=]+)=(.*)", re.S)


def is_masked_key(key: Any) -> bool:
    """A key is masked when it contains ``token``, ``key`` or ``header`` in lower case; so ``max_output_tokens`` is, ``password`` is not."""
    text = str(key)
    return "token" in text or "key" in text or "header" in text


def mask(tree: Tree, resolved: dict[Any, Any]) -> None:
    """Mask ``tree`` in place. ``resolved`` is the same config with its interpolations resolved: what a masked leaf is decides how.

    Masking comes before resolving, so whatever interpolates a masked leaf gets the mask too. Mappings below a masked key are entered.
    """
    for path, value in list(_masked(tree.data, resolved, ())):
        tree.put(path, value)


def _masked(data: Any, resolved: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """(path, what goes there) of every leaf that is masked."""
    for key, value in data.items():
        meaning, here = resolved[key], (*path, key)
        if isinstance(meaning, dict):
            if isinstance(value, dict):
                yield from _masked(value, meaning, here)
        elif isinstance(meaning, list):
            if is_masked_key(key):
                yield here, [MASK] * len(meaning)
            elif isinstance(value, list):
                for index, (element, element_meaning) in enumerate(zip(value, meaning, strict=True)):
                    if isinstance(element, dict) and isinstance(element_meaning, dict):
                        yield from _masked(element, element_meaning, (*here, index))
        elif is_masked_key(key):
            yield here, MASK


def mask_overrides(tokens: Sequence[str]) -> list[str]:
    """``+k=v`` and ``++k=v`` with the value masked when the last part of the key is, for commands that are written down."""
    masked = []
    for token in tokens:
        match = _OVERRIDE.fullmatch(token)
        if match is not None and is_masked_key(match.group(2).rsplit(".", 1)[-1]):
            token = f"{match.group(1)}{match.group(2)}={MASK}"
        masked.append(token)
    return masked
