"""``docs/peer-servers.md``: written from a run, and read again by the next to know what used to work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peer.beside import Compared
from bench.peer.run import Outcome

_HEADING = "| server | ready in | rollout | writable | reason where not |"
_BESIDE_HEADING = "| records beside NeMo Gym's own | rollouts | differences |"
_YES, _NO = "yes", "no"
_NOT_RUN = "not run"
_NONE = "none"


@dataclass(frozen=True)
class Line:
    """A row of the table. ``ready`` is text (seconds or ``no``)."""

    ready: str
    rollout: str
    writable: str
    reason: str

    @classmethod
    def of(cls, outcome: Outcome) -> Line:
        ready = f"{outcome.ready_seconds:.1f} s" if outcome.ready and outcome.ready_seconds is not None else _NO
        rollout = "" if outcome.rollout is None else _YES if outcome.rollout else _NO
        return cls(ready, rollout, _YES if outcome.writable else "", outcome.reason.replace("|", "/"))


def read(file: Path) -> dict[str, Line]:
    """The table of an earlier run by server, without those that were not run; empty without the file."""
    found: dict[str, Line] = {}
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if len(cells) == 5 and "/" in cells[0] and cells[1] != _NOT_RUN:
            found[cells[0]] = Line(*cells[1:])
    return found


def read_compared(file: Path) -> dict[str, Compared]:
    """The comparisons of an earlier run by label; empty without the file."""
    found: dict[str, Compared] = {}
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if len(cells) == 3 and "/" in cells[0] and cells[1].isdigit():
            found[cells[0]] = Compared(cells[0], int(cells[1]), () if cells[2] == _NONE else (cells[2],))
    return found


def text(lines: Mapping[str, Line], labels: Iterable[str], compared: Iterable[Compared] = ()) -> str:
    """The page. ``labels`` are all servers of the list; those without a line were not run yet."""
    known = list(labels)
    ready = sum(lines[label].ready != _NO for label in known if label in lines)
    rollouts = sum(lines[label].rollout == _YES for label in known if label in lines)
    writable = sum(lines[label].writable == _YES for label in known if label in lines)
    return "\n".join(
        (
            "# NeMo Gym's own servers in our images",
            "",
            "Written by `make peer`: each server directory of the nemo-gym 0.7.0 wheel that was seen to start without network and secrets, "
            "unmodified, from its own config, in hardened containers. A rollout is the first row of the named example data through our "
            "driver with a scripted model, 60 s at most.",
            "",
            f"**{ready} of {len(known)} servers ready, {rollouts} rollouts**; {writable} with a writable root.",
            "",
            *_beside(tuple(compared)),
            _HEADING,
            "|---|---|---|---|---|",
            *(_row(label, lines[label]) for label in known if label in lines),
            *(f"| {label} | {_NOT_RUN} | | | |" for label in known if label not in lines),
            "",
        )
    )


def lost(before: Mapping[str, Line], after: Mapping[str, Line]) -> list[str]:
    """Servers that were ready, or completed a rollout, and do not any more."""
    return [
        label
        for label, line in after.items()
        if (was := before.get(label)) is not None
        and ((was.ready != _NO and line.ready == _NO) or (was.rollout == _YES and line.rollout != _YES))
    ]


def _row(label: str, line: Line) -> str:
    return f"| {label} | {line.ready} | {line.rollout} | {line.writable} | {line.reason} |"


def _beside(compared: tuple[Compared, ...]) -> Iterable[str]:
    if not compared:
        return ()
    return (
        "The same rows through NeMo Gym alone (its servers, its driver, one container) and through our native servers and driver: records "
        "with the same keys in the same order and the same values but for ids and times, aggregate metrics equal to 1e-9.",
        "",
        _BESIDE_HEADING,
        "|---|---|---|",
        *(f"| {one.label} | {one.rollouts} | {'; '.join(one.differences).replace('|', '/') or _NONE} |" for one in compared),
        "",
    )
