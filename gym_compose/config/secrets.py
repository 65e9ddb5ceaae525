"""Which leaves of a config are secret: by the name of a key, by interpolation, by credentials inside a URL.

NeMo Gym's own rule (contract-config 2.5) masks ``max_output_tokens`` and misses ``password``, ``OPENAI_API_KEY`` and URLs; it is kept
for ``gym env resolve`` only. The rule here decides what is taken out of slices, plans, logs and the published head server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gym_compose.config.model import KeyPath
from gym_compose.wire.names import SERVER_TYPES

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    {
        "password", "passwords", "passwd", "passphrase", "passphrases", "secret", "secrets", "token", "credential", "credentials",
        "authorization", "apikey", "apikeys", "key",
    }
)  # fmt: skip
_PLAIN_KEYS = frozenset(
    {"prompt", "answer", "sort", "routing", "cache", "primary", "group", "dict", "metric", "id", "label", "foreign", "delete"}
)  # fmt: skip
"""Words before ``key`` that make it the name of a field of data; ``_delete_key`` is a merge directive."""
_SECRET_KEYS = frozenset({"api", "access", "auth", "private", "secret", "signing", "encryption", "subscription"})
"""Words before the plural ``keys`` that keep it secret: ``metric_keys`` and a bare ``keys`` are data."""

_NAME_MAPPINGS = frozenset({"agent_map", "environment_server_routes"})
"""Top-level mappings whose keys are names of tasksets and instances, not of fields."""

_USERINFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#@]+@")
_QUERY = re.compile(r"[?&;]([^=&;#\s]+)=[^&;#\s]")
_INTERPOLATED = re.compile(r"\$\{\s*(?:[A-Za-z_][\w.]*\s*:)?([^{}]*)\}")
_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:\s*['\"]?([^,{}'\"\s]+)")
_PATH_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
_MINIMUM_LENGTH = 6
"""Shorter values are not looked for inside other strings: ``x`` and ``k`` stand in everything."""


def is_secret_name(name: str) -> bool:
    """Whether a key, environment variable or query parameter of this name holds a secret.

    The name is split at everything that is not a letter or digit and at camel case; its last words decide.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return before not in _PLAIN_KEYS
    if last == "keys":
        return before in _SECRET_KEYS
    return last in _SECRET_WORDS


def has_url_credentials(text: str) -> bool:
    """Whether the text holds a URL with a user part, or one with a query parameter of a secret name."""
    if "://" not in text:
        return False
    if _USERINFO.search(text):
        return True
    return any(is_secret_name(name) for name in _QUERY.findall(text))


def secret_paths(resolved: Mapping[str, Any], merged: Mapping[str, Any]) -> frozenset[KeyPath]:
    """The paths of all secret leaves of ``resolved``; ``merged`` is the same config with its interpolations unresolved.

    A leaf is secret when its key has a secret name (``is_secret_name``) or stands, list items too, below such a key or below a
    ``headers`` mapping; when it is a URL with credentials; when it interpolates a secret leaf or an environment variable with a secret
    name. Leaves without anything to hide (null, booleans, floats, empty strings, ``???``) are not secret. Names of server instances and
    implementations are not keys in this sense: a server may be called ``guess_the_secret``.
    """
    leaves = dict(_leaves(resolved, (), False))
    secrets = {path for path, (value, named) in leaves.items() if named or (isinstance(value, str) and has_url_credentials(value))}
    sources: dict[KeyPath, list[KeyPath]] = {}
    for path, text, rest in _interpolating(resolved, merged, (), None):
        if path not in leaves:
            continue
        if any(is_secret_name(name) for name in _ENVIRONMENT.findall(text)):
            secrets.add(path)
        sources.setdefault(path, []).extend((*target, *rest) for target in _targets(text, path[: len(path) - len(rest)]))
    _follow(sources, secrets)
    _find_values(leaves, sources, secrets)
    return frozenset(secrets)


def _leaves(node: Any, path: KeyPath, secret: bool) -> Iterator[tuple[KeyPath, tuple[Any, bool]]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            below = secret or (_is_field(path, value) and _hides(key, value))
            yield from _leaves(value, (*path, key), below)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _leaves(value, (*path, index), secret)
    elif not (node is None or isinstance(node, bool | float) or node in ("", "???")):
        yield path, (node, secret)


def _hides(key: Any, value: Any) -> bool:
    if not isinstance(key, str):
        return False
    if is_secret_name(key):
        return True
    words = _WORDS.findall(key)
    return bool(words) and words[-1].lower() == "headers" and isinstance(value, Mapping | list | tuple)


def _is_field(path: KeyPath, value: Any) -> bool:
    """Whether the key of ``value`` below ``path`` names a field; False for keys that are names: instances, implementations, tasksets."""
    if not path:
        return not (isinstance(value, Mapping) and any(kind in value for kind in SERVER_TYPES))
    if len(path) == 2 and path[1] in SERVER_TYPES:
        return not isinstance(value, Mapping)
    return not (len(path) == 1 and path[0] in _NAME_MAPPINGS)


def _interpolating(resolved: Any, merged: Any, path: KeyPath, at: tuple[str, KeyPath] | None) -> Iterator[tuple[KeyPath, str, KeyPath]]:
    """(leaf, interpolating text, path of the leaf below the node that holds the text), in document order."""
    if at is None and isinstance(merged, str) and "${" in merged:
        at = (merged, path)
    if isinstance(resolved, Mapping):
        for key, value in resolved.items():
            inner = merged.get(key) if at is None and isinstance(merged, Mapping) else None
            yield from _interpolating(value, inner, (*path, key), at)
    elif isinstance(resolved, list | tuple):
        for index, value in enumerate(resolved):
            inner = merged[index] if at is None and isinstance(merged, list | tuple) and index < len(merged) else None
            yield from _interpolating(value, inner, (*path, index), at)
    elif at is not None:
        text, origin = at
        yield path, text, path[len(origin) :]


def _targets(text: str, holder: KeyPath) -> Iterator[KeyPath]:
    """Paths that the interpolations of ``text``, which stands at ``holder``, may read: node references and arguments of resolvers."""
    for arguments in _INTERPOLATED.findall(text):
        for argument in arguments.split(","):
            name = argument.strip().strip("'\"")
            dots = len(name) - len(name.lstrip("."))
            steps: list[str | int] = []
            for step in _PATH_STEP.findall(name):
                bare = step.strip("[]").strip("'\"")
                steps.append(int(bare) if bare.isdecimal() else bare)
            if not steps:
                continue
            if dots > len(holder):
                continue
            yield (*(holder[: len(holder) - dots] if dots else ()), *steps)


def _follow(sources: Mapping[KeyPath, list[KeyPath]], secrets: set[KeyPath]) -> None:
    """Add every leaf that reads a secret, over any number of steps."""
    readers: dict[KeyPath, list[KeyPath]] = {}
    for leaf, targets in sources.items():
        for target in targets:
            readers.setdefault(target, []).append(leaf)
    waiting = list(secrets)
    while waiting:
        for leaf in readers.get(waiting.pop(), ()):
            if leaf not in secrets:
                secrets.add(leaf)
                waiting.append(leaf)


def _find_values(leaves: Mapping[KeyPath, tuple[Any, bool]], sources: Mapping[KeyPath, list[KeyPath]], secrets: set[KeyPath]) -> None:
    """Catch what no reading of the text shows (``${a.${b}}``, decoded text): an interpolated leaf that holds the value of a secret."""
    values = {str(leaves[path][0]) for path in secrets}
    values = {value for value in values if len(value) >= _MINIMUM_LENGTH}
    for path in sources:
        value = leaves[path][0]
        if path not in secrets and isinstance(value, str) and any(secret in value for secret in values):
            secrets.add(path)
