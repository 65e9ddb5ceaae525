"""The walk over ``config_paths``: which files are loaded, and in which order they are merged (contract-config 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_compose.config.aliases import config_path_alias
from gym_compose.config.documents import Document, load_document
from gym_compose.config.errors import ConfigPathNotFoundError, MalformedConfigPathsError
from gym_compose.config.interpolation import interpolation_error, is_interpolation
from gym_compose.config.roots import find_file

CONFIG_PATHS = "config_paths"


@dataclass(frozen=True)
class Includes:
    """``entries``: the final value of ``config_paths``, in order of discovery. ``documents``: the files in merge order."""

    entries: tuple[str, ...]
    documents: tuple[Document, ...]
    notices: tuple[str, ...] = ()


@dataclass
class _Node:
    """An entry of the walk and what it was the first to include."""

    entry: str
    document: Document
    children: list[int] = field(default_factory=list)


def walk_includes(entries: Sequence[str], roots: Sequence[Path], load: Callable[[Path, str], Document] = load_document) -> Includes:
    """Load ``entries`` and everything that they include.

    Breadth first: an included entry whose text is in the list already is not loaded again and stays with whoever named it first, so an
    includer overrides what it was credited with, and only that (rules 6 and 9). A cycle ends by the same rule.
    Raises ConfigPathNotFoundError, MalformedConfigPathsError, ConfigFileError, ConfigInterpolationError.
    """
    names = list(entries)
    final = list(entries)
    nodes: list[_Node] = []
    pending: dict[int, int] = {}
    repeated: list[str] = []
    notices: list[str] = []
    position = 0
    while position < len(names):
        document, canonical = _load(names[position], roots, load, notices)
        if canonical is not None:
            names[position] = final[position] = canonical
        nodes.append(_Node(names[position], document))
        if position in pending:
            nodes[pending[position]].children.append(position)
        for included in included_entries(document):
            if included in names:
                repeated.append(included)
            else:
                pending[len(names)] = position
                names.append(included)
                final.append(included)
        position += 1
    if repeated:
        listed = ", ".join(dict.fromkeys(repeated))
        notices.append(
            f"Included more than once, loaded once: {listed}. To use one config for two servers, give the second a block of its own "
            "with _inherit_from or _copy."
        )
    return Includes(tuple(final), tuple(nodes[index].document for index in _merge_order(nodes, len(entries))), tuple(notices))


def checked_entries(value: Any) -> list[str]:
    """The root value of ``config_paths`` as a list of strings; null and empty values are no entries.

    Raises MalformedConfigPathsError naming the value.
    """
    if not value:
        return []
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return list(value)
    raise MalformedConfigPathsError(
        f"it has to be a list of paths, not {value!r}.", where=CONFIG_PATHS, hint="Name each file with --config, which makes the list."
    )


def included_entries(document: Document) -> list[str]:
    """What one file lists in its own ``config_paths``; interpolations see that file alone (rule 2)."""
    value = document.tree.get(CONFIG_PATHS)
    if is_interpolation(value) or (isinstance(value, list) and any(is_interpolation(entry) for entry in value)):
        try:
            value = OmegaConf.create(document.tree)[CONFIG_PATHS]
            value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException as error:
            raise interpolation_error(error, document.tree) from error
    if not value or value == "???":
        return []
    if isinstance(value, str):
        # The peer reads the text letter by letter and does not find the first one; the class of the error is the same.
        raise ConfigPathNotFoundError(
            f"'{CONFIG_PATHS}: {value}' is one text, not a list: its first entry would be '{value[0]}', which was not found.",
            where=str(document.path),
            hint=f"Write {CONFIG_PATHS}: [{value}].",
        )
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise MalformedConfigPathsError(f"{CONFIG_PATHS} has to be a list of paths, not {value!r}.", where=str(document.path))
    return list(value)


def _load(entry: str, roots: Sequence[Path], load: Callable[[Path, str], Document], notices: list[str]) -> tuple[Document, str | None]:
    path, candidates = find_file(entry, roots)
    canonical = None
    if not path.exists() and (alias := config_path_alias(entry)) is not None:
        moved, _ = find_file(alias, roots)
        if moved.exists():
            notices.append(f"The config path '{entry}' is deprecated; write '{alias}'.")
            path, canonical = moved, alias
    try:
        return load(path, entry), canonical
    except FileNotFoundError as error:
        raise ConfigPathNotFoundError(
            f"'{entry}' was not found.",
            where=CONFIG_PATHS,
            hint="A relative path starts at a --search-dir, NEMO_GYM_EXTRA_ROOTS, the working directory or an install root; "
            "never at the including file.",
            details=tuple(f"looked for {candidate}" for candidate in candidates),
        ) from error


def _merge_order(nodes: Sequence[_Node], roots: int) -> list[int]:
    """Post-order: every file after what it was credited with, subtrees contiguous, siblings as listed."""
    order: list[int] = []
    stack: list[tuple[int, bool]] = [(index, False) for index in reversed(range(roots))]
    while stack:
        index, done = stack.pop()
        if done:
            order.append(index)
        else:
            stack.append((index, True))
            stack.extend((child, False) for child in reversed(nodes[index].children))
    return order
