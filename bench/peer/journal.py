"""What a run of the list has done so far, so that an interrupted one can go on: one line for each server, the table before it in front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import orjson

from bench.peer.report import Line


class Journal:
    """A JSONL file. ``before`` is the table that the run is compared with, ``done`` what it has done."""

    def __init__(self, file: Path, before: Mapping[str, Line], *, resume: bool) -> None:
        """Begin anew, or with ``resume`` go on with what the file holds; without such a file that is the same."""
        self._file = file
        self.before = dict(before)
        self.done: dict[str, Line] = {}
        if resume and file.is_file():
            first, *others = (orjson.loads(line) for line in file.read_bytes().splitlines())
            self.before = {label: Line(**line) for label, line in first.items()}
            self.done = {label: Line(**line) for entry in others for label, line in entry.items()}
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_line(self.before))

    def add(self, label: str, line: Line) -> None:
        self.done[label] = line
        with self._file.open("ab") as stream:
            stream.write(_line({label: line}))


def _line(lines: Mapping[str, Line]) -> bytes:
    return orjson.dumps({label: asdict(line) for label, line in lines.items()}) + b"\n"
