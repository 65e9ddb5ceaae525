"""Which of several trees a server comes from, and why: said in the plan, and as a warning where the user may not have meant it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gym_compose.config.model import Origin, ServerSource

_WHY: Mapping[Origin, str] = {
    "user": "a directory of yours wins over ours and NeMo Gym's, and the first search root over the next",
    "native": "of ours and NeMo Gym's, ours is the lighter one (compose: {runtime: nemo-gym} takes the other)",
    "wheel": "compose: {runtime: nemo-gym} prefers NeMo Gym's to ours",
}


def tree_note(source: ServerSource) -> str | None:
    """What the plan says of a server that several trees have; None for one that a single tree has."""
    if not source.shadowed:
        return None
    return f"{source.directory} is used, not {', '.join(source.shadowed)}: {_WHY[source.origin]}"


def tree_warnings(sources: Iterable[ServerSource]) -> Iterator[str]:
    """A line for each server of the user's that hides another one: its name may have been taken by accident."""
    for source in sources:
        note = tree_note(source)
        if source.origin == "user" and note is not None:
            yield f"{source.server_type}/{source.implementation} is in several trees: {note}."
