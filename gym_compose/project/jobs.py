"""A driver's job on stored rollouts: in a container of the project's network, or right here. Files keep their names; a container sees the
directories that they are in, and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.project.collect import new_run_id, run_here, start_and_follow
from gym_compose.project.directory import GYM_DIRECTORY
from gym_compose.project.errors import NoHeadError, RunFailedError
from gym_compose.project.events import OnEvent, redacted
from gym_compose.project.runs import HostPaths, RunDirectory
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.jobs import JOB
from gym_compose.wire.names import CONTAINER_INPUT, CONTAINER_OUTPUT, CONTAINER_RUN, HEAD_ALIAS, HEAD_PORT_INSIDE
from gym_compose.wire.run import RunSummary, RunWarning

if TYPE_CHECKING:
    from gym_compose.project.project import Project

OUTPUT_FIELD = "output_jsonl_fpath"


def do_job(project: Project, fields: Mapping[str, Any], files: Sequence[str], on_event: OnEvent) -> RunSummary:
    """Do the job that ``fields`` describe against what runs of ``project``. ``files`` names the fields that hold a path, or a list of
    paths, to read; all paths are absolute ones of this host. Raises NoHeadError when the project does not run, RunFailedError."""
    if not isinstance(project.engine, DockerEngine):
        address = project.head_address(Deadline.after(project.settings.docker_call_seconds, "the head server's address"))
        if address is None:
            raise NoHeadError(f"project {project.name}", "it does not run")
        return _here(f"http://{address}", fields, RunDirectory.of(project.directory, new_run_id()), redacted(on_event, project.redact))
    run = RunDirectory.of(project.directory, new_run_id())
    output = _made(fields)
    paths = JobPaths(fields, files, run)
    job = JOB.validate_python({**paths.fields, "run_id": run.run_id, "head_url": f"http://{HEAD_ALIAS}:{HEAD_PORT_INSIDE}"})
    run.create(job, HostPaths(input=str(output), output=str(output)))

    def tell(event: Any) -> None:
        on_event(event.model_copy(update={"text": paths.on_host(event.text)}) if isinstance(event, RunWarning) else event)

    try:
        return start_and_follow(project, project.engine, run, paths.mounts, str(output), tell)
    except RunFailedError as error:
        text = paths.on_host(error.message)
        raise RunFailedError(text, hint=error.hint, exit_code=error.exit_code, details=error.details) from None


def do_job_here(head_url: str, fields: Mapping[str, Any], on_event: OnEvent, *, cwd: Path) -> RunSummary:
    """Do it in this process against any head server."""
    return _here(head_url, fields, RunDirectory(cwd / GYM_DIRECTORY / "runs" / new_run_id()), on_event)


def _here(head_url: str, fields: Mapping[str, Any], run: RunDirectory, on_event: OnEvent) -> RunSummary:
    from gym_compose.driver.jobs import do_job as drive

    output = str(_made(fields))
    job = JOB.validate_python({**fields, "run_id": run.run_id, "head_url": head_url})
    run.create(job, HostPaths(input=output, output=output))
    return run_here(run, lambda stop: drive(job, on_event, stop))


def _made(fields: Mapping[str, Any]) -> Path:
    """The output, whose directory is made: a container mounts it."""
    output = Path(fields[OUTPUT_FIELD])
    if output.is_dir():
        raise InvalidInputError("the output is a directory", where=str(output), hint="Give the name of a file (--output FILE).")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"the output's directory cannot be made: {error.strerror or error}", where=str(output.parent)) from error
    return output


class JobPaths:
    """A job's paths as a container has them. ``fields`` are the job's with these paths, ``mounts`` are (host, container, read-only):
    directories, since files beside those that are named belong to them."""

    def __init__(self, fields: Mapping[str, Any], files: Sequence[str], run: RunDirectory) -> None:
        output = Path(fields[OUTPUT_FIELD])
        self._places = {output.parent: CONTAINER_OUTPUT}
        # Bringing invalid judgements to the failures rewrites the files of the run that is read.
        writes = bool(fields.get("judge_failed_only") and fields.get("retry_invalid_judge_responses"))
        self.fields = {**fields, OUTPUT_FIELD: f"{CONTAINER_OUTPUT}/{output.name}"}
        for name in files:
            value = fields[name]
            self.fields[name] = [self._inside(path) for path in value] if isinstance(value, list | tuple) else self._inside(value)
        self.mounts = [(str(host), inside, inside != CONTAINER_OUTPUT and not writes) for host, inside in self._places.items()]
        self.mounts.append((str(run.path), CONTAINER_RUN, False))

    def _inside(self, path: str) -> str:
        file = Path(path)
        place = self._places.setdefault(file.parent, f"{CONTAINER_INPUT}/{len(self._places)}")
        return f"{place}/{file.name}"

    def on_host(self, text: str) -> str:
        for host, inside in self._places.items():
            text = text.replace(f"{inside}/", f"{host}/")
        return text
