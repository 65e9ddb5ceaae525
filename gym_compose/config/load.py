"""Sources to the one ``GymConfig`` that everything else works from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from gym_compose.config.errors import ConfigError, ConfigInterpolationError, NoServerInstancesError
from gym_compose.config.interpolation import Tree, environment
from gym_compose.config.layers import Overrides, Sources, read_sources
from gym_compose.config.missing import interpolated_paths
from gym_compose.config.model import GymConfig, KeyPath, ServerInstance
from gym_compose.config.pipeline import Merged
from gym_compose.config.placement import HostFor
from gym_compose.config.ports import PortAllocator, machine_address
from gym_compose.config.references import collect_references
from gym_compose.config.resolve import merge_sources
from gym_compose.config.roots import installed_root, last_roots, relative_roots, search_roots
from gym_compose.wire.names import EXTENSION_KEY


def load_config(
    overrides: Overrides,
    *,
    cwd: str | PathLike[str],
    environ: Mapping[str, str],
    roots: Sequence[str | PathLike[str]] = (),
    ports: PortAllocator,
    install_root: str | PathLike[str] | None = None,
    host_for: HostFor | None = None,
    initial: Mapping[str, Any] | None = None,
    address: Callable[[], str] = machine_address,
) -> GymConfig:
    """Read, merge, check and resolve one config.

    ``overrides``: Hydra override strings or a mapping. ``roots``: further search roots (``--search-dir``), before NEMO_GYM_EXTRA_ROOTS,
    ``cwd``, ``install_root`` (by default the directory of an installed nemo_gym, where there is one) and our own trees.
    ``host_for``: gives every instance its host by name, for containers; else the config and ``default_host`` decide.
    ``initial``: values below the overrides, such as ``NO_MODEL``. ``address``: this machine's own, for ``use_absolute_ip``.

    An interpolation that cannot be resolved is an error in a server's block or in the extension key; elsewhere it keeps its text and
    is warned about, as no server may ever read it (contract-config 1.8). Raises ConfigError of the contract's class.
    """
    here = Path(cwd).absolute()
    installed = Path(install_root) if install_root is not None else installed_root()
    with environment(environ) as notes:
        sources = read_sources(overrides, roots=search_roots(here, environ, extra=roots, last=last_roots(installed)), initial=initial)
        merged = merge_sources(sources, cwd=here, environ=environ, ports=ports, install_root=installed, host_for=host_for, address=address)
        needed = {instance.path[0] for instance in merged.instances} | {EXTENSION_KEY}
        resolved, unresolved = resolve_what_can_be(merged.tree, needed)
    warnings = [*merged.warnings, *notes, *unresolved]
    warnings += [
        f"the extra root '{root}' is relative; in a server it would mean another directory, so it is taken as {here / root}."
        for root in relative_roots(environ, roots)
    ]
    return _config(sources, merged, resolved, warnings)


def require_instances(config: GymConfig) -> None:
    """Raise NoServerInstancesError when there is nothing to start (contract-config 4.1)."""
    if not config.instances:
        raise NoServerInstancesError(
            "the config defines no server instance, so there is nothing to start.",
            hint="Name configs with --config, or select a --benchmark, --environment or --resources-server and a --model-type.",
        )


def _config(sources: Sources, merged: Merged, resolved: dict[str, Any], warnings: list[str]) -> GymConfig:
    from gym_compose.config.secrets import secret_paths

    instances = tuple(_instance(resolved, path, merged) for path in range(len(merged.instances)))
    keys = {(instance.server_type, instance.name): instance.key for instance in merged.instances}
    references, dangling = collect_references({instance.name: instance.block for instance in instances}, keys)
    extension = resolved.get(EXTENSION_KEY)
    if extension is not None and not isinstance(extension, dict):
        raise ConfigError(f"it has to be a mapping, not {extension!r}.", where=EXTENSION_KEY)
    return GymConfig(
        merged=merged.tree.data,
        resolved=resolved,
        instances=instances,
        references=references,
        secret_paths=secret_paths(resolved, merged.tree.data),
        config_files=tuple(layer.label for layer in sources.below),
        warnings=tuple(dict.fromkeys([*warnings, *dangling])),
        extension=extension or {},
    )


def _instance(resolved: Mapping[Any, Any], index: int, merged: Merged) -> ServerInstance:
    recognised = merged.instances[index]
    if not recognised.key.strip():
        raise ConfigError(
            f"a server instance has the name {recognised.key!r}; nothing can refer to it.",
            where=".".join(map(str, recognised.path)),
            hint="Give it a name.",
        )
    block: Any = resolved
    for step in recognised.path:
        block = block[step]
    return ServerInstance(
        name=recognised.key,
        server_type=recognised.server_type,
        implementation=recognised.implementation,
        entrypoint=block["entrypoint"],
        host=str(block["host"]),
        port=int(block["port"]),
        block=block,
        port_pinned=recognised.key in merged.pinned,
    )


def resolve_what_can_be(tree: Tree, needed: Collection[Any] = ()) -> tuple[dict[str, Any], list[str]]:
    """The resolved tree and a warning for each leaf that kept its text. Call it inside ``interpolation.environment``.

    Raises ConfigInterpolationError for a leaf below one of the top-level keys that are ``needed``.
    """
    try:
        return tree.resolved(), []
    except ConfigInterpolationError as first:
        broken: list[tuple[KeyPath, ConfigInterpolationError]] = []
        for path in interpolated_paths(tree.data):
            try:
                tree.at(path)
            except ConfigInterpolationError as error:
                if path[0] in needed:
                    raise
                broken.append((path, error))
        if not broken:
            raise first from None
    # What refers to a broken leaf is broken itself, so all of them are found above; each is taken out, and put back as text.
    stripped = Tree(_without(tree.data, {path for path, _ in broken}))
    resolved = stripped.resolved()
    for path, _ in broken:
        holder: Any = resolved
        text: Any = tree.data
        for step in path[:-1]:
            holder, text = holder[step], text[step]
        holder[path[-1]] = text[path[-1]]
    return resolved, [f"{error} It keeps its text; whatever reads it will fail." for _, error in broken]


def _without(node: Any, paths: set[KeyPath], path: KeyPath = ()) -> Any:
    if path in paths:
        return None
    if isinstance(node, dict):
        return {key: _without(value, paths, (*path, key)) for key, value in node.items()}
    if isinstance(node, list):
        return [_without(value, paths, (*path, index)) for index, value in enumerate(node)]
    return node
