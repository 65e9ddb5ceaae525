"""The declared datasets of a config as one file of rows for each type (contract-data 3.4, 1.1).

Everything that can be checked without reading rows is checked first. Then each row is read once; what comes of it goes into part files
and running figures, so memory does not grow with the rows. Files appear at the end, when nothing was found wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from gym_compose.tasks.datasets import EXAMPLE, SPLITS, DeclaredDataset, agent_of_dataset, check_owners, declared_datasets, locate, located
from gym_compose.tasks.errors import DatasetError
from gym_compose.tasks.metrics_file import MetricsFile, conflict_error, reconcile, write_json
from gym_compose.tasks.prompt import Prompt, load_prompt
from gym_compose.tasks.type_collation import Source, Tools, TypeCollation

_DIRECTORY = "preprocessed_datasets"
MODES: Final[Mapping[str, tuple[str, ...]]] = {"train_preparation": SPLITS, "example_validation": (EXAMPLE,)}
"""The types of datasets that each mode takes."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
Validation = Literal["off", "warn", "error", "auto"]


@dataclass(frozen=True)
class CollationOptions:
    """How to collate. ``directory``: where ``<type>.jsonl`` and ``<type>_metrics.json`` go.

    ``beside``: the metrics of a dataset without a metrics file are written beside its data, where that can be written and is not below
    one of ``installed`` (trees that are not the user's); else into ``directory``. ``strict``: NeMo Gym's behaviour wherever ours differs.
    ``replace_type_metrics``: metrics of an earlier time in ``directory`` are no conflict (the directory is one run's own).
    """

    directory: Path
    types: tuple[str, ...] = SPLITS
    validation: Literal["off", "warn", "error"] = "warn"
    overwrite_metrics: bool = False
    beside: bool = True
    installed: tuple[Path, ...] = ()
    strict: bool = False
    replace_type_metrics: bool = False


@dataclass(frozen=True)
class CollatedFile:
    """One type's file: its rows (repeats included), the source rows behind them, its metrics file."""

    type: str
    path: Path
    rows: int
    sources: int
    datasets: tuple[DeclaredDataset, ...]
    metrics: Path


@dataclass(frozen=True)
class Collation:
    """What was made, and what a user should know."""

    files: tuple[CollatedFile, ...]
    metrics: tuple[Path, ...] = ()
    """Metrics files of single datasets that were written."""
    warnings: tuple[str, ...] = ()

    def file(self, kind: str) -> CollatedFile:
        """The file of a type. Raises KeyError when it was not made."""
        for found in self.files:
            if found.type == kind:
                return found
        raise KeyError(kind)


def prepared_path(output: Path, split: str) -> Path:
    """Where the rows of a run with this output file stand: ``<output without its suffix>/preprocessed_datasets/<split>.jsonl``."""
    return output.with_suffix("") / _DIRECTORY / f"{split}.jsonl"


def effective_validation(wanted: Validation, mode: str) -> Literal["off", "warn", "error"]:
    """``auto`` is ``error`` for examples, which are a repository's own, and ``warn`` for a user's data."""
    if wanted != "auto":
        return wanted
    return "error" if mode == "example_validation" else "warn"


def chosen_datasets(config: Mapping[str, Any], types: Sequence[str]) -> tuple[DeclaredDataset, ...]:
    """The datasets of these types, in the order of the config; each taskset among them is routed to a server that can run it.

    Raises DatasetError for none at all or a wrong declaration, DatasetAgentError naming the dataset whose route is wrong.
    """
    check_owners(config)
    declared = declared_datasets(config)
    chosen = tuple(dataset for dataset in declared if dataset.type in types)
    if not chosen:
        listed = tuple(f"{dataset.label}: {dataset.jsonl_fpath}" for dataset in declared) or ("no dataset is declared",)
        raise DatasetError(
            f"the config declares no dataset of type {', '.join(types)}",
            hint="Declare one under `datasets:` of a resources server or an agent.",
            details=listed,
        )
    for dataset in chosen:
        if dataset.taskset is not None:
            agent_of_dataset(config, dataset)
    return chosen


def collate(config: Mapping[str, Any], options: CollationOptions, roots: Sequence[Path], tools: Tools) -> Collation:
    """Write the rows of each type to ``<type>.jsonl``, each line ``num_repeats`` times in a row, and the metrics of all of them.

    ``config`` is resolved; relative paths are searched in ``roots``. A row gets ``task_source``, the instance that declares it, and loses
    ``agent_ref``; rows of a taskset are materialized. Raises DatasetAgentError, DatasetError, RowError, TaskDataError, TaskCodeError;
    then the files of an earlier collation are as they were. Metrics that do not agree with an earlier file are DatasetError too: the
    new ones are then beside it as ``…_conflict.json``.
    """
    datasets = chosen_datasets(config, options.types)
    prompts = {dataset: _prompt(dataset, roots) for dataset in datasets if dataset.type == "benchmark" and dataset.prompt_config}
    sources = tuple(Source(dataset, path, prompts.get(dataset)) for dataset, path in located(datasets, roots, config))
    with ExitStack() as stack:
        made = []
        for kind in options.types:
            mine = tuple(source for source in sources if source.dataset.type == kind)
            if mine:
                work = stack.enter_context(TypeCollation(options.directory / f"{kind}.jsonl", mine, strict=options.strict, tools=tools))
                work.run(config, roots, options.validation)
                made.append(work)
        return _finish(made, options)


def _finish(made: Sequence[TypeCollation], options: CollationOptions) -> Collation:
    """Compare the metrics with those of earlier times, then put everything in its place."""
    wholes = []
    for work in made:
        path = options.directory / f"{work.type}_metrics.json"
        wholes.append(MetricsFile(path, work.type_metrics(), None if options.replace_type_metrics else path))
    files = [_beside(source, content, options) for work in made for source, content in work.dataset_metrics()]
    found = reconcile(files, overwrite=options.overwrite_metrics)
    if found.conflicts and not options.overwrite_metrics:
        for file, _ in found.conflicts:
            write_json(file.conflict, file.content)
        for file in found.write:
            write_json(file.path, file.content)
        raise conflict_error(found.conflicts)
    for file in found.write:
        write_json(file.path, file.content)
    totals = reconcile(wholes, overwrite=options.overwrite_metrics)
    refused = () if options.overwrite_metrics else totals.conflicts
    stuck = {file.path for file, _ in refused}
    results = []
    for work, file in zip(made, wholes, strict=True):
        if file.path in stuck:
            write_json(file.conflict, file.content)
            continue
        work.publish()
        write_json(file.path, file.content)
        datasets = tuple(source.dataset for source in work.sources)
        results.append(CollatedFile(work.type, work.target, work.rows, work.read, datasets, file.path))
    if refused:
        raise conflict_error(refused)
    warnings = [warning for work in made for warning in work.warnings]
    warnings += [f"{file.compared}: its figures were others and were replaced: {lines[0]}" for file, lines in found.conflicts]
    return Collation(tuple(results), tuple(file.path for file in found.write), tuple(warnings))


def _beside(source: Source, content: Mapping[str, Any], options: CollationOptions) -> MetricsFile:
    """Where a dataset's metrics go, and what they are compared with: the file beside the data, when there is one."""
    dataset = source.dataset
    beside = source.path.with_name(f"{source.path.stem}_metrics.json")
    name = _UNSAFE.sub("-", f"{dataset.type}.{dataset.instance}.{dataset.name}.{source.path.stem}_metrics.json")
    inside = options.directory / name
    ours = not any(source.path.is_relative_to(root) for root in options.installed)
    writable = ours and os.access(beside.parent, os.W_OK) and (not beside.exists() or os.access(beside, os.W_OK))
    if beside.exists():
        return MetricsFile(beside if writable else inside, content, beside)
    if writable and options.beside:
        return MetricsFile(beside, content, beside)
    return MetricsFile(inside, content, None if options.replace_type_metrics else inside)


def _prompt(dataset: DeclaredDataset, roots: Sequence[Path]) -> Prompt:
    path = locate(dataset.prompt_config or "", roots)
    if path is None:
        raise DatasetError(f"its prompt_config is not on disk: {dataset.prompt_config}", where=dataset.label)
    return load_prompt(path)
