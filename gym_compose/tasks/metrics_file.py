"""Metrics files of datasets: what one holds, when two agree, and what becomes of a conflict (contract-data 3.4 steps 3 to 5)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.tasks.dataset_metrics import EXAMPLES
from gym_compose.tasks.datasets import DeclaredDataset
from gym_compose.tasks.errors import DatasetError

_LARGE_TOLERANCE = 5e-3
_SMALL_TOLERANCE = 5e-4
_SOURCES = ("gitlab", "huggingface")


@dataclass(frozen=True)
class MetricsFile:
    """A metrics file as it is to be. ``path``: where it goes; ``compared``: the file that it has to agree with, when that is there; None:
    an earlier one is replaced."""

    path: Path
    content: Mapping[str, Any]
    compared: Path | None

    @property
    def conflict(self) -> Path:
        """Where the new figures go when the old ones do not agree."""
        return self.path.with_name(f"{self.path.stem}_conflict.json")


def dataset_block(dataset: DeclaredDataset, *, preparation: bool) -> dict[str, Any]:
    """The dataset's own keys in a metrics file: all but what routes its rows (``agent``, ``taskset``); ``preparation``: those of
    ``prepare_script`` too, which the file beside the data of a train, validation or example dataset does not have."""
    entry = dataset.declared
    block: dict[str, Any] = {"name": dataset.name, "type": dataset.type, "jsonl_fpath": dataset.jsonl_fpath}
    dependencies = list(entry.get("prepare_dependencies") or ())
    if dataset.type == "benchmark":
        block |= {"prepare_script": dataset.prepare_script, "prompt_config": dataset.prompt_config, "num_repeats": dataset.num_repeats}
        return {**block, "prepare_dependencies": dependencies}
    if preparation and dataset.prepare_script is not None:
        block["prepare_script"] = dataset.prepare_script
    if preparation and dependencies:
        block["prepare_dependencies"] = dependencies
    block["num_repeats"] = dataset.num_repeats
    return {**block, **_sources(entry), "license": entry.get("license")}


def _sources(entry: Mapping[str, Any]) -> dict[str, Any]:
    """``source`` and the older ``*_identifier`` keys, each made of the other where only one form is given."""
    source = dict(entry["source"]) if isinstance(entry.get("source"), Mapping) else None
    given = {kind: dict(entry[f"{kind}_identifier"]) for kind in _SOURCES if isinstance(entry.get(f"{kind}_identifier"), Mapping)}
    if source is not None and source.get("type") in _SOURCES:
        given = {str(source["type"]): {key: value for key, value in source.items() if key != "type"}}
    for kind, fields in given.items():
        if kind == "huggingface":
            fields.setdefault("artifact_fpath", None)
    if source is None and len(given) == 1:
        [(kind, fields)] = given.items()
        source = {"type": kind, **fields}
    return {"source": source, **{f"{kind}_identifier": given.get(kind) for kind in _SOURCES}}


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Where ``new`` does not hold what ``old`` does: every old key is there, numbers are close, lists hold the same elements in any order.

    New keys are no difference. Two decimal numbers are close within 5e-3, or 5e-4 when both are below 1.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key, value in old.items():
            inner = f"{place}.{key}" if place else str(key)
            found += differences(value, new[key], inner) if key in new else [f"{inner}: {_shown(value)} before, not there now"]
        return found
    if isinstance(old, list) and isinstance(new, list):
        left = list(new)
        for value in old:
            match = next((index for index, other in enumerate(left) if not differences(value, other)), None)
            if match is None:
                return [f"{place}: {_shown(old)} before, {_shown(new)} now"]
            left.pop(match)
        return [f"{place}: {_shown(old)} before, {_shown(new)} now"] if left else []
    if isinstance(old, float) and isinstance(new, float):
        tolerance = _LARGE_TOLERANCE if max(abs(old), abs(new)) >= 1 else _SMALL_TOLERANCE
        agree = abs(old - new) <= tolerance
    else:
        agree = old == new
    return [] if agree else [f"{place}: {_shown(old)} before, {_shown(new)} now"]


@dataclass(frozen=True)
class Reconciled:
    """What is to be done about metrics files: ``write`` them, and ``conflicts``: those that do not agree, each with its differences."""

    write: tuple[MetricsFile, ...]
    conflicts: tuple[tuple[MetricsFile, tuple[str, ...]], ...]


def reconcile(files: Sequence[MetricsFile], *, overwrite: bool) -> Reconciled:
    """Compare each file with what is on disk, and with an earlier one of the same path.

    A file that agrees is not written again. One that counts no row at all says nothing and is replaced. With ``overwrite`` one that does
    not agree is written too. Reads, writes nothing. Raises DatasetError for an old file that holds no JSON.
    """
    pending: dict[Path, Mapping[str, Any]] = {}
    write: list[MetricsFile] = []
    conflicts: list[tuple[MetricsFile, tuple[str, ...]]] = []
    for file in files:
        old = pending.get(file.path) or (None if file.compared is None else _read(file.compared))
        found = differences(old, file.content) if old is not None and old.get(EXAMPLES) != 0 else []
        if found:
            conflicts.append((file, tuple(found)))
            if not overwrite:
                continue
        elif old is not None and old.get(EXAMPLES) != 0:
            continue
        pending[file.path] = file.content
        write.append(file)
    return Reconciled(tuple(write), tuple(conflicts))


def conflict_error(conflicts: Sequence[tuple[MetricsFile, tuple[str, ...]]]) -> DatasetError:
    """The error of figures that do not agree: the first difference, and where the new figures stand."""
    file, found = conflicts[0]
    others = f", and of {len(conflicts) - 1} more files" if len(conflicts) > 1 else ""
    message = f"the figures of the rows are not those of the file{others}: {found[0]}"
    if len(found) > 1:
        message += f" (and {len(found) - 1} more differences)"
    return DatasetError(
        message,
        where=str(file.compared),
        hint=f"The new figures are in {file.conflict}. Delete the old file, or give ++overwrite_metrics_conflicts=true, if they are right.",
        details=tuple(f"{other.compared}: {line}" for other, lines in conflicts for line in lines),
    )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a document that appears whole or not at all. Raises DatasetError."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise DatasetError(f"the metrics cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        with suppress(OSError):  # there may be none, or no place for one; what ends this says so
            part.unlink()


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DatasetError(f"the metrics cannot be read: {error}", where=str(path), hint="Delete the file; it is made anew.") from None
    if not isinstance(content, Mapping):
        raise DatasetError("a metrics file holds a JSON object", where=str(path), hint="Delete the file; it is made anew.")
    return content


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
