"""One config file to one plain tree.

The dialect is OmegaConf's (YAML 1.1 with its float rule, dates stay text, duplicate keys are errors: contract-config 1.5), read by
libyaml: 251 files take 0.09 s instead of 2.85 s (platform.md). A test compares the result with OmegaConf's loader on every shipped file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gym_compose.config.errors import ConfigFileError

MAXIMUM_BYTES = 4 * 1024 * 1024
"""The largest shipped config file has 28 KB. A bigger one than this is a dataset or a log given by mistake."""
MAXIMUM_NODES = 200_000
"""Aliases are expanded when configs are merged; this bounds what a few lines of nested aliases can become."""
MAXIMUM_DEPTH = 64
"""Far more than any config has, and few enough for OmegaConf, which recurses some ten frames a level."""

_STRING_TAG = "tag:yaml.org,2002:str"
_FLOAT = re.compile(
    r"""^(?:
         [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
        |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
    re.X,
)


@dataclass(frozen=True)
class Document:
    """A parsed config file. ``entry`` is how it was named, ``path`` where it was found; ``tree`` must not be changed."""

    entry: str
    path: Path
    tree: dict[Any, Any]


class _DuplicateKeyError(yaml.constructor.ConstructorError):
    """A key that stands twice in one mapping."""

    def __init__(self, key: str, first: yaml.Mark, second: yaml.Mark) -> None:
        super().__init__("while constructing a mapping", first, f"found duplicate key {key}", second)
        self.first = first
        self.second = second


class ConfigLoader(yaml.CSafeLoader):
    """libyaml's parser with the resolvers and the duplicate rule of OmegaConf's loader."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, yaml.Mark] = {}
        for key_node, _ in node.value:
            if key_node.tag != _STRING_TAG:
                continue
            if key_node.value in seen:
                raise _DuplicateKeyError(key_node.value, seen[key_node.value], key_node.start_mark)
            seen[key_node.value] = key_node.start_mark
        return super().construct_mapping(node, deep=deep)


ConfigLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
ConfigLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in ConfigLoader.yaml_implicit_resolvers.items()
}


def parse_document(text: str, where: str) -> dict[Any, Any]:
    """The mapping that ``text`` holds; an empty document is an empty mapping.

    Raises ConfigFileError naming ``where``, line and column.
    """
    try:
        if len(text) > MAXIMUM_NODES:
            _refuse_long(text, where)
        root = yaml.load(text, Loader=ConfigLoader)
    except ConfigFileError:
        raise
    except _DuplicateKeyError as error:
        raise ConfigFileError(
            f"{error.problem} at line {error.second.line + 1}, column {error.second.column + 1}; "
            f"it stands at line {error.first.line + 1} already.",
            where=where,
            hint="Remove one of the two.",
        ) from error
    except yaml.YAMLError as error:
        raise _syntax_error(error, where) from error
    except (ValueError, OverflowError, TypeError) as error:
        raise ConfigFileError(f"a value cannot be read: {error}", where=where, hint="Quote it to make it text.") from error
    except RecursionError:
        raise ConfigFileError("it is nested too deeply", where=where, hint="A config has a few levels.") from None
    if root is None:
        return {}
    if not isinstance(root, dict):
        kind = "a list" if isinstance(root, list) else f"a single value ({type(root).__name__})"
        raise ConfigFileError(f"the document is {kind}, not a mapping", where=where, hint="A config file is a mapping of keys to blocks.")
    tree = _own(root, where, (), _Budget(MAXIMUM_NODES))
    assert isinstance(tree, dict)
    return tree


def load_document(path: Path, entry: str | None = None) -> Document:
    """Read one file. Raises FileNotFoundError when there is none, ConfigFileError for anything else that is wrong with it."""
    where = str(path)
    try:
        size = path.stat().st_size
        if size > MAXIMUM_BYTES:
            raise ConfigFileError(
                f"the file has {size / 1e6:.1f} MB; a config file has at most {MAXIMUM_BYTES / 1e6:.1f} MB",
                where=where,
                hint="Is it a dataset?",
            )
        content = path.read_bytes()
    except IsADirectoryError as error:
        raise ConfigFileError("this is a directory", where=where, hint="Name the YAML file in it.") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigFileError(f"the file cannot be read: {error.strerror or error}", where=where) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigFileError(
            f"byte {content[error.start]:#04x} at line {line} is not UTF-8", where=where, hint="Save the file as UTF-8."
        ) from error
    return Document(entry if entry is not None else where, path, parse_document(text, where))


def key_line(text: str, path: tuple[str | int, ...]) -> int | None:
    """The line (from 1) of the deepest part of ``path`` that ``text`` holds; None when it holds none of it."""
    node = yaml.compose(text, Loader=ConfigLoader)
    line = None
    for step in path:
        if isinstance(node, yaml.MappingNode) and isinstance(step, str):
            found = [(key, value) for key, value in node.value if key.value == step]
            if not found:
                break
            line, node = found[-1][0].start_mark.line + 1, found[-1][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _syntax_error(error: yaml.YAMLError, where: str) -> ConfigFileError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    if mark is None:
        return ConfigFileError(f"malformed YAML: {problem}", where=where)
    hint = "YAML does not indent with tabs; use spaces." if "\\t" in problem or "'\t'" in problem else None
    return ConfigFileError(f"malformed YAML at line {mark.line + 1}, column {mark.column + 1}: {problem}", where=where, hint=hint)


def _too_many(where: str) -> ConfigFileError:
    message = f"it holds more than {MAXIMUM_NODES} values, its aliases expanded"
    return ConfigFileError(message, where=where, hint="Is it a dataset?")


def _refuse_long(text: str, where: str) -> None:
    """Count what libyaml sees before anything is made of it: that takes a second where the values would take twenty."""
    values = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        values += isinstance(event, yaml.ScalarEvent | yaml.AliasEvent)
        if values > 2 * MAXIMUM_NODES:  # keys count here as well
            raise _too_many(where)


class _Budget:
    """How many nodes a document may still have after aliases are expanded."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.open: set[int] = set()


def _own(node: Any, where: str, path: tuple[Any, ...], budget: _Budget) -> Any:
    """A copy in which no two places share a container, checked for what OmegaConf cannot hold."""
    if len(path) > MAXIMUM_DEPTH:
        raise ConfigFileError(f"it is nested more than {MAXIMUM_DEPTH} levels deep", where=where, hint="A config has a few levels.")
    budget.nodes -= 1
    if budget.nodes < 0:
        raise _too_many(where)
    if isinstance(node, dict | list):
        if id(node) in budget.open:
            raise ConfigFileError(f"'{_dotted(path)}' holds an alias of itself", where=where)
        budget.open.add(id(node))
        copy: Any
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str | int | float | bool | bytes):
                    raise ConfigFileError(f"the key {key!r} under '{_dotted(path)}' is no text or number", where=where, hint="Quote it.")
            copy = {key: _own(value, where, (*path, key), budget) for key, value in node.items()}
        else:
            copy = [_own(value, where, (*path, index), budget) for index, value in enumerate(node)]
        budget.open.discard(id(node))
        return copy
    if node is not None and not isinstance(node, str | int | float | bool | bytes):
        raise ConfigFileError(
            f"'{_dotted(path)}' is a {type(node).__name__}, which a config cannot hold", where=where, hint="Use a list or quoted text."
        )
    return node


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(str(step) for step in path) or "(root)"
