"""Which evaluations a config has: each declared dataset and who runs it (contract-data 3.8). Nothing is started, no row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gym_compose.config import NO_MODEL
from gym_compose.config.interpolation import environment
from gym_compose.config.layers import Overrides, read_sources
from gym_compose.config.load import resolve_what_can_be
from gym_compose.config.ports import OfflinePorts
from gym_compose.config.resolve import merge_sources
from gym_compose.tasks.agents import resolve_dataset_agent, taskset_environment_server
from gym_compose.tasks.datasets import DeclaredDataset, declared_datasets
from gym_compose.tasks.errors import DatasetAgentError, DatasetError
from gym_compose.wire.references import server_blocks

OPEN_VALUE: Final = "open-value"
"""Stands for what only a run has: an endpoint, a key, a variable of the environment."""
BENCHMARK: Final = "benchmark"


@dataclass(frozen=True)
class Evaluation:
    """A dataset and who runs it.

    ``agent_name``: None when the taskset's environment server fronts several agents without an ``agent_server``.
    ``environment_server``: that of the dataset's taskset; None for a dataset that is routed by its agent.
    ``domain``, ``description``: those of the instance that declares the dataset; empty where it says none.
    """

    dataset: DeclaredDataset
    agent_name: str | None
    environment_server: str | None
    domain: str = ""
    description: str = ""


def read_listing_config(
    overrides: Overrides, *, cwd: Path, environ: Mapping[str, str], roots: Sequence[Path], environment_file: bool = True
) -> dict[str, Any]:
    """The resolved config of some overrides, with ``OPEN_VALUE`` where a value is open and a stand-in for the policy model.

    Raises ConfigError for anything else that is wrong with it.
    """
    with environment(environ):
        sources = read_sources(overrides, roots=roots, initial=NO_MODEL, environment_file=environment_file)
        merged = merge_sources(sources, cwd=cwd, environ=environ, ports=OfflinePorts(), open_values=OPEN_VALUE)
        resolved, _ = resolve_what_can_be(merged.tree)
    return resolved


def evaluations(config: Mapping[str, Any]) -> tuple[Evaluation, ...]:
    """The evaluations of a resolved config, in its order.

    Raises DatasetError for a dataset that is none, and one DatasetAgentError that lists all whose agent or environment server cannot be
    told.
    """
    found, problems = [], []
    for dataset in declared_datasets(config):
        try:
            found.append(_evaluation(config, dataset))
        except DatasetAgentError as error:
            problems.append((dataset, error))
    if problems:
        dataset, first = problems[0]
        more = f" (and {len(problems) - 1} more datasets)" if len(problems) > 1 else ""
        details = tuple(f"{other.label}: {error.message}" for other, error in problems) if len(problems) > 1 else ()
        raise DatasetAgentError(f"{first.message}{more}.", where=dataset.label, hint=first.hint, details=details) from first
    return tuple(found)


def benchmark_evaluation(config: Mapping[str, Any]) -> Evaluation | None:
    """The evaluation of a benchmark's config; None when it declares no benchmark dataset.

    Raises DatasetError when it declares several: such a config is a suite, with no name, agent or number of repeats of its own.
    """
    declared = [dataset for dataset in declared_datasets(config) if dataset.type == BENCHMARK]
    if len(declared) > 1:
        names = ", ".join(dataset.name for dataset in declared)
        raise DatasetError(f"it has {len(declared)} benchmark datasets, so it is a suite and not one evaluation: {names}")
    if not declared:
        return None
    try:
        return _evaluation(config, declared[0])
    except DatasetAgentError as error:
        raise DatasetAgentError(f"{error.message}.", where=declared[0].label, hint=error.hint) from error


def _evaluation(config: Mapping[str, Any], dataset: DeclaredDataset) -> Evaluation:
    agent = resolve_dataset_agent(config, dataset.instance, pin=dataset.agent, taskset=dataset.taskset)
    block = next(iter(server_blocks({dataset.instance: config[dataset.instance]}, dataset.server_type)))
    return Evaluation(
        dataset,
        agent,
        taskset_environment_server(config, dataset.taskset),
        *(_text(block.fields.get(key)) for key in ("domain", "description")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value != OPEN_VALUE else ""
