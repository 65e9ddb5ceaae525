"""Named selectors (``--benchmark NAME``, ``--model-type NAME/FLAVOR``) to config files (contract-config 2.3, 1.13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym_compose.config.aliases import ENVIRONMENT_ALIASES, config_path_alias
from gym_compose.wire.errors import UsageError
from gym_compose.wire.suggestions import did_you_mean


class SelectorError(UsageError):
    """A selector that names no config file."""


@dataclass(frozen=True)
class Selector:
    """One selector flag: ``<tree>/NAME/[<subdirectory>/]<default flavor or NAME>.yaml``."""

    flag: str
    tree: str
    subdirectory: str = ""
    default_flavor: str | None = None
    """None: the flavor is called like the component."""
    nested: bool = False
    """``NAME/FLAVOR`` is looked for as ``<tree>/NAME/FLAVOR/config.yaml`` first."""


@dataclass(frozen=True)
class Selected:
    """The file of a selector: absolute, symbolic links resolved. ``warnings``: shadowed files, deprecated names."""

    path: str
    warnings: tuple[str, ...] = ()


SELECTORS = {
    selector.flag: selector
    for selector in (
        Selector("benchmark", "benchmarks", default_flavor="config", nested=True),
        Selector("environment", "environments", default_flavor="config", nested=True),
        Selector("resources-server", "resources_servers", "configs"),
        Selector("model-type", "responses_api_models", "configs"),
        Selector("agent-type", "responses_api_agents", "configs"),
    )
}
"""In category order: a later one wins over an earlier one, and over ``--config`` (contract-config 2.3)."""


def select(flag: str, value: str, roots: Sequence[Path]) -> Selected:
    """The config file that ``--<flag> value`` stands for, from the first root that has it.

    Raises SelectorError naming the selector, the implied path, a close match and the directories searched.
    """
    selector = SELECTORS[flag]
    name, _, flavor = value.partition("/")
    directory = "/".join(part for part in (selector.tree, name, selector.subdirectory) if part)
    path = f"{directory}/{flavor or selector.default_flavor or name}.yaml"
    candidates = [f"{selector.tree}/{value}/config.yaml", path] if selector.nested and flavor else [path]
    for candidate in candidates:
        files = _existing(candidate, roots)
        if files:
            return _first(flag, value, files)
    alias = ENVIRONMENT_ALIASES.get(value) if flag == "environment" else None
    if alias is not None:
        selected = select(flag, alias, roots)
        return Selected(selected.path, (*selected.warnings, f"--environment {value} is deprecated: use --environment {alias}."))
    moved = config_path_alias(path)
    if moved is not None:
        files = _existing(moved, roots)
        if files:
            return Selected(str(files[0]), (f"{path} is deprecated: use {moved}.",))
    raise _not_found(selector, value, path, directory, roots)


def _existing(relative: str, roots: Sequence[Path]) -> list[Path]:
    files: dict[Path, None] = {}
    for root in roots:
        if (root / relative).is_file():
            files[(root / relative).resolve()] = None
    return list(files)


def _first(flag: str, value: str, files: list[Path]) -> Selected:
    if len(files) == 1:
        return Selected(str(files[0]))
    shadowed = ", ".join(str(file) for file in files[1:])
    return Selected(str(files[0]), (f"--{flag} {value}: {files[0]} is used; it shadows {shadowed}. Name another one with --config.",))


def _not_found(selector: Selector, value: str, path: str, directory: str, roots: Sequence[Path]) -> SelectorError:
    name = value.partition("/")[0]
    searched = [root / directory for root in roots if (root / directory).is_dir()]
    hint: str | None
    if selector.flag == "benchmark":
        searched = [root / selector.tree for root in roots if (root / selector.tree).is_dir()]
        names = {found for root in roots for found in benchmark_names(root / selector.tree)}
        below = sorted((found for found in names if found.startswith(f"{value}/")), key=lambda found: (len(found), found))
        hint = f"Did you mean {below[0]!r}?" if below else did_you_mean(value, names)
    else:
        flavors = [file.stem for root in searched for file in root.glob("*.yaml")]
        if flavors:
            best = did_you_mean(path.removesuffix(".yaml").rpartition(f"{directory}/")[2], flavors)
            hint = best or f"It has: {', '.join(f'{name}/{flavor}' for flavor in sorted(flavors)[:8])}."
        else:
            searched = [root / selector.tree for root in roots if (root / selector.tree).is_dir()]
            hint = did_you_mean(name, (child.name for root in searched for child in root.iterdir() if child.is_dir()))
    places = ", ".join(sorted({str(place.resolve()) for place in searched})) or "none: no search root has such a tree"
    return SelectorError(
        f"--{selector.flag} {value} implies the config {path}, which does not exist.", hint=_join(hint, f"Searched: {places}.")
    )


def _join(hint: str | None, rest: str) -> str:
    return f"{hint} {rest}" if hint else rest


def benchmark_names(tree: Path) -> Iterator[str]:
    """Names of the benchmark configs of one ``benchmarks`` tree: ``<dir>`` for its ``config.yaml``, else the path without suffix."""
    if not tree.is_dir():
        return
    for file in sorted(tree.rglob("*.yaml")):
        relative = file.relative_to(tree)
        if file.name == "manifest.yaml" or "type: benchmark" not in file.read_text("utf-8", errors="replace"):
            continue
        yield relative.parts[0] if relative.parts[1:] == ("config.yaml",) else relative.with_suffix("").as_posix()
