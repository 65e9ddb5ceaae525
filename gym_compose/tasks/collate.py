"""The declared datasets of a split as one file of rows (contract-data 3.4 step 4, 1.1)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym_compose.tasks.agents import resolve_dataset_agent
from gym_compose.tasks.datasets import DeclaredDataset, datasets_of_split, locate, located
from gym_compose.tasks.errors import DatasetError, RowError
from gym_compose.tasks.materialize import materialize
from gym_compose.tasks.prompt import Prompt, has_input, load_prompt
from gym_compose.tasks.rows import AGENT_REF, TASK_SOURCE, InputRow, read_rows

_DIRECTORY = "preprocessed_datasets"


@dataclass(frozen=True)
class Collation:
    """What was made: the file, its rows (repeats included), and what a user should know."""

    path: Path
    rows: int
    datasets: tuple[DeclaredDataset, ...]
    warnings: tuple[str, ...] = ()


def prepared_path(output: Path, split: str) -> Path:
    """Where the rows of a run with this output file stand: ``<output without its suffix>/preprocessed_datasets/<split>.jsonl``."""
    return output.with_suffix("") / _DIRECTORY / f"{split}.jsonl"


def collate(config: Mapping[str, Any], split: str, target: Path, roots: Sequence[Path]) -> Collation:
    """Write all rows of the split's datasets to ``target``, each line ``num_repeats`` times in a row.

    ``config`` is resolved; relative paths are searched in ``roots``. Every row gets ``task_source``, the instance that declares it; rows
    of a dataset with a taskset are materialized. Everything that can be checked without reading rows is checked first; the file
    appears whole or not at all, and nothing is written beside the sources. Raises DatasetError, DatasetAgentError, RowError.
    """
    datasets = datasets_of_split(config, split)
    for dataset in datasets:
        if dataset.taskset is not None:
            resolve_dataset_agent(config, dataset.instance, pin=dataset.agent, taskset=dataset.taskset)
    files = located(datasets, roots)
    prompts = {dataset: _prompt(dataset, roots) for dataset in datasets if dataset.type == "benchmark" and dataset.prompt_config}
    warnings: list[str] = []
    count = position = 0
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            for dataset, path in files:
                stamped = 0
                for source in read_rows(path):
                    stamped += AGENT_REF in source.row
                    line = orjson.dumps(_collated(dataset, source, path, prompts.get(dataset), position), option=orjson.OPT_APPEND_NEWLINE)
                    out.write(line * dataset.num_repeats)
                    count += dataset.num_repeats
                    position += 1
                if stamped:
                    warnings.append(f"{path}: agent_ref is left out of {stamped} rows; a declared dataset is routed by its instance")
        os.replace(part, target)
    except OSError as error:
        raise DatasetError(f"the rows cannot be written: {error.strerror}", where=str(target)) from None
    finally:
        part.unlink(missing_ok=True)
    return Collation(target, count, datasets, tuple(warnings))


def _collated(dataset: DeclaredDataset, source: InputRow, path: Path, prompt: Prompt | None, position: int) -> dict[str, Any]:
    row = source.row
    if prompt is not None:
        if has_input(row):
            raise RowError("the row has a responses_create_params.input, and its dataset a prompt_config", path=path, line=source.line)
        row = prompt.apply(row)
    row.pop(AGENT_REF, None)
    if dataset.taskset is None:
        row[TASK_SOURCE] = dataset.instance
        return row
    try:
        return materialize(row, dataset.taskset, position)
    except ValueError as error:
        raise RowError(str(error), path=path, line=source.line) from None


def _prompt(dataset: DeclaredDataset, roots: Sequence[Path]) -> Prompt:
    path = locate(dataset.prompt_config or "", roots)
    if path is None:
        raise DatasetError(f"its prompt_config is not on disk: {dataset.prompt_config}", where=dataset.label)
    return load_prompt(path)
