"""Which source set a key: the chain of files, env.yaml and overrides behind one value (``--explain KEY``, issue 4).

The chain follows merge order. What a block inherits, and what a composed agent was made of, comes before what is said of itself; a value
that no source gives (a port, a default, a relay) is booked on the parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from gym_compose.config.agents import AGENTS
from gym_compose.config.composition import CARRIED_OVER, Composed
from gym_compose.config.directives import COPY, INHERIT
from gym_compose.config.documents import key_line
from gym_compose.config.errors import ConfigError
from gym_compose.config.interpolation import MISSING, environment
from gym_compose.config.layers import COMMAND_LINE, INITIAL, Overrides, Sources, read_sources
from gym_compose.config.model import KeyPath
from gym_compose.config.overrides import compose_overrides, parse_override
from gym_compose.config.ports import OfflinePorts, PortAllocator
from gym_compose.config.resolve import merge_sources
from gym_compose.config.roots import search_roots

PARSER = "gym-compose"
_ABSENT: Any = object()
_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


@dataclass(frozen=True)
class Setting:
    """One source that says something about the key. ``value`` is what it wrote, interpolations as text."""

    source: str
    """A file's path, an override as given, ``initial config``, or ``gym-compose`` for what the parser fills in."""
    value: Any
    line: int | None = None
    note: str = ""
    """How it got there, or why it has no effect."""
    effective: bool = True
    last: bool = False
    """The writer of the value that is in the merged config."""

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line is not None else self.source
        return f"{'*' if self.last else ' '} {where}: {self.value!r}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Explanation:
    """The whole chain, lowest first. ``present``: the key is in the merged config. ``error``: why there is no merged config."""

    key: str
    settings: tuple[Setting, ...]
    present: bool
    value: Any = None
    error: ConfigError | None = None

    @property
    def last(self) -> Setting | None:
        return next((setting for setting in self.settings if setting.last), None)


def explain(
    overrides: Overrides,
    key: str,
    *,
    cwd: str | PathLike[str],
    environ: Mapping[str, str],
    roots: Sequence[str | PathLike[str]] = (),
    install_roots: Sequence[Path] = (),
    ports: PortAllocator | None = None,
    initial: Mapping[str, Any] | None = None,
) -> Explanation:
    """Who sets ``key`` (dotted, list indices in brackets) and who wins.

    Reads what ``resolve_config`` reads. A config that does not merge is explained as far as its sources go, with the error.
    Raises ConfigError only when the sources themselves cannot be read.
    """
    here = Path(cwd).absolute()
    path = key_path(key)
    with environment(environ):
        sources = read_sources(overrides, roots=search_roots(here, environ, extra=roots, last=install_roots), initial=initial)
        layers = _layers(sources, overrides)
        try:
            merged = merge_sources(sources, cwd=here, environ=environ, ports=ports or OfflinePorts())
        except ConfigError as error:
            return Explanation(key, tuple(_mark(list(_settings(layers, path)))), False, None, error)
    value = _lookup(merged.tree.data, path)
    settings = _mark([*_composed(layers, path, merged.composed), *_settings(layers, path)])
    last = next((setting for setting in settings if setting.last), None)
    if value is not _ABSENT and (last is None or (last.value != value and not isinstance(value, dict))):
        made = "composition" if path[:1] == ("agent_map",) and merged.composed else "default"
        note = made if last is None else "changed while parsing: composition, an alias, or a value that has to be absolute"
        settings = [replace(setting, last=False) for setting in settings]
        settings.append(Setting(PARSER, value, note=note, last=True))
    return Explanation(key, tuple(settings), value is not _ABSENT, None if value is _ABSENT else value)


def key_path(key: str) -> KeyPath:
    """``a.b[0].c`` as a path."""
    return tuple(int(step[1:-1]) if step.startswith("[") else step for step in _STEP.findall(key))


@dataclass(frozen=True)
class _Layer:
    label: str
    tree: Mapping[Any, Any]
    line: Callable[[KeyPath], int | None]


def _layers(sources: Sources, overrides: Overrides) -> tuple[_Layer, ...]:
    documents = [*sources.files, *([sources.environment_file] if sources.environment_file is not None else [])]
    layers = [_Layer(str(document.path), document.tree, _line_finder(document.path)) for document in documents]
    if sources.initial:
        layers.append(_Layer(INITIAL, sources.initial, _no_line))
    if isinstance(overrides, Mapping):
        layers.append(_Layer(COMMAND_LINE, sources.overrides, _no_line))
    else:
        layers += [_Layer(token, _alone(token), _no_line) for token in overrides]
    return tuple(layers)


def _alone(token: str) -> dict[Any, Any]:
    """The tree of one override without its fellows: an ``a=`` that changes an earlier one, or ``~a``, is read as ``++a=``."""
    override = parse_override(token)
    if override.is_delete():
        return {}
    return compose_overrides([f"++{token.lstrip('+')}"])


def _line_finder(path: Path) -> Callable[[KeyPath], int | None]:
    return lambda key: key_line(path.read_text(encoding="utf-8-sig"), key)


def _no_line(_: KeyPath) -> int | None:
    return None


def _settings(layers: Sequence[_Layer], path: KeyPath, via: str = "", seen: frozenset[KeyPath] = frozenset()) -> Iterator[Setting]:
    """Everything that the layers say about ``path``: first what blocks on the way inherit, then what is written there."""
    if path in seen:
        return
    for source, rest, directive in _inherited(layers, path):
        yield from _settings(layers, (*source, *rest), f"{directive}: {'.'.join(map(str, source))}", seen | {path})
    for layer in layers:
        value, depth = _deepest(layer.tree, path)
        if value is _ABSENT:
            continue
        notes = [via] if via else []
        effective = True
        if depth < len(path):
            notes.append(f"replaces '{'.'.join(map(str, path[:depth]))}' as a whole")
        elif isinstance(value, str) and value == MISSING:
            notes.append("??? never overwrites a value")
            effective = False
        yield Setting(layer.label, value, layer.line(path), "; ".join(notes), effective)


def _composed(layers: Sequence[_Layer], path: KeyPath, agents: Mapping[str, Composed]) -> Iterator[Setting]:
    """What is said of a composed agent under the names that it was made from: the standalone agent, then what it took over."""
    made = agents.get(str(path[0])) if path else None
    if made is None:
        return
    new, old = made.standalone, made.replaced
    block, field = path[:3] == (path[0], AGENTS, new.agent_type), path[3] if len(path) > 3 else None
    if block:
        yield from _settings(layers, (new.name, *path[1:]), f"composition: the standalone agent '{new.name}'")
    if block and (field is None or field in CARRIED_OVER):
        yield from _settings(layers, (old.name, AGENTS, old.agent_type, *path[3:]), f"composition: kept of '{old.name}'")
    elif len(path) == 1 or path[1] != AGENTS:
        yield from _settings(layers, (old.name, *path[1:]), f"composition: '{old.name}', whose place it takes")


def _inherited(layers: Sequence[_Layer], path: KeyPath) -> Iterator[tuple[KeyPath, KeyPath, str]]:
    """(source path, rest of ``path`` below it, directive) for each block on the way that inherits or copies."""
    for depth in range(1, len(path) + 1):
        found: dict[tuple[str, str], None] = {}
        for layer in layers:
            block = _lookup(layer.tree, path[:depth])
            for directive, text in ((INHERIT, "${inherit_from:"), (COPY, "${copy:")):
                if isinstance(block, Mapping) and isinstance(block.get(directive), str):
                    found[(directive, block[directive])] = None
                elif isinstance(block, str) and block.startswith(text):
                    found[(directive, block.removeprefix(text).removesuffix("}"))] = None
        for directive, source in found:
            yield tuple(source.split(".")), path[depth:], directive


def _deepest(tree: Any, path: KeyPath) -> tuple[Any, int]:
    """(what the layer puts at ``path`` or, where it puts a value that is no mapping above it, that value; at which depth)."""
    node = tree
    for depth, step in enumerate(path):
        if isinstance(node, Mapping):
            if step not in node:
                return _ABSENT, depth
            node = node[step]
        elif isinstance(node, list) and isinstance(step, int):
            if step >= len(node):
                return _ABSENT, depth
            node = node[step]
        else:
            directive = isinstance(node, str) and node.startswith("${")
            return (_ABSENT if directive else node), depth
    return node, len(path)


def _lookup(tree: Any, path: KeyPath) -> Any:
    value, depth = _deepest(tree, path)
    return value if depth == len(path) else _ABSENT


def _mark(settings: Sequence[Setting]) -> list[Setting]:
    """The last effective one is the winner."""
    last = max((index for index, setting in enumerate(settings) if setting.effective), default=None)
    return [replace(setting, last=index == last) for index, setting in enumerate(settings)]
