"""References between server instances (contract-config 1.11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gym_compose.config.errors import ServerRefNotFoundError
from gym_compose.config.instances import Recognised
from gym_compose.config.model import ServerReference
from gym_compose.wire.names import SERVER_TYPES, ServerType
from gym_compose.wire.suggestions import close_or_all

_AGENTS = "responses_api_agents"
_ENVIRONMENTS = "environment_servers"


def server_reference(value: Any) -> tuple[ServerType, str] | None:
    """(type, name) when the value is a mapping with one of the four types and a name; further keys do not matter."""
    if not isinstance(value, Mapping):
        return None
    kind, name = value.get("type"), value.get("name")
    return (kind, name) if kind in SERVER_TYPES and isinstance(name, str) else None


def check_reference(source: Recognised, field: str, reference: tuple[ServerType, str], instances: Sequence[Recognised]) -> None:
    """Raise ServerRefNotFoundError when no instance has that type and name: says which field, what is close, what there is."""
    kind, name = reference
    names = [instance.name for instance in instances if instance.server_type == kind]
    if name in names:
        return
    hint = close_or_all(name, names, what=f"Available {kind}")
    if kind == _AGENTS and source.server_type == _ENVIRONMENTS:
        hint += (
            f" An agent that was renamed by a top-level _inherit_from is followed when it has one new name; for any other renaming"
            f" update {field}.name of '{source.key}' ({'.'.join(str(step) for step in source.path)}.{field}.name) to the new name."
        )
    raise ServerRefNotFoundError(
        f"the field '{field}' refers to {kind}/'{name}', which the merged config does not define.",
        where=f"server instance '{source.key}'",
        hint=hint,
    )


def nested_references(value: Any, path: str = "") -> Iterator[tuple[str, tuple[ServerType, str]]]:
    """(dotted field, reference) for every reference inside a block, also in lists and deeper mappings; direct fields first come, too."""
    if isinstance(value, Mapping):
        reference = server_reference(value) if path else None
        if reference is not None:
            yield path, reference
        for key, inner in value.items():
            yield from nested_references(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from nested_references(inner, f"{path}[{index}]")


def collect_references(
    blocks: Mapping[str, Mapping[str, Any]], names: Mapping[tuple[ServerType, str], str]
) -> tuple[tuple[ServerReference, ...], tuple[str, ...]]:
    """All edges between instances, from resolved blocks by instance name, and a warning for each that leads nowhere.

    ``names`` leads from what a reference says to the instance. Direct fields were checked while parsing; deeper ones are only warned
    about (1.11).
    """
    found: list[ServerReference] = []
    warnings: list[str] = []
    for source, block in blocks.items():
        for field, (kind, target) in nested_references(block):
            checked = "." not in field and "[" not in field
            if (kind, target) in names:
                found.append(ServerReference(source, field, kind, names[kind, target], checked))
            elif not checked:
                warnings.append(f"{source}: the nested field '{field}' refers to {kind}/'{target}', which the config does not define.")
    return tuple(found), tuple(warnings)
