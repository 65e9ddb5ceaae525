"""Merge directives: ``_inherit_from``, ``_copy``, ``_delete_key`` and their string forms (contract-config 1.7).

One pass over the merged tree. Sources are taken from a frozen copy and not processed again, so there is no chaining: a target that
inherits from another target gets that one's directive, not its result. The peer's configs rely on none of it and users' configs might,
so it is kept; ``diagnostics`` warns about what is left over.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any, Final

from gym_compose.config.agents import agent_instances
from gym_compose.config.environments import ENVIRONMENTS, agent_reference_fields, environment_servers, retarget
from gym_compose.config.errors import AmbiguousAgentRenameError, DirectiveError, InheritPathNotFoundError, MergeConflictError
from gym_compose.config.interpolation import MISSING, Tree, is_interpolation
from gym_compose.config.merge import merge_fragment
from gym_compose.config.model import KeyPath

INHERIT: Final = "_inherit_from"
COPY: Final = "_copy"
DELETE: Final = "_delete_key"
_INHERIT_TEXT = "${inherit_from:"
_COPY_TEXT = "${copy:"
_UNSET: Any = object()


def apply_directives(tree: Tree) -> None:
    """Carry out every directive of ``tree``, then let environment servers follow agents that were moved at top level.

    Raises InheritPathNotFoundError, DirectiveError, AmbiguousAgentRenameError, ConfigInterpolationError.
    """
    if not _needs_pass(tree.data):
        return
    frozen = Tree(copy.deepcopy(tree.data))
    agents = {agent.name for agent in agent_instances(frozen)}
    moves: dict[str, list[str]] = defaultdict(list)
    for name, value in frozen.data.items():
        source = _moved_from(value)
        if source in agents:
            moves[source].append(name)
    _Pass(tree, frozen).node(tree.data, ())
    tree.changed()
    _follow_renames(tree, moves)


def _needs_pass(node: Any) -> bool:
    if isinstance(node, dict):
        return any(key in node for key in (INHERIT, COPY, DELETE)) or any(map(_needs_pass, node.values()))
    if isinstance(node, list):
        return any(is_interpolation(element) or _needs_pass(element) for element in node)
    return isinstance(node, str) and node.startswith((_INHERIT_TEXT, _COPY_TEXT))


def _moved_from(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_INHERIT_TEXT):
        return value.removeprefix(_INHERIT_TEXT).removesuffix("}")
    source = value.get(INHERIT) if isinstance(value, dict) else None
    return source if isinstance(source, str) else None


class _Pass:
    """The walk over the live tree, children first."""

    def __init__(self, live: Tree, frozen: Tree) -> None:
        self.live = live
        self.frozen = frozen

    def node(self, holder: dict[Any, Any], path: KeyPath) -> None:
        for key, value in list(holder.items()):
            here = (*path, key)
            inherited_deletes = self._delete_own(value, here) if _has(value, DELETE) else []
            if isinstance(value, dict):
                self.node(value, here)
            elif isinstance(value, list):
                for index, element in enumerate(value):
                    if isinstance(element, dict):
                        self.node(element, (*here, index))
                    elif is_interpolation(element):
                        # The peer reads list elements resolved here, so a broken one ends the parse before anything else is checked.
                        self.live.at((*here, index))
            self._swap(holder, key, value, here, inherited_deletes)

    def _delete_own(self, value: dict[Any, Any], here: KeyPath) -> list[str]:
        """Remove the named keys that the node itself has; the rest is for after the inheritance."""
        names = self._text(value, DELETE, here)
        wanted = list(dict.fromkeys(name.strip() for name in names.split(",")))
        present = [name for name in wanted if _has(value, name)]
        for name in present:
            self._remove(value, name, here)
        return [name for name in wanted if name not in present]

    def _swap(self, holder: dict[Any, Any], key: Any, value: Any, here: KeyPath, deletes: list[str]) -> None:
        text = value if isinstance(value, str) else ""
        moves = text.startswith(_INHERIT_TEXT) or _has(value, INHERIT)
        copies = text.startswith(_COPY_TEXT) or _has(value, COPY)
        if not (moves or copies):
            return
        source = ""
        if isinstance(value, dict):
            if moves:
                source = self._text(value, INHERIT, here)
            if copies:
                source = self._text(value, COPY, here)
        else:
            source = text.removeprefix(_INHERIT_TEXT if moves else _COPY_TEXT).removesuffix("}")
        steps = source.split(".")
        above = self._index(self.live, steps[:-1], steps, here)
        if above is not _UNSET and not isinstance(above, dict):
            raise _not_found(steps, here)
        if moves and above is not _UNSET:
            above.pop(steps[-1], None)
            self.live.changed()
        found = self._index(self.frozen, steps, steps, here)
        if above is _UNSET or found is _UNSET:
            holder[key] = MISSING
            self.live.changed()
            return
        if isinstance(value, dict):
            if not isinstance(found, dict):
                kind = "a list" if isinstance(found, list) else "a single value"
                raise DirectiveError(
                    f"'{source}' is {kind}, so a mapping cannot inherit from it.",
                    where=_dotted(here),
                    hint=f"Write {_dotted(here)}: ${{inherit_from:{source}}} or ${{copy:{source}}} to take the value as it is.",
                )
            try:
                found = merge_fragment(found, value, self.frozen)
            except MergeConflictError as error:
                raise MergeConflictError(error.message, where=_dotted(here), hint=f"It stands over what '{source}' holds.") from error
        holder[key] = copy.deepcopy(found)
        self.live.changed()
        for name in deletes:
            if name not in holder[key]:
                raise DirectiveError(
                    f"{DELETE} names '{name}', which neither this block nor '{source}' has.",
                    where=_dotted(here),
                    hint="Check the spelling.",
                )
            self._remove(holder[key], name, here)

    def _text(self, value: dict[Any, Any], directive: str, here: KeyPath) -> str:
        """Take the directive out of the node; its value has to be text."""
        text = self.live.value((*here, directive)) if is_interpolation(value[directive]) else value[directive]
        del value[directive]
        if not isinstance(text, str):
            form = "text with the names of keys, separated by commas" if directive == DELETE else "a dotted path"
            raise DirectiveError(f"{directive} has to be {form}, not {text!r}.", where=_dotted(here))
        return text

    def _remove(self, holder: dict[Any, Any], name: str, here: KeyPath) -> None:
        if is_interpolation(holder[name]):
            # The peer resolves what it removes; a broken interpolation ends the parse there.
            self.live.at((*here, name))
        del holder[name]
        self.live.changed()

    def _index(self, tree: Tree, steps: list[str], whole: list[str], here: KeyPath) -> Any:
        """The value at a dotted path; _UNSET when it or one above it is ``???``."""
        value: Any = tree.data
        for count, step in enumerate(steps, 1):
            if not isinstance(value, dict) or step not in value:
                raise _not_found(whole, here)
            value = value[step]
            if value == MISSING:
                return _UNSET
            if is_interpolation(value) and not value.startswith((_INHERIT_TEXT, _COPY_TEXT)):
                place = tree.at(tuple(steps[:count]))
                value = None if place is None else place.value
        return value


def _not_found(steps: list[str], here: KeyPath) -> InheritPathNotFoundError:
    return InheritPathNotFoundError(
        f"the path {steps} that it inherits from is not in the merged config.",
        where=_dotted(here),
        hint="The path starts at the root and is split at its dots; a block that another one inherited is gone (use _copy to keep it).",
    )


def _has(value: Any, key: str) -> bool:
    """Whether a mapping has the key: ``???`` counts as absent (OmegaConf's ``in``)."""
    return isinstance(value, dict) and value.get(key, MISSING) != MISSING


def _follow_renames(tree: Tree, moves: dict[str, list[str]]) -> None:
    """Environment servers follow an agent that moved to one new name; several new names are an error where one is named."""
    if not moves:
        return
    agents = {agent.name for agent in agent_instances(tree)}
    gone = {source: [name for name in names if name in agents] for source, names in moves.items() if source not in tree.data}
    ambiguous = {source: names for source, names in gone.items() if len(names) > 1}
    if ambiguous:
        _refuse_ambiguous(tree, ambiguous)
    renames = {source: names[0] for source, names in gone.items() if len(names) == 1}
    if renames:
        retarget(tree, renames)


def _refuse_ambiguous(tree: Tree, ambiguous: dict[str, list[str]]) -> None:
    for instance, implementation, server in environment_servers(tree, follow=False):
        for field, _, reference in agent_reference_fields(tree, server, follow=False):
            source = reference.get("name")
            if isinstance(source, str) and source in ambiguous:
                targets = ", ".join(repr(name) for name in ambiguous[source])
                path = f"{instance}.{ENVIRONMENTS}.{implementation}.{field}.name"
                raise AmbiguousAgentRenameError(
                    f"it names the agent '{source}', which was moved to several names: {targets}.",
                    where=path,
                    hint=f"Set {path} to one of them and give each other one an environment server of its own.",
                )


def _dotted(path: KeyPath) -> str:
    return ".".join(str(step) for step in path)
