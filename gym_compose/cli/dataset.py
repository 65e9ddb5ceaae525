"""``gym dataset collate`` and ``gym dataset render``; what they and ``gym eval run`` share about datasets."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gym_compose.cli.console import Console
from gym_compose.cli.run_options import is_strict, require
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import UsageError

if TYPE_CHECKING:
    from gym_compose.project.data_process import DataProcesses
    from gym_compose.tasks.collate import Collation, CollationOptions
    from gym_compose.tasks.datasets import DeclaredDataset

_Keys = TypeVar("_Keys", bound=BaseModel)


class CollationKeys(BaseModel):
    """Keys of a config that say how to collate (contract-data 3.4). Others are not looked at."""

    model_config = ConfigDict(extra="ignore")

    should_download: bool = False
    data_source: Literal["gitlab", "huggingface"] = "huggingface"
    overwrite_metrics_conflicts: bool = False
    task_data_validation: Literal["off", "warn", "error", "auto"] = "auto"


class CollateCommandKeys(CollationKeys):
    """And those of ``gym dataset collate`` alone."""

    output_dirpath: str = Field(min_length=1)
    mode: Literal["train_preparation", "example_validation"]


def read_keys(config: Mapping[str, Any], kind: type[_Keys]) -> _Keys:
    """A command's keys out of the resolved config. Raises UsageError naming each that is wrong."""
    try:
        return kind.model_validate({name: config[name] for name in kind.model_fields if config.get(name) is not None})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg'].lower()}" for item in error.errors())
        raise UsageError(f"invalid configuration: {wrong}.") from None


def data_processes(session: Session, config: Mapping[str, Any]) -> DataProcesses:
    """What runs code about datasets, for this command."""
    from gym_compose.project.data_process import DataProcesses

    token = config.get("hf_token")
    return DataProcesses(session.call.environ, session.settings, session.cwd, session.report, token=str(token) if token else None)


def collate(call: Invocation, console: Console) -> int:
    """``gym dataset collate``: check, join, say what was made."""
    from gym_compose.cli.env import load_only
    from gym_compose.cli.listing import component_roots
    from gym_compose.config import NO_MODEL
    from gym_compose.config.roots import installed_root, last_roots
    from gym_compose.tasks.collate import MODES, CollationOptions, effective_validation

    session = Session(call, console)
    loaded = load_only(session, initial=NO_MODEL)
    for warning in loaded.warnings:
        console.err(f"Warning: {warning}")
    config = loaded.resolved
    require(config, "output_dirpath", "mode")
    keys = read_keys(config, CollateCommandKeys)
    options = CollationOptions(
        directory=call.cwd / Path(keys.output_dirpath).expanduser(),
        types=MODES[keys.mode],
        validation=effective_validation(keys.task_data_validation, keys.mode),
        overwrite_metrics=keys.overwrite_metrics_conflicts,
        installed=last_roots(installed_root()),
        strict=is_strict(config),
    )
    # Examples are a repository's own and are never fetched (contract-data 3.4 step 2).
    fetch = keys.should_download and keys.mode != "example_validation"
    made = collated(session, config, keys if fetch else keys.model_copy(update={"should_download": False}), options, component_roots(call))
    if call.json:
        console.json(_document(made))
        return 0
    rows = [(file.type, file.sources, file.rows, len(file.datasets), file.path, file.metrics) for file in made.files]
    console.table(("type", "rows", "with repeats", "datasets", "file", "metrics"), rows)
    for path in made.metrics:
        console.err(f"metrics written: {path}")
    return 0


def collated(
    session: Session, config: Mapping[str, Any], keys: CollationKeys, options: CollationOptions, roots: Sequence[Path]
) -> Collation:
    """Fetch what is missing, where that is asked for, and collate; warnings go to stderr."""
    from gym_compose.tasks.collate import chosen_datasets, collate
    from gym_compose.tasks.datasets import missing_datasets
    from gym_compose.tasks.type_collation import Tools

    processes = data_processes(session, config)
    missing = missing_datasets(chosen_datasets(config, options.types), roots)
    if keys.should_download:
        _fetch(missing, keys, processes)
    tools = Tools(processes.check_rows, session.report, session.settings.plain_progress_seconds)
    made = collate(config, options, roots, tools)
    for warning in made.warnings:
        session.console.err(f"Warning: {warning}" if not warning.startswith(" ") else warning)
    return made


def _fetch(missing: Sequence[DeclaredDataset], keys: CollationKeys, processes: DataProcesses) -> None:
    """Nothing is fetched when something else is missing that only a script makes: collation then says which."""
    from gym_compose.tasks.download import downloads

    if any(dataset.prepare_script is not None for dataset in missing):
        return
    for download in downloads(missing, keys.data_source, processes.cwd):
        processes.report(f"{download.label}: fetching {download.repo_id}")
        started = time.monotonic()
        processes.fetch(download)
        processes.report(f"{download.label}: fetched in {time.monotonic() - started:.0f} s: {download.target}")


def _document(made: Collation) -> dict[str, Any]:
    return {
        "files": [
            {
                "type": file.type,
                "path": str(file.path),
                "metrics": str(file.metrics),
                "source_rows": file.sources,
                "rows": file.rows,
                "datasets": [{"name": dataset.name, "instance": dataset.instance} for dataset in file.datasets],
            }
            for file in made.files
        ],
        "metrics_written": list(map(str, made.metrics)),
        "warnings": [warning.strip() for warning in made.warnings],
    }


def render(call: Invocation, console: Console) -> int:
    """``gym dataset render``: each row of a file with its prompt filled in, and ``prompt_config_used``. Needs no server."""
    from gym_compose.cli.env import load_only
    from gym_compose.cli.listing import component_roots
    from gym_compose.config import NO_MODEL
    from gym_compose.tasks.datasets import locate
    from gym_compose.tasks.errors import DatasetError
    from gym_compose.tasks.prompt import load_prompt
    from gym_compose.tasks.render import render as render_rows

    session = Session(call, console)
    config = load_only(session, initial=NO_MODEL).resolved
    require(config, "input_jsonl_fpath", "prompt_config", "output_jsonl_fpath")
    roots = component_roots(call)
    paths = {}
    for key in ("input_jsonl_fpath", "prompt_config"):
        found = locate(os.path.expanduser(str(config[key])), roots)
        if found is None:
            raise DatasetError(f"there is no such file: {config[key]}", where=key, hint=f"Searched in {', '.join(map(str, roots))}.")
        paths[key] = found
    target = call.cwd / Path(str(config["output_jsonl_fpath"])).expanduser()
    rows = render_rows(paths["input_jsonl_fpath"], load_prompt(paths["prompt_config"]), target)
    if call.json:
        console.json({"rows": rows, "path": str(target), "prompt_config": str(paths["prompt_config"])})
    else:
        console.err(f"{rows} rows: {target}")
    return 0
