"""Values that were left open: ``???`` (contract-config 1.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_compose.config.errors import ConfigMissingValuesError
from gym_compose.config.interpolation import MISSING


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
