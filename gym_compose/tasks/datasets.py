"""The datasets that a config declares, and which of them a split takes (contract-data 1.1, 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.tasks.errors import DatasetError
from gym_compose.wire.names import ServerType
from gym_compose.wire.references import AGENT_TYPE, RESOURCES_TYPE, server_blocks

SPLITS = ("train", "validation", "benchmark")
EXAMPLE = "example"
_TYPES = (*SPLITS, EXAMPLE)


@dataclass(frozen=True)
class DeclaredDataset:
    """One element of ``datasets:`` of a resources server or an agent. ``jsonl_fpath`` as the config says."""

    instance: str
    server_type: ServerType
    name: str
    type: str
    jsonl_fpath: str
    num_repeats: int = 1
    taskset: str | None = None
    agent: str | None = None
    prepare_script: str | None = None
    prompt_config: str | None = None

    @property
    def label(self) -> str:
        return f"dataset {self.name!r} ({self.type}) of {self.instance}"


def declared_datasets(config: Mapping[str, Any]) -> tuple[DeclaredDataset, ...]:
    """All datasets of a resolved config, in its order. Raises DatasetError naming the dataset and the field that is wrong."""
    found = []
    for kind in (RESOURCES_TYPE, AGENT_TYPE):
        for block in server_blocks(config, kind):
            for position, entry in enumerate(block.fields.get("datasets") or ()):
                where = f"{block.instance}.{kind}.{block.implementation}.datasets[{position}]"
                found.append(_declared(entry, block.instance, kind, where))
    order = {instance: number for number, instance in enumerate(config)}
    return tuple(sorted(found, key=lambda dataset: order[dataset.instance]))


def _declared(entry: Any, instance: str, kind: ServerType, where: str) -> DeclaredDataset:
    if not isinstance(entry, Mapping):
        raise DatasetError("a dataset is a mapping", where=where)
    for field in ("name", "type", "jsonl_fpath"):
        if not isinstance(entry.get(field), str) or not entry[field]:
            raise DatasetError(f"{field} is missing or is no text", where=where)
    if entry["type"] not in _TYPES:
        raise DatasetError(f"type {entry['type']!r} is none of {', '.join(_TYPES)}", where=where)
    repeats = entry.get("num_repeats", 1)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise DatasetError(f"num_repeats is a number of 1 or more, not {repeats!r}", where=where)
    for field in ("taskset", "agent", "prepare_script", "prompt_config"):
        if entry.get(field) is not None and (not isinstance(entry[field], str) or not entry[field]):
            raise DatasetError(f"{field} is a text that is not empty", where=where)
    return DeclaredDataset(
        instance=instance,
        server_type=kind,
        name=entry["name"],
        type=entry["type"],
        jsonl_fpath=entry["jsonl_fpath"],
        num_repeats=repeats,
        taskset=entry.get("taskset"),
        agent=entry.get("agent"),
        prepare_script=entry.get("prepare_script"),
        prompt_config=entry.get("prompt_config"),
    )


def check_split(split: str, options: Mapping[str, Any]) -> None:
    """Refuse what a run that serves itself cannot take (contract-data 1.1): the example split, and an ``input_jsonl_fpath``."""
    if options.get("input_jsonl_fpath") is not None:
        raise DatasetError(
            "input_jsonl_fpath cannot be combined with a run that starts its own servers: the rows come from the declared datasets",
            hint="Use `gym eval run --no-serve --input FILE` against running servers.",
        )
    if split == EXAMPLE:
        raise DatasetError(
            "the split `example` cannot be run end to end", hint=f"Choose one of {', '.join(SPLITS)}, or use --no-serve --input."
        )
    if split not in SPLITS:
        raise DatasetError(f"there is no split {split!r}", hint=f"Choose one of {', '.join(SPLITS)}.")


def datasets_of_split(config: Mapping[str, Any], split: str) -> tuple[DeclaredDataset, ...]:
    """The datasets of a split. Raises DatasetError that lists what is declared when there is none."""
    declared = declared_datasets(config)
    chosen = tuple(dataset for dataset in declared if dataset.type == split)
    if chosen:
        return chosen
    listed = tuple(f"{dataset.label}: {dataset.jsonl_fpath}" for dataset in declared)
    examples = [dataset for dataset in declared if dataset.type == EXAMPLE]
    hint = "Declare one under `datasets:` of a resources server or an agent."
    if examples:
        hint = f"An example file runs with `gym eval run --no-serve --input {examples[0].jsonl_fpath}` against running servers."
    raise DatasetError(f"the config declares no dataset of split {split!r}", hint=hint, details=listed or ("no dataset is declared",))


def locate(path: str, roots: Sequence[Path]) -> Path | None:
    """A file that a config names: absolute, or below the first of ``roots`` that has it; None when it is not on disk."""
    given = Path(path)
    for candidate in [given] if given.is_absolute() else [root / given for root in roots]:
        if candidate.is_file():
            return candidate.absolute()
    return None


def located(datasets: Sequence[DeclaredDataset], roots: Sequence[Path]) -> tuple[tuple[DeclaredDataset, Path], ...]:
    """Each dataset with its file. Raises one DatasetError that names all that are missing, each with its prepare script."""
    pairs = [(dataset, locate(dataset.jsonl_fpath, roots)) for dataset in datasets]
    missing = [dataset for dataset, path in pairs if path is None]
    if not missing:
        return tuple((dataset, path) for dataset, path in pairs if path is not None)
    details = []
    for dataset in missing:
        made = f"made by {dataset.prepare_script}" if dataset.prepare_script else "it has no prepare_script"
        details.append(f"{dataset.label}: {dataset.jsonl_fpath} ({made})")
    searched = ", ".join(str(root) for root in roots)
    script = next((dataset.prepare_script for dataset in missing if dataset.prepare_script), None)
    message = f"{missing[0].label} is not on disk: {missing[0].jsonl_fpath}"
    if len(missing) > 1:
        message = f"{len(missing)} datasets are not on disk: {', '.join(dataset.name for dataset in missing)}"
    hint = f"Run {script} first." if script else f"Relative paths are searched in {searched}."
    raise DatasetError(message, hint=hint, details=tuple(details))
