"""Components on disk: environments, benchmarks, agents, models, resources servers (contract-config 2.4). Reads config files only.

Roots are searched in order; a name of an earlier root hides the same name of a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.names import SERVER_TYPES
from gym_compose.wire.suggestions import did_you_mean

Kind = Literal["environment", "benchmark"]
_TREES: tuple[tuple[Kind, str], ...] = (("environment", "environments"), ("benchmark", "benchmarks"))
_MANIFEST = "manifest.yaml"
_TOMBSTONE = ".nemo_gym_tombstone"
T = TypeVar("T")


class CatalogError(InvalidInputError):
    """A manifest that says another name or kind than its place, or a name that is not unique."""


class UnknownComponentError(GymComposeError):
    """A name that no component has."""


@dataclass(frozen=True)
class Workload:
    """An environment or benchmark. ``status``: ``no-manifest``, ``experimental`` or None. ``selector``: for a resources server's own."""

    name: str
    kind: Kind
    config: Path
    domain: str | None = None
    description: str | None = None
    status: str | None = "no-manifest"
    manifest: Path | None = None
    version: str | None = None
    integration_profile: str | None = None
    modality: str | None = None
    licensing: str | None = None
    lifecycle: str | None = None
    selector: str | None = None


@dataclass(frozen=True)
class Agent:
    """An agent directory. ``self_contained`` False: it is composed with a resources server (pattern A)."""

    name: str
    path: Path
    variants: tuple[str, ...]
    self_contained: bool
    description: str | None = None


@dataclass(frozen=True)
class Model:
    """One config of a model server; ``name`` is what ``--model-type`` takes."""

    name: str
    group: str
    config: Path


@dataclass(frozen=True)
class ResourcesServer:
    """One config of a resources server; ``name`` is what ``--resources-server`` takes."""

    name: str
    config: Path
    domain: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class ServerBlock:
    """One implementation mapping of a config file, unresolved."""

    server_type: str
    implementation: str
    fields: Mapping[Any, Any] = field(default_factory=dict)


def workloads(roots: Sequence[Path]) -> list[Workload]:
    """The unified catalog, sorted by name. Raises CatalogError for a manifest whose name or kind is not that of its place."""
    found: dict[tuple[Kind, str], Workload] = {}
    for root in roots:
        for kind, tree in _TREES:
            claimed = frozenset(found)
            for workload in _tree(root / tree, kind, claimed, roots):
                found.setdefault((kind, workload.name), workload)
        claimed = frozenset(found)
        for workload in _of_resources_servers(root / "resources_servers"):
            bare = (workload.selector or "").rpartition("/")[2]
            if (workload.kind, bare) not in claimed:
                found.setdefault((workload.kind, workload.name), workload)
    return sorted(found.values(), key=lambda workload: (workload.name.casefold(), workload.name, workload.kind))


def find_workload(name: str, kind: str | None, found: Sequence[Workload]) -> Workload:
    """The workload of this name among ``found``. Raises UnknownComponentError, and CatalogError when both kinds have the name."""
    of_name = [workload for workload in found if workload.name == name]
    of_kind = [workload for workload in of_name if kind in (None, workload.kind)]
    if of_name and not of_kind:
        other = of_name[0].kind
        raise UnknownComponentError(f"'{name}' is of kind {other}, not {kind}.", hint=f"Try gym list {other}s {name}.")
    if not of_name:
        raise unknown(kind or "environment", name, [workload.name for workload in found if kind in (None, workload.kind)])
    if len(of_kind) > 1:
        raise CatalogError(f"'{name}' is an environment and a benchmark.", hint="Say which with --kind.")
    return of_kind[0]


def unknown(noun: str, name: str, names: Sequence[str]) -> UnknownComponentError:
    """The error for a name that is not there."""
    return UnknownComponentError(f"unknown {noun} '{name}'.", hint=did_you_mean(name, names))


def agents(roots: Sequence[Path]) -> dict[str, Agent]:
    return _merged(roots, "responses_api_agents", _agents)


def models(roots: Sequence[Path]) -> dict[str, Model]:
    return _merged(roots, "responses_api_models", lambda tree: {name: Model(name, path.parts[-3], path) for name, path in _flavors(tree)})


def resources_servers(roots: Sequence[Path]) -> dict[str, ResourcesServer]:
    def scan(tree: Path) -> dict[str, ResourcesServer]:
        found = {}
        for name, path in _flavors(tree):
            if any(block.server_type == "resources_servers" for block in blocks(path)):
                found[name] = ResourcesServer(name, path, *metadata(path, roots))
        return found

    return _merged(roots, "resources_servers", scan)


def blocks(config: Path) -> tuple[ServerBlock, ...]:
    """All server blocks of one file as it stands: nothing is merged or resolved; an unreadable file has none."""
    found = []
    for instance in _document(config).values():
        if isinstance(instance, Mapping):
            for server_type in SERVER_TYPES:
                servers = instance.get(server_type)
                if isinstance(servers, Mapping):
                    found += [ServerBlock(server_type, str(name), value) for name, value in servers.items() if isinstance(value, Mapping)]
    return tuple(found)


def metadata(config: Path, roots: Sequence[Path]) -> tuple[str | None, str | None]:
    """(domain, description): of the file's own blocks, else of the files that it includes, nearest first."""
    domain: str | None = None
    description: str | None = None
    waiting, seen = [config], {config}
    while waiting and (domain is None or description is None):
        file = waiting.pop(0)
        for block in blocks(file):
            domain = domain or _text(block.fields.get("domain"))
            description = description or _text(block.fields.get("description"))
        for included in _included(file, roots):
            if included not in seen:
                seen.add(included)
                waiting.append(included)
    return domain, description


def datasets(block: ServerBlock) -> list[Mapping[Any, Any]]:
    listed = block.fields.get("datasets")
    return [dataset for dataset in listed if isinstance(dataset, Mapping)] if isinstance(listed, list) else []


@lru_cache(maxsize=4096)
def _document(path: Path) -> Mapping[Any, Any]:
    from gym_compose.config.documents import load_document
    from gym_compose.config.errors import ConfigError

    try:
        return load_document(path).tree
    except ConfigError:  # not a config: a stub, a file of a harness, a template; a listing goes on without it
        return {}


def _included(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    listed = _document(file).get("config_paths")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, str):
            candidates = [Path(entry)] if Path(entry).is_absolute() else [root / entry for root in roots]
            yield from [candidate for candidate in candidates if candidate.is_file()][:1]


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "", "???") and not isinstance(value, Mapping | list) else None


def _merged(roots: Sequence[Path], tree: str, scan: Callable[[Path], Mapping[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for root in roots:
        for name, entry in scan(root / tree).items():
            found.setdefault(name, entry)
    return found


def _directories(tree: Path) -> list[Path]:
    return sorted(child for child in tree.iterdir() if child.is_dir()) if tree.is_dir() else []


def _flavors(tree: Path) -> Iterator[tuple[str, Path]]:
    """(name for a selector, file) of each ``NAME/configs/*.yaml``."""
    for child in _directories(tree):
        for path in sorted((child / "configs").glob("*.yaml")):
            yield (child.name if path.stem == child.name else f"{child.name}/{path.stem}"), path


def _agents(tree: Path) -> dict[str, Agent]:
    found = {}
    for child in _directories(tree):
        configs = [path for path in sorted((child / "configs").glob("*.yaml")) if _agent_blocks(path)]
        if not configs and not (child / "app.py").is_file():
            continue
        all_blocks = [block.fields for path in configs for block in _agent_blocks(path)]
        description = next((str(block["description"]) for block in all_blocks if isinstance(block.get("description"), str)), None)
        loop_of_its_own = any("agent_framework" in block or "anthropic_api_key" in block for block in all_blocks)
        composable = not all_blocks or (any("resources_server" in block for block in all_blocks) and not loop_of_its_own)
        found[child.name] = Agent(child.name, child, tuple(path.stem for path in configs), not composable, description)
    return found


def _agent_blocks(path: Path) -> list[ServerBlock]:
    return [block for block in blocks(path) if block.server_type == "responses_api_agents"]


def _tree(tree: Path, kind: Kind, claimed: frozenset[tuple[Kind, str]], roots: Sequence[Path]) -> Iterator[Workload]:
    if not tree.is_dir():
        return
    described: set[Path] = set()
    for manifest in sorted(tree.rglob(_MANIFEST)):
        if kind == "environment" and (tree / manifest.relative_to(tree).parts[0] / _TOMBSTONE).is_file():
            continue
        workload = None if (kind, manifest.parent.relative_to(tree).as_posix()) in claimed else _described(tree, manifest, kind)
        if workload is not None:
            described.add(workload.config.resolve())
            yield workload
    for name, config in _undescribed(tree, kind):
        if (kind, name) not in claimed and config.resolve() not in described:
            domain, description = metadata(config, roots)
            yield Workload(name, kind, config, domain, description)


def _described(tree: Path, manifest: Path, kind: Kind) -> Workload | None:
    """The workload of a manifest; None when the file is none."""
    fields = _document(manifest)
    name = manifest.parent.relative_to(tree).as_posix()
    if not isinstance(fields.get("name"), str) or fields.get("kind") not in ("environment", "benchmark"):
        return None
    if fields["kind"] != kind:
        raise CatalogError(f"the manifest's kind is {fields['kind']!r}, and its place is for kind {kind!r}.", where=str(manifest))
    if fields["name"] != name:
        raise CatalogError(f"the manifest's name is {fields['name']!r}, and its place is that of {name!r}.", where=str(manifest))
    config = manifest.parent / str(fields.get("config_path") or "config.yaml")
    if not config.is_file():
        raise CatalogError(f"the manifest's config {config.name} does not exist.", where=str(manifest))
    return Workload(
        name,
        kind,
        config,
        _text(fields.get("domain")),
        _text(fields.get("description")),
        status="experimental" if fields.get("experimental", True) else None,
        manifest=manifest,
        version=_text(fields.get("version")),
        integration_profile=_text(fields.get("integration_profile")),
        modality=_text(fields.get("modality")),
        licensing=_text(fields.get("licensing")),
        lifecycle=_text(fields.get("lifecycle")),
    )


def _undescribed(tree: Path, kind: Kind) -> Iterator[tuple[str, Path]]:
    if kind == "environment":
        for child in _directories(tree):
            config = child / "config.yaml"
            if config.is_file() and not (child / _TOMBSTONE).is_file():
                yield child.name, config
        return
    for config in sorted(tree.rglob("*.yaml")):
        if config.name == _MANIFEST:
            continue
        relative = config.relative_to(tree)
        if sum(dataset.get("type") == "benchmark" for block in blocks(config) for dataset in datasets(block)) == 1:
            yield (relative.parts[0] if relative.parts[1:] == ("config.yaml",) else relative.with_suffix("").as_posix()), config


def _of_resources_servers(tree: Path) -> Iterator[Workload]:
    """Configs of resources servers that are runnable by themselves: with an agent that declares datasets."""
    for selector, config in _flavors(tree):
        found = blocks(config)
        declared = [dataset for block in found if block.server_type == "responses_api_agents" for dataset in datasets(block)]
        if not declared or not any(block.server_type == "resources_servers" for block in found):
            continue
        kind: Kind = "benchmark" if any(dataset.get("type") == "benchmark" for dataset in declared) else "environment"
        domain = next((text for block in found if (text := _text(block.fields.get("domain")))), None)
        description = next((text for block in found if (text := _text(block.fields.get("description")))), None)
        yield Workload(f"resources_servers/{selector}", kind, config, domain, description, selector=selector)
