"""Values that were left open: ``???``, and interpolations that lead nowhere (contract-config 1.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_compose.config.errors import ConfigInterpolationError, ConfigMissingValuesError
from gym_compose.config.interpolation import MISSING, Tree, is_interpolation
from gym_compose.config.model import KeyPath


def missing_paths(node: Any, path: str = "") -> Iterator[str]:
    """The dotted path of every ``???`` below ``node``, list indices in brackets."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from missing_paths(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from missing_paths(value, f"{path}[{index}]")
    elif isinstance(node, str) and node == MISSING:
        yield path


def refuse_missing(data: dict[Any, Any]) -> None:
    """Raise ConfigMissingValuesError listing every open value, with overrides for the first three."""
    paths = list(missing_paths(data))
    if paths:
        examples = " ".join(f"++{path}=<value>" for path in paths[:3])
        raise ConfigMissingValuesError(
            f"{len(paths)} required value(s) are still '???' after merging: {', '.join(paths)}.",
            hint=f"Set them in a config file, in env.yaml or on the command line: {examples}",
            details=tuple(paths),
        )


def interpolated_paths(node: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every leaf below ``node`` that is an interpolation."""
    for step, value in _children(node):
        yield from interpolated_paths(value, (*path, step))
    if is_interpolation(node):
        yield path


def fill_open(tree: Tree, text: str) -> None:
    """Put ``text`` where a value is open, so that a listing can tell what a config declares without what only a run has.

    Keys of an API, endpoints, variables of the environment: who lists needs none of them (contract-data 3.8).
    """
    for path in list(_open_paths(tree.data)):
        tree.put(path, text)
    for path in list(interpolated_paths(tree.data)):
        try:
            tree.at(path)
        except ConfigInterpolationError:
            tree.put(path, text)


def _open_paths(node: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    for step, value in _children(node):
        yield from _open_paths(value, (*path, step))
    if isinstance(node, str) and node == MISSING:
        yield path


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, dict):
        yield from node.items()
    elif isinstance(node, list):
        yield from enumerate(node)
