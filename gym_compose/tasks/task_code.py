"""A server's own code about its rows: ``task_data.py`` (a schema) and ``dataset_metrics.py`` (figures of a task).

Both are found here and run elsewhere: ``row_checker`` imports them in a process of its own, which whoever collates starts
(``RunRowCheck``). This package starts no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gym_compose.tasks.datasets import DeclaredDataset
from gym_compose.tasks.task_data import TaskDataReport
from gym_compose.wire.references import AGENT_TYPE, RESOURCES_TYPE, referenced_name, server_blocks

SCHEMA_FILE = "task_data.py"
METRICS_FILE = "dataset_metrics.py"


@dataclass(frozen=True)
class TaskCode:
    """The files of one server's implementation that say something of its rows; None for one that it does not have."""

    server: str
    schema: Path | None
    metrics: Path | None


class RowCheckRequest(BaseModel):
    """What ``row_checker`` is asked on stdin: one file of rows, and the code to look at them with."""

    rows: str
    repeats: int = 1
    taskset: str | None = None
    prompt: dict[str, str | None] | None = None
    """``user`` and ``system`` of the dataset's prompt template."""
    strict: bool = False
    """NeMo Gym's rule: figures of tasks are made for rows that are materialized in the file, and of no others."""
    schema_file: str | None = None
    metrics_file: str | None = None
    roots: list[str] = []
    """Search roots: schemas may import those of other servers."""


class RowCheckAnswer(BaseModel):
    """What it answers. ``report`` is None where no schema was applied; ``metrics`` are states of statistics, see
    ``running_statistics.restored``."""

    report: TaskDataReport | None = None
    metrics: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    error: str | None = None
    line: int | None = None
    """Of the rows' file, where the error has one."""


RunRowCheck = Callable[[RowCheckRequest, str], RowCheckAnswer]
"""Runs ``row_checker`` for a request; the text names the dataset. Raises TaskCodeError when the process does not end well."""


def find_task_code(config: Mapping[str, Any], dataset: DeclaredDataset, roots: Sequence[Path]) -> TaskCode | None:
    """The code about a dataset's rows; None when its home has neither file.

    Its home is the implementation of the resources server that declares the dataset or that the declaring agent refers to; for an agent
    without any ``resources_server``, its own. An agent whose reference leads nowhere has no home.
    """
    home = _home(config, dataset)
    if home is None:
        return None
    kind, implementation = home
    directory = next((found for root in roots if (found := root / kind / implementation).is_dir()), None)
    if directory is None:
        return None
    schema, metrics = directory / SCHEMA_FILE, directory / METRICS_FILE
    code = TaskCode(implementation, schema if schema.is_file() else None, metrics if metrics.is_file() else None)
    return code if code.schema is not None or code.metrics is not None else None


def _home(config: Mapping[str, Any], dataset: DeclaredDataset) -> tuple[str, str] | None:
    block = next((block for block in server_blocks(config, dataset.server_type) if block.instance == dataset.instance), None)
    if block is None:
        return None
    if dataset.server_type == RESOURCES_TYPE or block.fields.get("resources_server") is None:
        return (dataset.server_type, block.implementation) if dataset.server_type in (RESOURCES_TYPE, AGENT_TYPE) else None
    name = referenced_name(block.fields, "resources_server")
    owners = (other for other in server_blocks(config, RESOURCES_TYPE) if other.instance == name)
    return next(((RESOURCES_TYPE, owner.implementation) for owner in owners), None)
