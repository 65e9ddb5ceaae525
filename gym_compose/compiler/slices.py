"""One server's slice of the config: what it may know, in a public and a secret half (design decisions 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gym_compose.compiler import document as doc
from gym_compose.compiler.errors import ExtensionError, dotted
from gym_compose.compiler.extension import ServerOptions
from gym_compose.config.model import GymConfig, KeyPath, ServerInstance
from gym_compose.wire.names import EXTENSION_KEY
from gym_compose.wire.slice import PublicSlice, SecretSlice, SecretValue
from gym_compose.wire.suggestions import close_matches, close_or_all

_GLOBALS = frozenset(
    {
        "head_server", "ray_head_node_address", "disallowed_ports", "port_range_low", "port_range_high", "results_dir", "cache_dir",
        "policy_model_name", "observability_enabled", "model_call_capture_dir", "token_id_capture", "profiling_enabled",
        "profiling_results_dirpath", "verbose",
    }
)  # fmt: skip
"""Top-level keys that servers index, besides blocks (contract-servers 1.1)."""
_GLOBAL_PREFIXES = ("global_aiohttp_", "uvicorn_")
_SANDBOX_FIELD = "sandbox_provider"
"""A field of a server's block that names a top-level provider block, whose secrets then are the server's own."""


@dataclass(frozen=True)
class SlicedConfig:
    """``config`` with every secret masked, and the values that this server gets back. ``environment`` likewise, split in two."""

    config: dict[str, Any]
    values: tuple[SecretValue, ...]
    environment: dict[str, str]
    secret_environment: dict[str, str]
    withheld: tuple[str, ...] = ()
    """Top-level keys of the config that ``config`` leaves out."""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """What the plan shows: dotted config names and variables, never values."""
        return tuple(dotted(value.path) for value in self.values) + tuple(f"${name}" for name in sorted(self.secret_environment))


def referenced(config: GymConfig, name: str) -> frozenset[str]:
    """The instances that ``name`` references, directly or over others, itself included. References to nothing are left out."""
    edges: dict[str, list[str]] = {}
    known = {instance.name for instance in config.instances}
    for reference in config.references:
        if reference.target in known:
            edges.setdefault(reference.source, []).append(reference.target)
    seen = {name}
    waiting = [name]
    while waiting:
        for target in edges.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return frozenset(seen)


def slice_config(
    config: GymConfig,
    instance: ServerInstance,
    document: Mapping[str, Any],
    secrets: frozenset[KeyPath],
    options: ServerOptions,
    default_environment: Mapping[str, str],
    *,
    strict: bool = False,
) -> SlicedConfig:
    """Cut ``document`` (plain, addressed; the instance's own block as it must bind) to what ``instance`` reads.

    It gets its own block with its secrets, the blocks it references (transitively) with theirs masked, the provider blocks it names, the
    globals that servers index, and what ``compose: servers: NAME: secrets`` grants. ``secrets`` are paths of ``document``. Of the
    ``compose`` key only ``strict`` is handed on, and only when it is set.
    Raises ExtensionError for a granted name that is not in the config.
    """
    providers = _providers(document[instance.name], document)
    own = own_paths(document, instance.name, options)
    blocks = referenced(config, instance.name) | {str(path[0]) for path in own}

    cut = {key: value for key, value in document.items() if key in blocks or key in providers or _is_global(key)}
    cut["dry_run"] = False
    if strict:
        cut[EXTENSION_KEY] = {"strict": True}
    values = tuple(
        SecretValue(path=path, value=value)
        for path, value in doc.walk(cut)
        if path in secrets and any(path[: len(prefix)] == prefix for prefix in own)
    )
    masked: dict[str, Any] = doc.masked(cut, secrets)
    public, secret = _environment(instance.name, options, secrets)
    withheld = tuple(sorted(key for key in document if key not in cut and key != EXTENSION_KEY))
    return SlicedConfig(masked, values, {**{k: v for k, v in default_environment.items() if k not in secret}, **public}, secret, withheld)


def own_paths(document: Mapping[str, Any], instance: str, options: ServerOptions) -> tuple[KeyPath, ...]:
    """What is the server's own in ``document``: its block, the provider blocks that it names, what it was granted.

    Raises ExtensionError for a granted name that is not in the config.
    """
    granted = (_granted(instance, name, document) for name in options.secrets)
    providers = _providers(document[instance], document)
    return ((instance,), *((name,) for name in sorted(providers)), *granted)


def slice_digest(public: PublicSlice, secret: SecretSlice, files: Iterable[str]) -> str:
    """The label that makes a changed slice recreate its service: both halves and the digests of the files that are mounted with them.

    The session key, 32 random bytes, is part of the secret half: nobody finds a short secret by trying digests.
    """
    # Names of keys elsewhere in the config change nothing of what the server has.
    halves = [public.model_dump(mode="json", exclude={"withheld"}), secret.model_dump(mode="json"), sorted(files)]
    return doc.digest(doc.canonical(halves))


def _is_global(key: str) -> bool:
    return key in _GLOBALS or key.startswith(_GLOBAL_PREFIXES)


def _granted(instance: str, name: str, document: Mapping[str, Any]) -> KeyPath:
    path = doc.find(dict(document), name)
    if path is None or path[0] == EXTENSION_KEY:
        candidates = (dotted(found) for found, _ in doc.walk(dict(document)) if found and found[0] != EXTENSION_KEY)
        raise ExtensionError(("servers", instance, "secrets"), f"the config has no value {name!r}", hint=_close(name, candidates))
    return path


def _close(name: str, candidates: Iterable[str]) -> str:
    known = tuple(candidates)  # too many to list them all
    return (
        close_or_all(name, known) if close_matches(name, known) else "Write the dotted name as the merged config has it (gym env resolve)."
    )


def _providers(block: Any, document: Mapping[str, Any]) -> frozenset[str]:
    named = {value for path, value in doc.walk(block) if path and path[-1] == _SANDBOX_FIELD and isinstance(value, str)}
    return frozenset(name for name in named if isinstance(document.get(name), dict))


def _environment(name: str, options: ServerOptions, secrets: frozenset[KeyPath]) -> tuple[dict[str, str], dict[str, str]]:
    prefix: KeyPath = (EXTENSION_KEY, "servers", name, "environment")
    public: dict[str, str] = {}
    secret: dict[str, str] = {}
    for variable, value in sorted(options.environment.items()):
        (secret if (*prefix, variable) in secrets else public)[variable] = value
    return public, secret
