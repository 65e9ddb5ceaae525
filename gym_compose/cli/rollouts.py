"""``gym eval view``, ``profile``, ``aggregate`` and ``reverify``: commands on rollouts that are on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.cli.console import Console
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation

if TYPE_CHECKING:
    from gym_compose.wire.run import RunSummary

_SIDECARS = ("_failures", "_materialized_inputs", "_journal", "_reward_profiling")
"""Endings of what stands beside a rollouts file; the last two are ours and the profile's (contract-data 4.6 names the first two)."""
_REVERIFY = (
    "num_samples_in_parallel",
    "limit",
    "force",
    "overwrite",
    "resume_from_cache",
    "judge_failed_only",
    "append",
    "disable_aggregation",
    "retry_terminal_timeouts",
    "retry_invalid_judge_responses",
)


def view(call: Invocation, console: Console) -> int:
    """``gym eval view FILE``: one HTML file beside the rollouts, or with ``--json`` its figures on stdout and no file."""
    from gym_compose.driver.output import OutputPaths
    from gym_compose.rollouts.report import make_report, write_report
    from gym_compose.rollouts.sample import Sample
    from gym_compose.wire.errors import UsageError

    rollouts = (call.cwd / Path(call.args.rollouts).expanduser()).absolute()
    if call.args.sample < 0:
        raise UsageError("a number of rollouts is 0 or more.", where="--sample")
    target = call.cwd / Path(call.args.report).expanduser() if call.args.report else rollouts.with_name(f"{rollouts.stem}_report.html")
    if target.resolve() in [path.resolve() for path in OutputPaths(rollouts).everything()]:
        raise UsageError("the report would replace a file of the run.", where=f"--output {call.args.report}")
    report = make_report(rollouts, Sample(rollouts=call.args.sample))
    if call.json:
        console.json(report.figures.model_dump(mode="json"))
        return 0
    write_report(report, target)
    figures = report.figures
    console.err(f"{figures.rollouts} rollouts of {figures.tasks} tasks, {figures.failed} failed; {len(report.conversations)} to look at")
    console.out(str(target))
    if call.args.open:
        import webbrowser

        webbrowser.open(target.absolute().as_uri())
    return 0


def profile(call: Invocation, console: Console) -> int:
    """``gym eval profile``: the reward profile of a run's rollouts, three files beside them."""
    from gym_compose.cli.env import load_only
    from gym_compose.cli.run_options import require
    from gym_compose.rollouts.profile import profile as make

    config = load_only(Session(call, console)).resolved
    require(config, "materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath")
    inputs, rollouts = (
        _found(call.cwd, config[name], call.environ) for name in ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath")
    )
    done = make(inputs, rollouts, allow_partial=bool(config.get("allow_partial_rollouts")))
    if call.json:
        console.json(done.model_dump(mode="json"))
        return 0
    console.out(f"{done.completed} of {done.expected} rollouts ({done.completion_pct:.2f} %), {done.masked} of them masked")
    rows = f"{done.tasks} tasks: {done.complete_tasks} complete, {done.partial_tasks} in part, {done.missing_tasks} without rollouts"
    console.out(rows)
    for kind, path in done.files.items():
        console.out(f"{kind}: {path}")
    return 0


def aggregate(call: Invocation, console: Console) -> int:
    """``gym eval aggregate``: shards to one file of rollouts and one of metrics, asked from the servers that run."""
    from gym_compose.cli.env import load_only
    from gym_compose.cli.run_options import notices, require
    from gym_compose.wire.errors import InvalidInputError

    session = Session(call, console)
    config = load_only(session)
    require(config.resolved, "input_glob", "output_jsonl_fpath")
    for text in notices({**config.resolved, "upload_rollouts": False}):
        console.err(f"Warning: {text}")
    shards = expand(str(config.resolved["input_glob"]), call.cwd)
    if not shards:
        hint = "A pattern is relative to this directory; files of failures and inputs are left out."
        raise InvalidInputError(f"no file matches {config.resolved['input_glob']!r}", where="input_glob (--input-glob)", hint=hint)
    classes = config.resolved.get("count_failure_classes_as_zero") or []
    fields = {
        "job": "aggregate",
        "shards": [str(path) for path in shards],
        "output_jsonl_fpath": str(_absolute(call.cwd, config.resolved["output_jsonl_fpath"])),
        "merge_shards": config.resolved.get("merge_shards", True),
        "overwrite": call.args.overwrite or bool(config.resolved.get("overwrite")),
        "count_failure_classes_as_zero": classes,
        "count_missing_rollouts_as_zero": config.resolved.get("count_missing_rollouts_as_zero", False),
    }
    return _ended(session, _against_running(session, config, fields, ("shards",)))


def expand(patterns: str, cwd: Path) -> list[Path]:
    """Files that match a comma-separated list of patterns: sorted within a pattern, each file once (contract-data 4.6)."""
    found: dict[Path, None] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        for name in sorted(glob(str(_absolute(cwd, pattern)))):
            path = Path(name)
            if not path.stem.endswith(_SIDECARS) and path.is_file():
                found.setdefault(path)
    return list(found)


def reverify(call: Invocation, console: Console) -> int:
    """``gym eval reverify``: start the servers of a config, verify stored rollouts again, stop; with ``--no-serve`` by those that run."""
    from gym_compose.cli.compose import running
    from gym_compose.cli.env import load_only
    from gym_compose.cli.run_options import is_strict, require
    from gym_compose.cli.run_progress import run_display
    from gym_compose.project.jobs import do_job
    from gym_compose.wire.errors import InvalidInputError

    session = Session(call, console)
    project = None if call.args.no_serve else session.load()
    config = load_only(session) if project is None else project.config
    keys = config.resolved
    if keys.get("input_format", "gym") != "gym":
        hint = "NeMo Gym's own command reads it."
        raise InvalidInputError("only rollouts of a run are verified again here, no ATIF trajectories", where="input_format", hint=hint)
    require(keys, "materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath", "output_jsonl_fpath")
    files = ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath")
    fields: dict[str, Any] = {
        "job": "reverify",
        **{name: str(_found(call.cwd, keys[name], call.environ)) for name in files},
        "output_jsonl_fpath": str(_absolute(call.cwd, keys["output_jsonl_fpath"])),
        **{name: keys[name] for name in _REVERIFY if keys.get(name) is not None},
        "strict_compatibility": is_strict(keys),
    }
    if project is None:
        return _ended(session, _against_running(session, config, fields, files))
    _valid(fields)
    ran_before = any(state.status == "running" for state in project.observe(session.brief("the state of the project")).services)
    with (
        running(session, project, keep=ran_before),
        run_display(console, session.settings.plain_progress_seconds, json=session.call.json) as display,
    ):
        summary = do_job(project, fields, files, display)
    return _ended(session, summary)


def _against_running(session: Session, config: Any, fields: Mapping[str, Any], files: Sequence[str]) -> RunSummary:
    """Do a job against the head server that the config names, or that of a project here."""
    from gym_compose.cli.env import find_running_head
    from gym_compose.cli.eval import project_of
    from gym_compose.cli.run_progress import run_display
    from gym_compose.project.jobs import do_job, do_job_here

    _valid(fields)
    head = find_running_head(session, config)
    with run_display(session.console, session.settings.plain_progress_seconds, json=session.call.json) as display:
        if head.identity is not None and head.identity.engine == "docker":
            project = project_of(session, head.identity.project, head.directory.path if head.directory else None)
            return do_job(project, fields, files, display)
        return do_job_here(head.url, fields, display, cwd=session.cwd)


def _valid(fields: Mapping[str, Any]) -> None:
    """Raise UsageError for values that are not of their type, before anything is started."""
    from pydantic import ValidationError

    from gym_compose.wire.errors import UsageError
    from gym_compose.wire.jobs import JOB

    try:
        JOB.validate_python({**fields, "run_id": "", "head_url": ""})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg'].lower()}" for item in error.errors())
        raise UsageError(f"invalid configuration: {wrong}.") from None


def _ended(session: Session, summary: RunSummary) -> int:
    from gym_compose.cli.run_progress import show_summary

    show_summary(summary, session.console, json=session.call.json)
    return summary.exit_code


def _absolute(cwd: Path, path: object) -> Path:
    return cwd / Path(str(path)).expanduser()


def _found(cwd: Path, path: object, environ: Mapping[str, str]) -> Path:
    """A file to read: below the working directory, else in another search root."""
    from gym_compose.config.roots import search_roots

    given = Path(str(path)).expanduser()
    candidates = [cwd / given, *(root / given for root in search_roots(cwd, environ))]
    return next((candidate for candidate in candidates if candidate.exists()), cwd / given)
