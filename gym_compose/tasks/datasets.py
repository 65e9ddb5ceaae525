"""The datasets that a config declares, and which of them a split takes (contract-data 1.1, 3.1)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gym_compose.tasks.agents import resolve_dataset_agent
from gym_compose.tasks.errors import DatasetAgentError, DatasetError
from gym_compose.wire.names import ServerType
from gym_compose.wire.references import AGENT_TYPE, ENVIRONMENT_TYPE, RESOURCES_TYPE, server_blocks

SPLITS = ("train", "validation", "benchmark")
EXAMPLE = "example"
_TYPES = (*SPLITS, EXAMPLE)
_OWNERS = (RESOURCES_TYPE, AGENT_TYPE)
_NAMES: Mapping[str, str] = {"responses_api_models": "a model server", ENVIRONMENT_TYPE: "an environment server"}


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
    prepare_dependencies: tuple[str, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The element as the config has it."""

    @property
    def label(self) -> str:
        return f"dataset {self.name!r} ({self.type}) of {self.instance}"


def declared_datasets(config: Mapping[str, Any]) -> tuple[DeclaredDataset, ...]:
    """All datasets of a resolved config, in its order. Raises DatasetError naming the dataset and the field that is wrong."""
    found = []
    for kind in _OWNERS:
        for block in server_blocks(config, kind):
            for position, entry in enumerate(block.fields.get("datasets") or ()):
                where = f"{block.instance}.{kind}.{block.implementation}.datasets[{position}]"
                found.append(_declared(entry, block.instance, kind, where))
    order = {instance: number for number, instance in enumerate(config)}
    return tuple(sorted(found, key=lambda dataset: order[dataset.instance]))


def check_owners(config: Mapping[str, Any]) -> None:
    """Raise DatasetError when a model or environment server declares datasets: nothing would ever read them (contract-data 3.1)."""
    for block in server_blocks(config):
        if block.server_type not in _OWNERS and block.fields.get("datasets"):
            raise DatasetError(
                f"{_NAMES[block.server_type]} cannot declare datasets",
                where=f"{block.instance}.{block.server_type}.{block.implementation}.datasets",
                hint="Declare them on the resources server that verifies them, or on an agent that verifies itself.",
            )


def _declared(entry: Any, instance: str, kind: ServerType, where: str) -> DeclaredDataset:
    if not isinstance(entry, Mapping):
        raise DatasetError("a dataset is a mapping", where=where)
    for key in ("name", "type", "jsonl_fpath"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise DatasetError(f"{key} is missing or is no text", where=where)
    if entry["type"] not in _TYPES:
        raise DatasetError(f"type {entry['type']!r} is none of {', '.join(_TYPES)}", where=where)
    repeats = entry.get("num_repeats", 1)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise DatasetError(f"num_repeats is a number of 1 or more, not {repeats!r}", where=where)
    for key in ("taskset", "agent", "prepare_script", "prompt_config"):
        if entry.get(key) is not None and (not isinstance(entry[key], str) or not entry[key]):
            raise DatasetError(f"{key} is a text that is not empty", where=where)
    dependencies = entry.get("prepare_dependencies") or ()
    if not isinstance(dependencies, list | tuple) or not all(isinstance(line, str) and line for line in dependencies):
        raise DatasetError("prepare_dependencies is a list of texts that are not empty", where=where)
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
        prepare_dependencies=tuple(dependencies),
        declared=entry,
    )


def agent_of_dataset(config: Mapping[str, Any], dataset: DeclaredDataset) -> str | None:
    """``resolve_dataset_agent`` of a declared dataset; its DatasetAgentError names the dataset."""
    try:
        return resolve_dataset_agent(config, dataset.instance, pin=dataset.agent, taskset=dataset.taskset)
    except DatasetAgentError as error:
        raise DatasetAgentError(f"{dataset.label}: {error.message}", where=error.where, hint=error.hint) from None


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


def missing_datasets(datasets: Sequence[DeclaredDataset], roots: Sequence[Path]) -> tuple[DeclaredDataset, ...]:
    """Those whose file is in no root."""
    return tuple(dataset for dataset in datasets if locate(dataset.jsonl_fpath, roots) is None)


def located(
    datasets: Sequence[DeclaredDataset], roots: Sequence[Path], config: Mapping[str, Any] | None = None
) -> tuple[tuple[DeclaredDataset, Path], ...]:
    """Each dataset with its file.

    Raises one DatasetError that names all that are missing, each with the script that makes it and, with ``config``, the exact command
    that runs the script.
    """
    pairs = [(dataset, locate(dataset.jsonl_fpath, roots)) for dataset in datasets]
    missing = [dataset for dataset, path in pairs if path is None]
    if not missing:
        return tuple((dataset, path) for dataset, path in pairs if path is not None)
    details = []
    for dataset in missing:
        made = f"made by {dataset.prepare_script}" if dataset.prepare_script else "it has no prepare_script"
        details.append(f"{dataset.label}: {dataset.jsonl_fpath} ({made})")
    searched = ", ".join(str(root) for root in roots)
    made_by = next((dataset for dataset in missing if dataset.prepare_script), None)
    message = f"{missing[0].label} is not on disk: {missing[0].jsonl_fpath}"
    if len(missing) > 1:
        message = f"{len(missing)} datasets are not on disk: {', '.join(dataset.name for dataset in missing)}"
    hint = f"Relative paths are searched in {searched}."
    if made_by is not None:
        hint = f"Run `{prepare_command(config or {}, made_by, roots)}`: {made_by.prepare_script} makes it."
    raise DatasetError(message, hint=hint, details=tuple(details))


def prepare_command(config: Mapping[str, Any], dataset: DeclaredDataset, roots: Sequence[Path]) -> str:
    """The ``gym eval prepare`` that makes the dataset's file: with the config file that declares it, where one of ``config_paths`` does."""
    for entry in config.get("config_paths") or ():
        path = locate(str(entry), roots)
        if path is not None and _declares(_document(path), dataset):
            return f"gym eval prepare --config {shlex.quote(str(entry))}"
    return "gym eval prepare --config CONFIG"


def _document(path: Path) -> Any:
    try:
        return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except (OSError, yaml.YAMLError):
        return None  # the merge has read it, or refused it; here it only decides which file a hint names


def _declares(value: Any, dataset: DeclaredDataset) -> bool:
    if isinstance(value, Mapping):
        if value.get("jsonl_fpath") == dataset.jsonl_fpath and value.get("prepare_script") is not None:
            return True
        return any(_declares(item, dataset) for item in value.values())
    return isinstance(value, list) and any(_declares(item, dataset) for item in value)
