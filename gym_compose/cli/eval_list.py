"""``gym eval list [NAME]``: what can be evaluated and who runs it: the benchmarks that are there, or the datasets of one config.

The fields are the field's own (contract-data 3.8): ``agent_name`` is null where the taskset's environment server fronts several agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.cli import catalog
from gym_compose.cli.console import Console
from gym_compose.cli.listing import component_roots, show_one
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import GymComposeError, UsageError

if TYPE_CHECKING:
    from gym_compose.tasks.evaluations import Evaluation

_OWN_KEYS = frozenset({"json", "verbose", "component_name"})


def run(call: Invocation, console: Console) -> int:
    """The benchmarks of the search roots, one of them by its name, or with any selector or override the datasets of that config."""
    overrides = tuple(token for token in call.overrides if token.lstrip("+").partition("=")[0] not in _OWN_KEYS)
    if call.args.name and overrides:
        raise UsageError(f"NAME and a config are two questions: {call.args.name!r} and {' '.join(overrides)}.", hint="Give one of them.")
    if overrides:
        return _of_config(overrides, call, console)
    benchmarks = [workload for workload in catalog.workloads(component_roots(call)) if workload.kind == "benchmark"]
    # What a resources server's own config declares is started with --resources-server; it is no benchmark of the catalog.
    benchmarks = [workload for workload in benchmarks if workload.selector is None]
    if call.args.name:
        return _one(catalog.find_workload(call.args.name, "benchmark", benchmarks), call, console)
    return _benchmarks(benchmarks, call, console)


def _benchmarks(benchmarks: Sequence[catalog.Workload], call: Invocation, console: Console) -> int:
    rows = []
    for workload in benchmarks:
        try:
            evaluation = _read(workload, call)
        except GymComposeError as error:
            console.err(f"Warning: benchmark '{workload.name}' is left out: {error}")
            continue
        if evaluation is not None:
            rows.append(_row(workload.name, evaluation, workload.domain, workload.description))
    if call.json:
        console.json(rows)
    elif not rows:
        console.out("No benchmarks found.")
    else:
        cells = [[row["name"], row["domain"], row["description"], _runner(row), row["num_repeats"]] for row in rows]
        console.table(("Name", "Domain", "Description", "Agent name", "Num repeats"), cells, title=f"benchmarks ({len(rows)})")
    return 0


def _one(workload: catalog.Workload, call: Invocation, console: Console) -> int:
    evaluation = _read(workload, call)
    if evaluation is None:
        raise GymComposeError(f"'{workload.name}' declares no benchmark dataset.", where=str(workload.config))
    row = _row(workload.name, evaluation, workload.domain, workload.description)
    details = {
        "config": str(workload.config.resolve()),
        "agent": evaluation.agent_name,
        "environment server": evaluation.environment_server,
        "num repeats": evaluation.dataset.num_repeats,
        "dataset": evaluation.dataset.jsonl_fpath,
        "prepare script": evaluation.dataset.prepare_script,
    }
    view = {
        "name": workload.name,
        "type": "benchmark",
        "domain": row["domain"] or None,
        "description": row["description"] or None,
        "details": {label: value for label, value in details.items() if value is not None},
        "usage_example": f"gym eval run --benchmark {workload.name} --split benchmark --model-type openai_model -o results/rollouts.jsonl",
    }
    return show_one(view, console, json=call.json)


def _of_config(overrides: Sequence[str], call: Invocation, console: Console) -> int:
    from gym_compose.tasks.evaluations import evaluations, read_listing_config

    config = read_listing_config(overrides, cwd=call.cwd, environ=call.environ, roots=component_roots(call))
    rows = []
    for evaluation in evaluations(config):
        dataset = evaluation.dataset
        row = _row(dataset.name, evaluation, evaluation.domain, evaluation.description)
        rows.append(
            {**row, "type": dataset.type, "declared_by": dataset.instance, "taskset": dataset.taskset, "jsonl_fpath": dataset.jsonl_fpath}
        )
    if call.json:
        console.json(rows)
    elif not rows:
        console.out("The config declares no datasets.")
    else:
        cells = [[row["name"], row["type"], row["declared_by"], row["taskset"], _runner(row), row["num_repeats"]] for row in rows]
        console.table(("Name", "Type", "Declared by", "Taskset", "Agent name", "Num repeats"), cells, title=f"datasets ({len(rows)})")
    return 0


def _read(workload: catalog.Workload, call: Invocation) -> Evaluation | None:
    """Of the files alone: env.yaml is that of a run."""
    from gym_compose.tasks.evaluations import benchmark_evaluation, read_listing_config

    home = _home(workload.config)
    roots = (*((home,) if home is not None else ()), *component_roots(call))
    overrides = {"config_paths": [str(workload.config)]}
    config = read_listing_config(overrides, cwd=call.cwd, environ=call.environ, roots=roots, environment_file=False)
    return benchmark_evaluation(config)


def _home(config: Path) -> Path | None:
    """The directory that holds the tree of a benchmark: what it includes is looked for there first."""
    return next((parent.parent for parent in config.parents if parent.name == "benchmarks"), None)


def _row(name: str, evaluation: Evaluation, domain: str | None, description: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "agent_name": evaluation.agent_name,
        "environment_server": evaluation.environment_server,
        "domain": domain or "",
        "num_repeats": evaluation.dataset.num_repeats,
        "description": description or "",
    }


def _runner(row: Mapping[str, Any]) -> str:
    return row["agent_name"] or f"{row['environment_server']} (environment server)"
