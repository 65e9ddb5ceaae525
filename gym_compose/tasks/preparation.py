"""``gym eval prepare``: which scripts make which files, and whether they can (contract-data 3.7). They run elsewhere: ``script_runner``."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from gym_compose.tasks.agents import taskset_environment_server
from gym_compose.tasks.datasets import DeclaredDataset, agent_of_dataset, check_owners, declared_datasets, locate
from gym_compose.tasks.errors import DatasetError, PrepareError

FUNCTION: Final = "prepare"


class ScriptRequest(BaseModel):
    """What ``script_runner`` is asked on stdin."""

    script: str
    module: str | None
    """Its dotted name below one of ``roots``, so that it can import what stands beside it; None for a script that is below none."""
    roots: list[str]
    jsonl_fpath: str
    """The file that is wanted, as the config says."""
    arguments: dict[str, Any] = {}


class ScriptAnswer(BaseModel):
    """``path``: what ``prepare`` returned, absolute; else ``error``."""

    path: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Preparation:
    """A dataset and the script that makes its file. ``agent`` and ``environment_server``: who will run its rows, where that is known."""

    dataset: DeclaredDataset
    script: Path
    places: tuple[Path, ...]
    """Where the file may be made: the dataset's path below each search root."""
    agent: str | None
    environment_server: str | None

    def request(self, roots: Sequence[Path], arguments: Mapping[str, Any]) -> ScriptRequest:
        """What ``script_runner`` needs to run the script."""
        root = next((root for root in roots if self.script.is_relative_to(root)), None)
        module = None if root is None else ".".join(self.script.relative_to(root).with_suffix("").parts)
        return ScriptRequest(
            script=str(self.script),
            module=module,
            roots=list(map(str, roots)),
            jsonl_fpath=self.dataset.jsonl_fpath,
            arguments=dict(arguments),
        )

    def check(self, made: Path) -> None:
        """Raise PrepareError when ``made``, which the script returned, is not the dataset's file or not there."""
        if not any(made == place or made.resolve() == place.resolve() for place in self.places):
            raise PrepareError(
                f"prepare() made {made}, and the dataset's file is {self.dataset.jsonl_fpath} ({self.places[0]})",
                where=self.where,
                hint="jsonl_fpath and what prepare() returns are one path.",
            )
        if not made.is_file():
            raise PrepareError(f"prepare() returned {made}, and there is no such file", where=self.where)

    @property
    def where(self) -> str:
        return f"{self.dataset.prepare_script} of {self.dataset.label}"


def preparations(config: Mapping[str, Any], roots: Sequence[Path]) -> tuple[Preparation, ...]:
    """Every benchmark dataset and every other one with a ``prepare_script``, in the order of the config.

    Runs nothing. Raises DatasetError for none at all, DatasetAgentError for one that no agent runs, and one DatasetError that lists every
    script that is missing or has no ``prepare`` function.
    """
    check_owners(config)
    declared = declared_datasets(config)
    wanted = [dataset for dataset in declared if dataset.type == "benchmark" or dataset.prepare_script]
    if not wanted:
        raise DatasetError(
            "the config declares no benchmark dataset, and no other dataset with a prepare_script",
            hint="Give a config that does: gym eval prepare --config PATH or --benchmark NAME.",
            details=tuple(f"{dataset.label}: no prepare_script" for dataset in declared) or ("no dataset is declared",),
        )
    found, wrong = [], []
    for dataset in wanted:
        agent = agent_of_dataset(config, dataset)
        script = locate(dataset.prepare_script or "", roots)
        problem = _problem(dataset, script)
        if problem is not None or script is None:
            wrong.append(f"{dataset.label}: {problem}")
            continue
        places = tuple(dict.fromkeys((root / dataset.jsonl_fpath).absolute() for root in roots))
        server = taskset_environment_server(config, dataset.taskset)
        found.append(Preparation(dataset, script.absolute(), places, agent, server))
    if wrong:
        message = wrong[0] if len(wrong) == 1 else f"{len(wrong)} datasets cannot be prepared: {wrong[0]}"
        searched = ", ".join(map(str, roots))
        raise DatasetError(message, hint=f"Nothing was prepared. Scripts are searched in {searched}.", details=tuple(wrong))
    return tuple(found)


def _problem(dataset: DeclaredDataset, script: Path | None) -> str | None:
    if not dataset.prepare_script:
        return "it has no prepare_script"
    if script is None:
        return f"its prepare_script does not exist: {dataset.prepare_script}"
    try:
        module = ast.parse(script.read_bytes(), str(script))
    except (OSError, ValueError, SyntaxError) as error:
        return f"{script} cannot be read as Python: {error}"
    return None if _binds(module, FUNCTION) else f"{script} has no function {FUNCTION}()"


def _binds(module: ast.Module, name: str) -> bool:
    """Whether the module's top level gives ``name`` a value; a star import may."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name and node in module.body:
            return True
        if isinstance(node, ast.ImportFrom | ast.Import) and any((alias.asname or alias.name) in (name, "*") for alias in node.names):
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
    return False
