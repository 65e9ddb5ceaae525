"""Interpolations of a plain tree, resolved by OmegaConf in an environment that was handed in.

A ``Tree`` holds the merged config as plain mappings and lists, interpolations as text. Whatever has to know what an interpolation means
asks it; OmegaConf's view of the tree is made when the first interpolation is met and kept in step by ``put``.
"""

from __future__ import annotations

import copy
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import signature
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from omegaconf.resolvers import oc

from gym_compose.config.errors import ConfigError, ConfigInterpolationError
from gym_compose.config.model import KeyPath
from gym_compose.wire.suggestions import close_matches

MISSING = "???"
_ABSENT: Any = object()
_NOT_GIVEN: Any = object()

_environ: ContextVar[Mapping[str, str] | None] = ContextVar("gym_compose_environ", default=None)
_lock = threading.RLock()


def _environment_variable(key: str, default: Any = _NOT_GIVEN) -> str | None:
    """``oc.env``: reads the environment that was handed in; outside of ``environment`` it is OmegaConf's own."""
    environ = _environ.get()
    if environ is None:
        return oc.env(key) if default is _NOT_GIVEN else oc.env(key, default)
    if key in environ:
        return environ[key]
    if default is _NOT_GIVEN:
        raise KeyError(f"Environment variable '{key}' not found")
    return None if default is None else str(default)


def _register(name: str, resolver: Callable[..., Any]) -> None:
    """Register under either end of the supported range: 2.4 gives the short name the meaning that ``register_new_resolver`` had."""
    renamed = "replace" in signature(OmegaConf.register_resolver).parameters
    register: Any = OmegaConf.register_resolver if renamed else OmegaConf.register_new_resolver
    register(name, resolver, replace=True)


_register("oc.env", _environment_variable)


def _echo(name: str) -> Any:
    return lambda path: f"${{{name}:{path}}}"


@contextmanager
def environment(environ: Mapping[str, str]) -> Iterator[list[str]]:
    """Resolve with ``environ`` inside the block; yields the list that collects what OmegaConf warns about.

    ``inherit_from`` and ``copy`` give their own text back (contract-config 1.8). They are registered for the block only: NeMo Gym
    registers the same names at its import and refuses to find them taken.
    """
    with _lock:
        token = _environ.set(environ)
        added = [name for name in ("inherit_from", "copy") if not OmegaConf.has_resolver(name)]
        notes: list[str] = []
        try:
            for name in added:
                _register(name, _echo(name))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield notes
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    notes.append(" ".join(str(warning.message).split()))
                else:
                    warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        finally:
            for name in added:
                OmegaConf.clear_resolver(name)
            _environ.reset(token)


def is_interpolation(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


_HINTS = {
    "Recursive": "The value leads back to itself: give one key of the circle a value of its own.",
    "Unsupported": "Resolvers are oc.env, oc.select, oc.decode, oc.create, oc.dict.keys, oc.dict.values, copy, inherit_from.",
}
"""By the first word of what OmegaConf says."""


def interpolation_error(error: OmegaConfBaseException, known: Mapping[Any, Any] | None = None) -> ConfigInterpolationError:
    """The contract's error for what OmegaConf raised: config path, the key that is not there, how to set it."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    where = str(error.full_key) if getattr(error, "full_key", None) else None
    missing = re.search(r"Interpolation key '([^']+)' not found", text)
    if missing is None:
        variable = re.search(r"Environment variable '([^']+)' not found", text)
        if variable is None:
            return ConfigInterpolationError(text, where=where, hint=_HINTS.get(text.split(" ")[0]))
        return ConfigInterpolationError(
            f"environment variable '{variable.group(1)}' not found.",
            where=where,
            hint=f"Set it, or give a default: ${{oc.env:{variable.group(1)},<default>}}",
        )
    key = missing.group(1)
    close = close_matches(key, (str(name) for name in known or ()), cutoff=0.7)
    hint = f"Did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
    return ConfigInterpolationError(
        f"the value refers to '{key}', which is not set after merging.",
        where=where,
        hint=f"{hint}Set it in a config file, in env.yaml or on the command line: ++{key}=<value>",
    )


@dataclass(frozen=True)
class Place:
    """Where a value stands after interpolations were followed. ``path`` None: it was computed and stands nowhere in the tree.

    A container is the one in the tree itself, its own interpolations unresolved.
    """

    value: Any
    path: KeyPath | None


class Tree:
    """A merged config on its way. Use only inside ``environment``.

    ``view``: OmegaConf's object of the very same content, where the caller has it already; to make one is what costs most here.
    """

    def __init__(self, data: dict[Any, Any], view: DictConfig | None = None) -> None:
        self.data = data
        self._view = view

    @property
    def view(self) -> DictConfig:
        """OmegaConf's view; raises ConfigError when the tree holds text that is no valid interpolation."""
        if self._view is None:
            try:
                self._view = OmegaConf.create(self.data)
            except OmegaConfBaseException as error:
                raise ConfigError(str(error).splitlines()[0], where=str(error.full_key) if error.full_key else None) from error
        return self._view

    def changed(self) -> None:
        """The data was changed directly: the view is made again when it is needed."""
        self._view = None

    def put(self, path: KeyPath, value: Any) -> None:
        """Set one value in the data and, where there is one, in the view."""
        holder: Any = self.data
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
        if self._view is not None:
            node: Any = self._view
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = copy.deepcopy(value)

    def at(self, path: KeyPath) -> Place | None:
        """The value at ``path``, interpolations on the way and at its end followed; None when there is none, or ``???`` on the way.

        Raises ConfigInterpolationError when one of them cannot be resolved.
        """
        place: Place = Place(self.data, ())
        for step in path:
            holder = place.value
            if isinstance(holder, dict):
                raw = holder.get(step, _ABSENT)
            elif isinstance(holder, list) and isinstance(step, int) and 0 <= step < len(holder):
                raw = holder[step]
            else:
                return None
            if raw is _ABSENT:
                return None
            here = None if place.path is None else (*place.path, step)
            place = self._follow(here) if is_interpolation(raw) and here is not None else Place(raw, here)
        return place

    def value(self, path: KeyPath, default: Any = None) -> Any:
        """What stands at ``path``, followed; ``default`` when it is absent or ``???``."""
        place = self.at(path)
        return default if place is None or place.value == MISSING else place.value

    def fields(self, path: KeyPath) -> Iterator[tuple[Any, Place]]:
        """(key, place) of each entry of the mapping at ``path``, in order."""
        holder = self.at(path)
        if holder is None or not isinstance(holder.value, dict):
            return
        for key in list(holder.value):
            found = self.at((*holder.path, key)) if holder.path is not None else Place(holder.value[key], None)
            if found is not None:
                yield key, found

    def select(self, place: Place, *keys: str) -> dict[str, Any]:
        """The values of some keys of the mapping at ``place``, followed; keys that it does not have are left out.

        Raises ConfigInterpolationError when one of them cannot be resolved.
        """
        present = [key for key in keys if key in place.value]
        if place.path is None:
            return {key: place.value[key] for key in present}
        found = {key: self.at((*place.path, key)) for key in present}
        return {key: value.value for key, value in found.items() if value is not None}

    def resolved(self) -> dict[Any, Any]:
        """The whole tree with every interpolation resolved. Raises ConfigInterpolationError for the first that cannot be."""
        try:
            container = OmegaConf.to_container(self.view, resolve=True)
        except InterpolationResolutionError as error:
            raise interpolation_error(error, self.data) from error
        except OmegaConfBaseException as error:
            raise ConfigInterpolationError(str(error).splitlines()[0], where=str(error.full_key) if error.full_key else None) from error
        except RecursionError:
            raise ConfigInterpolationError("interpolations refer to each other in a circle") from None
        assert isinstance(container, dict)
        return container

    def _follow(self, path: KeyPath) -> Place:
        node: Any = self.view
        try:
            for step in path:
                node = node[step]
        except InterpolationResolutionError as error:
            raise interpolation_error(error, self.data) from error
        except OmegaConfBaseException as error:
            raise ConfigInterpolationError(str(error).splitlines()[0], where=".".join(map(str, path))) from error
        except RecursionError:
            raise ConfigInterpolationError("interpolations refer to each other in a circle", where=".".join(map(str, path))) from None
        if not OmegaConf.is_config(node):
            return Place(node, path)
        target = _path_of(node)
        holder: Any = self.data
        try:
            for step in target:
                holder = holder[step]
        except (KeyError, IndexError, TypeError):
            holder = None
        if target and isinstance(holder, dict | list):
            return Place(holder, target)
        # Made by a resolver (oc.create, oc.decode): it has no place in the tree.
        return Place(OmegaConf.to_container(node, resolve=False), None)


def _path_of(node: Any) -> KeyPath:
    """The path of an OmegaConf container in its root: its own key and those of its parents."""
    steps: list[str | int] = []
    while node is not None and node._key() is not None:
        steps.append(node._key())
        node = node._get_parent()
    return tuple(reversed(steps))
