"""``gym eval run`` in both forms, and ``gym eval attach``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.cli.console import Console
from gym_compose.cli.run_options import is_strict, notices, require, run_options
from gym_compose.cli.run_progress import run_display, show_summary
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import GymComposeError, IncompleteError, InvalidInputError

if TYPE_CHECKING:
    from gym_compose.project.hook import Hook
    from gym_compose.project.project import Project
    from gym_compose.project.runs import RunOptions
    from gym_compose.wire.run import RunSummary

INTERRUPTED = 130
_REUSE = "reuse_existing_data_preparation"


def run(call: Invocation, console: Console) -> int:
    """``gym eval run``: start, collect, stop; with ``--no-serve`` collect only."""
    session = Session(call, console)
    return _against_running(session) if call.args.no_serve else _end_to_end(session)


def attach(call: Invocation, console: Console) -> int:
    """``gym eval attach [RUN]``: follow a run to its end. Ctrl+C asks the driver to end, as it does in ``gym eval run``."""
    from gym_compose.project.collect import attach as follow

    session = Session(call, console)
    project = session.find()
    with run_display(console, session.settings.plain_progress_seconds, json=session.call.json) as display:
        summary = follow(project, display, run=call.args.run)
    return _finish(summary, session)


def _end_to_end(session: Session) -> int:
    """Everything that can be wrong with the rows is found before a server is started."""
    from gym_compose.cli.compose import running
    from gym_compose.cli.listing import component_roots
    from gym_compose.driver.output import OutputPaths
    from gym_compose.tasks.collate import prepared_path
    from gym_compose.tasks.datasets import check_split, datasets_of_split

    project = session.load()
    config = project.config.resolved
    if session.call.args.input is not None or config.get("input_jsonl_fpath") is not None:
        check_split("train", config)  # refuses the key before a missing --split would hide it
    require(config, "output_jsonl_fpath", "split")
    split = str(config["split"])
    check_split(split, config)
    datasets_of_split(config, split)
    hook = _hook(session, config)
    roots = component_roots(session.call)
    _tell_notices(session, config)
    output = _check_output(session, config)
    prepared = prepared_path(output, split)
    _prepare_rows(session, config, split, prepared, roots)
    options = run_options(config, cwd=session.cwd, roots=roots, input_file=prepared, overwrite=session.call.args.overwrite)
    if options.resume_from_cache:
        from gym_compose.driver.resume import check_request

        check_request(options, OutputPaths(output))
    ran_before = any(state.status == "running" for state in project.observe(session.brief("the state of the project")).services)
    if ran_before:
        session.console.err(f"{project.name}: runs already; it will be left running.")
    with running(session, project, keep=ran_before):
        if hook is not None:
            return _by_hook(session, project, hook, options)
        with run_display(session.console, session.settings.plain_progress_seconds, json=session.call.json) as display:
            summary = project.collect(options, display)
    return _finish(summary, session, require_complete=bool(config.get("require_complete")))


def _prepare_rows(session: Session, config: Mapping[str, Any], split: str, prepared: Path, roots: Sequence[Path]) -> None:
    """Fetch and collate the split's datasets into ``prepared``, or keep what an earlier command made there (contract-data 1.1).

    Only the split is prepared, and nothing is written beside the data; ``strict`` prepares every split and writes there, as NeMo Gym does.
    """
    from gym_compose.cli.dataset import CollationKeys, collated, read_keys
    from gym_compose.config.roots import installed_root, last_roots
    from gym_compose.tasks.collate import CollationOptions, effective_validation
    from gym_compose.tasks.datasets import SPLITS

    if config.get(_REUSE):
        if prepared.is_file():
            session.console.err(f"rows of an earlier preparation: {prepared} ({_REUSE})")
            return
        session.console.err(f"{_REUSE} is set, and there is no {prepared}: it is prepared.")
    keys = read_keys(config, CollationKeys).model_copy(update={"should_download": True})
    strict = is_strict(config)
    options = CollationOptions(
        directory=prepared.parent,
        types=SPLITS if strict else (split,),
        validation=effective_validation(keys.task_data_validation, "train_preparation"),
        overwrite_metrics=keys.overwrite_metrics_conflicts,
        beside=strict,
        installed=last_roots(installed_root()),
        strict=strict,
        replace_type_metrics=not strict,
    )
    made = collated(session, config, keys, options, roots).file(split)
    session.console.err(f"{made.rows} rows of {len(made.datasets)} datasets: {prepared}")


def _hook(session: Session, config: Mapping[str, Any]) -> Hook | None:
    """The function of ``rollout_collection_driver``, looked for before anything is started. Raises DriverHookError."""
    from gym_compose.project.hook import HOOK_KEY, load_hook

    path = config.get(HOOK_KEY)
    return None if path in (None, "") else load_hook(str(path), session.cwd)


def _by_hook(session: Session, project: Project, hook: Hook, options: RunOptions) -> int:
    """Leave the collecting to the config's own function, which runs here: it reaches the servers that are published."""
    from gym_compose.project.collect import new_run_id
    from gym_compose.project.errors import NoHeadError
    from gym_compose.project.hook import HOOK_KEY, run_hook

    address = project.head_address(session.brief("the head server's address"))
    if address is None:
        raise NoHeadError(f"project {project.name}", "it does not run")
    config = project.config.resolved
    session.console.err(f"{config[HOOK_KEY]} collects the rollouts; output: {options.output_jsonl_fpath}")
    run_hook(hook, options, config, run_id=new_run_id(), head_url=f"http://{address}", settings=session.settings)
    return 0


def _against_running(session: Session) -> int:
    from gym_compose.cli.env import find_running_head, load_only
    from gym_compose.cli.listing import component_roots
    from gym_compose.project.collect import collect_here

    config = load_only(session)
    for warning in config.warnings:
        session.console.err(f"Warning: {warning}")
    require(config.resolved, "input_jsonl_fpath", "output_jsonl_fpath")
    _tell_notices(session, config.resolved)
    _check_output(session, config.resolved)
    options = run_options(config.resolved, cwd=session.cwd, roots=component_roots(session.call), overwrite=session.call.args.overwrite)
    head = find_running_head(session, config)
    with run_display(session.console, session.settings.plain_progress_seconds, json=session.call.json) as display:
        if head.identity is not None and head.identity.engine == "docker":
            summary = project_of(session, head.identity.project, head.directory.path if head.directory else None).collect(options, display)
        else:
            summary = collect_here(head.url, options, display, cwd=session.cwd)
    return _finish(summary, session, require_complete=bool(config.resolved.get("require_complete")))


def _tell_notices(session: Session, config: Mapping[str, Any]) -> None:
    for notice in notices(config):
        session.console.err(f"Warning: {notice}")


def _check_output(session: Session, config: Mapping[str, Any]) -> Path:
    """The output, when it can be written to: looked at before a server is started or a row prepared. The driver looks again.

    Raises OutputLockedError while a driver of an earlier command is still at work, OutputExistsError, ResumeError.
    """
    from gym_compose.driver.lock import check_unlocked
    from gym_compose.driver.output import OutputPaths

    paths = OutputPaths(session.cwd / Path(str(config["output_jsonl_fpath"])).expanduser())
    check_unlocked(paths.lock)
    overwrite = session.call.args.overwrite or bool(config.get("overwrite")) or is_strict(config)
    paths.check(overwrite=overwrite, resume=bool(config.get("resume_from_cache")))
    return paths.rollouts


def project_of(session: Session, name: str, directory: Path | None) -> Project:
    """The project whose head answered: its driver has to run inside its network. It may have been started from elsewhere; then the
    labels of its containers say where its files are."""
    if directory is None:
        observed = session.engine("docker").observe(name, session.brief("the state of the project"))
        if observed.directory is None:
            raise InvalidInputError(
                f"the head server is that of project {name}, whose directory is not known.", hint="Run this where it was started."
            )
        directory = Path(observed.directory)
    return session.open(directory)


def _finish(summary: RunSummary, session: Session, *, require_complete: bool = False) -> int:
    """Print the summary; the exit status: 0 also with failed rollouts, 130 when interrupted, an error when rows have no answer."""
    show_summary(summary, session.console, json=session.call.json)
    if summary.interrupted:
        return INTERRUPTED
    counts = summary.counts
    if summary.error is not None:
        raise RunEndedError(summary.error)
    if counts.unresolved:
        raise IncompleteError(
            f"{counts.unresolved} of {counts.requested} rollouts have no answer.",
            where=f"run {summary.run_id}",
            hint="The same command with --resume runs them.",
        )
    if require_complete and counts.completed < counts.requested:
        raise IncompleteError(
            f"{counts.completed} of {counts.requested} rollouts completed.", where="require_complete", hint="The failures file says why."
        )
    return 0


class RunEndedError(GymComposeError):
    """The run ended with an error after its files were written."""
