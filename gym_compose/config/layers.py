"""The sources of a config, read and in order: files, env.yaml, the caller's initial values, overrides (contract-config 1.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.config.documents import Document, load_document
from gym_compose.config.includes import CONFIG_PATHS, checked_entries, walk_includes
from gym_compose.config.interpolation import MISSING, is_interpolation
from gym_compose.config.merge import Layer, merge_layers
from gym_compose.config.overrides import compose_overrides
from gym_compose.config.roots import ENVIRONMENT_FILE, find_file

Overrides = Sequence[str] | Mapping[str, Any]
COMMAND_LINE = "command line"
INITIAL = "initial config"


@dataclass(frozen=True)
class Sources:
    """Everything that goes into one merge, lowest first. The trees are not to be changed."""

    files: tuple[Document, ...]
    """In merge order."""
    environment_file: Document | None
    initial: dict[Any, Any]
    overrides: dict[Any, Any]
    entries: tuple[str, ...]
    """What ``config_paths`` becomes: all entries in order of discovery."""
    notices: tuple[str, ...]

    @property
    def below(self) -> tuple[Layer, ...]:
        """The layers of the files and env.yaml."""
        layers = [Layer(str(document.path), document.tree) for document in self.files]
        if self.environment_file is not None:
            layers.append(Layer(str(self.environment_file.path), self.environment_file.tree))
        return tuple(layers)


def read_sources(
    overrides: Overrides, *, roots: Sequence[Path], initial: Mapping[str, Any] | None = None, environment_file: bool = True
) -> Sources:
    """Compose the overrides and read env.yaml and every config file, from ``roots`` only.

    Without ``environment_file`` env.yaml is left out: a manifest is checked against what the files of a workload say.
    ``config_paths`` itself is taken from the highest source that has it; it replaces, never extends, that of a lower one.
    Raises OverrideError and what ``walk_includes`` raises.
    """
    composed = compose_overrides(overrides)
    start = compose_overrides(initial or {})
    found, _ = find_file(ENVIRONMENT_FILE, roots)
    document = load_document(found, ENVIRONMENT_FILE) if environment_file and found.exists() else None
    entries = _root_entries(document, start, composed)
    includes = walk_includes(entries, roots)
    return Sources(includes.documents, document, start, composed, includes.entries, includes.notices)


def _root_entries(environment_file: Document | None, initial: dict[Any, Any], overrides: dict[Any, Any]) -> list[str]:
    layers = [Layer(COMMAND_LINE, overrides), Layer(INITIAL, initial)]
    if environment_file is not None:
        layers.append(Layer(str(environment_file.path), environment_file.tree))
    named = next((layer.tree[CONFIG_PATHS] for layer in layers if layer.tree.get(CONFIG_PATHS, MISSING) != MISSING), None)
    if not is_interpolation(named) and not (isinstance(named, list) and any(is_interpolation(entry) for entry in named)):
        return checked_entries(named)
    tree = merge_layers(layers[::-1])
    value = tree.value((CONFIG_PATHS,))
    if isinstance(value, list):
        value = [tree.value((CONFIG_PATHS, index)) for index in range(len(value))]
    return checked_entries(value)
