"""``gym eval prepare``: run the prepare scripts of a config's datasets (contract-data 3.7)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from gym_compose.cli.console import Console
from gym_compose.cli.dataset import data_processes, read_keys
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import GymComposeError

if TYPE_CHECKING:
    from gym_compose.project.data_process import DataProcesses
    from gym_compose.tasks.preparation import Preparation


class PrepareKeys(BaseModel):
    """Keys of a config that say how to prepare."""

    use_cached_prepared_benchmarks: bool = False
    num_prepare_benchmark_processes: int = Field(default=1, ge=1)
    prepare_script_args: dict[str, Any] = {}


@dataclass(frozen=True)
class Prepared:
    """One dataset's file. ``rows`` and ``seconds`` are None for one that was there and was kept."""

    preparation: Preparation
    path: Path
    rows: int | None = None
    seconds: float | None = None

    def document(self) -> dict[str, Any]:
        dataset = self.preparation.dataset
        return {
            "name": dataset.name,
            "type": dataset.type,
            "instance": dataset.instance,
            "agent_name": self.preparation.agent,
            "environment_server": self.preparation.environment_server,
            "path": str(self.path),
            "cached": self.rows is None,
            "rows": self.rows,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
        }


def run(call: Invocation, console: Console) -> int:
    """Prepare every dataset of the config that has a script. All is checked before the first script runs.

    Raises what ``preparations`` raises; when scripts failed, the error of the first, the others as its details.
    """
    from gym_compose.cli.env import load_only
    from gym_compose.cli.listing import component_roots
    from gym_compose.config import NO_MODEL
    from gym_compose.tasks.datasets import locate
    from gym_compose.tasks.preparation import preparations

    session = Session(call, console)
    loaded = load_only(session, initial=NO_MODEL)
    for warning in loaded.warnings:
        console.err(f"Warning: {warning}")
    keys = read_keys(loaded.resolved, PrepareKeys)
    roots = component_roots(call)
    kept: list[Prepared] = []
    wanted: list[Preparation] = []
    for preparation in preparations(loaded.resolved, roots):
        there = locate(preparation.dataset.jsonl_fpath, roots) if keys.use_cached_prepared_benchmarks else None
        if there is None:
            wanted.append(preparation)
        else:
            console.err(f"{preparation.dataset.label}: kept as it is: {there}")
            kept.append(Prepared(preparation, there))
    made = _prepare(wanted, keys, data_processes(session, loaded.resolved), roots)
    found = [*kept, *made]
    if call.json:
        console.json([item.document() for item in found])
    else:
        rows = [(item.preparation.dataset.name, item.preparation.dataset.type, _shown(item), item.path) for item in found]
        console.table(("dataset", "type", "rows", "file"), rows)
    return 0


def _prepare(wanted: Sequence[Preparation], keys: PrepareKeys, processes: DataProcesses, roots: Sequence[Path]) -> list[Prepared]:
    """Run the scripts, so many at a time. One that fails does not stop the others; Ctrl+C ends all."""
    from gym_compose.tasks.errors import PrepareError

    failures: list[GymComposeError] = []
    made: list[Prepared] = []

    def one(number: int, preparation: Preparation) -> Prepared | GymComposeError:
        processes.report(f"{number}/{len(wanted)} {preparation.dataset.label}: running {preparation.script}")
        started = time.monotonic()
        try:
            path = processes.prepare(preparation, roots, keys.prepare_script_args)
            rows = _count(path)
            if rows == 0:
                raise PrepareError(f"prepare() made a file without rows: {path}", where=preparation.where)
            done = Prepared(preparation, path, rows, time.monotonic() - started)
        except GymComposeError as error:
            return error
        processes.report(f"{preparation.dataset.label}: {done.rows} rows in {time.monotonic() - started:.1f} s: {path}")
        return done

    with ThreadPoolExecutor(max_workers=keys.num_prepare_benchmark_processes) as pool:
        try:
            for result in pool.map(one, range(1, len(wanted) + 1), wanted):
                (failures if isinstance(result, GymComposeError) else made).append(result)  # type: ignore[arg-type]
        except BaseException:
            processes.cancel.set()
            raise
    if failures:
        first = failures[0]
        if len(failures) > 1:
            first.details = (*first.details, *(f"also failed: {error}" for error in failures[1:]))
        raise first
    return made


def _count(path: Path) -> int:
    """The rows of a prepared file. Raises RowError for a line that is no row."""
    from gym_compose.tasks.rows import read_rows

    return sum(1 for _ in read_rows(path))


def _shown(item: Prepared) -> str:
    return "kept" if item.rows is None else str(item.rows)
