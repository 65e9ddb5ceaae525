"""Sources, in order, to one plain tree: OmegaConf merges (contract-config 1.5)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_compose.config.errors import ConfigError, MergeConflictError
from gym_compose.config.interpolation import Tree, is_interpolation


@dataclass(frozen=True)
class Layer:
    """One source of values. ``label`` is what a message calls it: a file's path, ``env.yaml``'s, ``command line``."""

    label: str
    tree: dict[Any, Any]


def merge_layers(layers: Sequence[Layer]) -> Tree:
    """All layers merged, later over earlier; interpolations stay text.

    Raises MergeConflictError naming the layer whose mapping meets a list or the reverse, ConfigError for a value that OmegaConf
    cannot hold.
    """
    filled = [layer for layer in layers if layer.tree]
    if not filled:
        return Tree({})
    # The configs are made here and used nowhere else, which is what unsafe_merge asks for: it does not copy them.
    configs = [_config(layer) for layer in filled]
    try:
        merged = OmegaConf.unsafe_merge(*configs)
    except (OmegaConfBaseException, TypeError) as error:
        raise _conflict(filled, error) from error
    assert isinstance(merged, DictConfig)
    return Tree(_container(merged), merged)


def merge_fragment(below: dict[Any, Any], above: dict[Any, Any], root: Tree) -> dict[Any, Any]:
    """``above`` merged over ``below``, a part of ``root``; neither is changed.

    OmegaConf decides wherever both have a value and one of them is no mapping. The rest is only put together: to make OmegaConf objects
    of whole blocks for it took a fifth of the time of the largest shipped config. A test compares with OmegaConf's own merge.
    Raises MergeConflictError.
    """
    merged = copy.deepcopy(below)
    for key, value in above.items():
        if key not in merged:
            merged[key] = copy.deepcopy(value)
        elif isinstance(value, dict) and isinstance(merged[key], dict):
            merged[key] = merge_fragment(merged[key], value, root)
        else:
            merged[key] = _contested(merged[key], value, root)
    return merged


def _contested(below: Any, above: Any, root: Tree) -> Any:
    try:
        # An interpolation that means a mapping is replaced by it before something is merged into it, so it needs its root.
        target = OmegaConf.create({"value": below}, parent=root.view if is_interpolation(below) else None)
        return _container(OmegaConf.unsafe_merge(target, OmegaConf.create({"value": above})))["value"]
    except (OmegaConfBaseException, TypeError) as error:
        raise MergeConflictError(str(error).splitlines()[0]) from error


def _config(layer: Layer) -> DictConfig:
    try:
        config = OmegaConf.create(layer.tree)
    except OmegaConfBaseException as error:
        key = f": {error.full_key}" if error.full_key else ""
        raise ConfigError(
            f"a value cannot be used: {str(error).splitlines()[0]}",
            where=f"{layer.label}{key}",
            hint="Text that holds '${' has to be a valid interpolation; write \\${ for the characters themselves.",
        ) from error
    return config


def _container(config: Any) -> dict[Any, Any]:
    container = OmegaConf.to_container(config, resolve=False)
    assert isinstance(container, dict)
    return container


def _conflict(layers: Sequence[Layer], error: Exception) -> MergeConflictError:
    """Merge again, one layer more each time, to find the one that does not fit."""
    for count in range(2, len(layers) + 1):
        try:
            OmegaConf.unsafe_merge(*(_config(layer) for layer in layers[:count]))
        except (OmegaConfBaseException, TypeError) as found:
            key = getattr(found, "full_key", None)
            what = str(found).splitlines()[0]
            return MergeConflictError(
                f"'{key}' cannot be merged with what stands there already: {what}" if key else what,
                where=layers[count - 1].label,
                hint="A mapping merges with a mapping, a list replaces a list; set the key to null first to change its kind.",
            )
    return MergeConflictError(str(error).splitlines()[0])
