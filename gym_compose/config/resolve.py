"""The library call: overrides in, the merged config out, nothing read that was not given (issue 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from gym_compose.config.interpolation import environment
from gym_compose.config.layers import Overrides, Sources, read_sources
from gym_compose.config.masking import mask
from gym_compose.config.pipeline import Merged, Surroundings, run_pipeline
from gym_compose.config.placement import HostFor
from gym_compose.config.ports import OfflinePorts, PortAllocator, machine_address
from gym_compose.config.roots import search_roots


def resolve_config(
    overrides: Overrides,
    *,
    cwd: str | PathLike[str],
    environ: Mapping[str, str],
    roots: Sequence[str | PathLike[str]] = (),
    hide_secrets: bool = False,
    ports: PortAllocator | None = None,
    install_root: str | PathLike[str] | None = None,
    initial: Mapping[str, Any] | None = None,
    warnings: list[str] | None = None,
) -> dict[str, Any]:
    """The merged config with every interpolation resolved, as plain mappings and lists, keys in the contract's order.

    ``overrides`` are Hydra override strings, or a mapping that stands in their place. Relative paths are looked for in ``roots``, in the
    NEMO_GYM_EXTRA_ROOTS of ``environ``, in ``cwd``, in ``install_root``; env.yaml too. ``oc.env`` reads ``environ``. Without ``ports``
    every server that pins none gets -1. ``hide_secrets`` masks as ``gym env resolve`` does (contract-config 2.5).
    ``initial`` are values below the overrides; ``warnings``, if given, receives them.
    Raises ConfigError of the contract's class.
    """
    here = Path(cwd).absolute()
    last = () if install_root is None else (Path(install_root),)
    with environment(environ) as notes:
        merged = merge_sources(
            read_sources(overrides, roots=search_roots(here, environ, extra=roots, last=last), initial=initial),
            cwd=here,
            environ=environ,
            ports=ports or OfflinePorts(),
            install_root=None if install_root is None else Path(install_root),
        )
        resolved = merged.tree.resolved()
        if hide_secrets:
            mask(merged.tree, resolved)
            resolved = merged.tree.resolved()
    if warnings is not None:
        warnings.extend(dict.fromkeys([*merged.warnings, *notes]))
    return resolved


def merge_sources(
    sources: Sources,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    ports: PortAllocator,
    install_root: Path | None = None,
    host_for: HostFor | None = None,
    address: Callable[[], str] = machine_address,
    open_values: str | None = None,
) -> Merged:
    """Run the pipeline over ``sources``; call it inside ``interpolation.environment``. ``open_values``: put where a value is open.

    An install root with a pyproject.toml is a checkout: results and caches go there by default (contract-config 4.3).
    """
    editable = install_root is not None and (install_root / "pyproject.toml").is_file()
    working = install_root if editable and install_root is not None else cwd
    return run_pipeline(sources, Surroundings(cwd, working, environ, ports, address, host_for, open_values))
