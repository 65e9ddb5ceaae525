"""``runs/<run id>/``: what is kept of one run, and how its request reads to the driver that does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from gym_compose.driver.output import OutputPaths
from gym_compose.project.directory import ProjectDirectory, write_file
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.jobs import Job
from gym_compose.wire.names import CONTAINER_INPUT, CONTAINER_OUTPUT, CONTAINER_RUN
from gym_compose.wire.run import RunRequest, RunSummary

REQUEST_NAME = "request.json"
HOST_NAME = "host.json"
EXIT_NAME = "exit_code"


class RunOptions(RunRequest):
    """What a caller asks for: a RunRequest with paths of this host. Run id and head server are filled in by who runs it."""

    run_id: str = ""
    head_url: str = ""


class HostPaths(BaseModel):
    """``host.json``: the same run's paths on this host, for whoever attaches later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: str
    output: str


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run. A driver in a container has the directory at CONTAINER_RUN."""

    path: Path

    @classmethod
    def of(cls, project: ProjectDirectory, run_id: str) -> RunDirectory:
        return cls(project.run(run_id))

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def request_file(self) -> Path:
        return self.path / REQUEST_NAME

    def create(self, request: RunRequest | Job, host: HostPaths) -> None:
        """Write the request as the driver reads it, and the paths of this host. Raises PrerequisiteError."""
        try:
            self.path.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise PrerequisiteError(f"cannot make the run's directory: {error.strerror or error}", where=str(self.path)) from error
        data = orjson.dumps(request.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
        write_file(self.request_file, data + b"\n", mode=0o600)
        write_file(self.path / HOST_NAME, orjson.dumps(host.model_dump(), option=orjson.OPT_INDENT_2) + b"\n", mode=0o600)

    def host_paths(self) -> HostPaths:
        """Raises InvalidInputError when the run is not one of ours."""
        file = self.path / HOST_NAME
        try:
            return HostPaths.model_validate(orjson.loads(file.read_bytes()))
        except (OSError, orjson.JSONDecodeError, ValidationError) as error:
            raise InvalidInputError("this run's directory does not say where its files are", where=str(file)) from error

    def write_exit_code(self, code: int) -> None:
        write_file(self.path / EXIT_NAME, f"{code}\n".encode("ascii"))

    def exit_code(self) -> int | None:
        """None while the run goes on, or when nobody followed it to its end."""
        try:
            return int((self.path / EXIT_NAME).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None


def run_directories(project: ProjectDirectory) -> tuple[RunDirectory, ...]:
    """All runs of the project that are on disk, oldest first."""
    return tuple(RunDirectory(file.parent) for file in sorted(project.runs.glob(f"*/{REQUEST_NAME}")))


def check_paths(options: RunOptions, cwd: Path) -> HostPaths:
    """The absolute input and output of a run; the output's directory is made.

    A resume has its rows already, so with ``resume_anyway`` (or ``strict_compatibility``) the input may be gone.

    Raises InvalidInputError naming the path when the input is no readable file or the output cannot be a file.
    """
    source = (cwd / Path(options.input_jsonl_fpath).expanduser()).resolve()
    dispensable = options.resume_from_cache and (options.resume_anyway or options.strict_compatibility)
    if not source.is_file() and not (dispensable and not source.exists()):
        what = "is a directory" if source.is_dir() else "does not exist"
        hint = "Give a JSONL file with one task row a line (--input FILE)."
        if options.resume_from_cache:
            hint = "Put it back; or give --resume-anyway, as the rows of the first run are kept."
        raise InvalidInputError(f"the input file {what}", where=str(source), hint=hint)
    target = (cwd / Path(options.output_jsonl_fpath).expanduser()).resolve()
    if target.is_dir():
        raise InvalidInputError("the output is a directory", where=str(target), hint="Give the name of a file (--output FILE).")
    if source in OutputPaths(target).everything():
        what = "input and output are the same file" if source == target else "the input is a file that the run itself writes"
        raise InvalidInputError(what, where=str(source), hint="Give another --output, or a copy of the file as --input.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"the output's directory cannot be made: {error.strerror or error}", where=str(target.parent)) from error
    return HostPaths(input=str(source), output=str(target))


@dataclass(frozen=True)
class ContainerPaths:
    """A run's mounts and how its paths read inside. ``mounts`` are (host, container, read-only)."""

    input: str
    output: str
    mounts: tuple[tuple[str, str, bool], ...]
    output_directory: str

    @classmethod
    def of(cls, host: HostPaths, run: RunDirectory) -> ContainerPaths:
        """The input file alone (where it is there), the output's directory, and the run's directory are mounted; nothing else of the host
        is."""
        source, target = Path(host.input), Path(host.output)
        inside = f"{CONTAINER_INPUT}/{source.name}"
        return cls(
            input=inside,
            output=f"{CONTAINER_OUTPUT}/{target.name}",
            mounts=(
                *([(str(source), inside, True)] if source.exists() else []),
                (str(target.parent), CONTAINER_OUTPUT, False),
                (str(run.path), CONTAINER_RUN, False),
            ),
            output_directory=str(target.parent),
        )


def on_host(summary: RunSummary, output: str) -> RunSummary:
    """``summary`` of a driver in a container with its files as this host knows them; ``output`` is the host's path of the rollouts."""
    directory = Path(output).parent
    return summary.model_copy(update={"files": {kind: _on_host(path, directory) for kind, path in summary.files.items()}})


def text_on_host(text: str, output: str) -> str:
    """A driver's message with the output's directory as this host knows it."""
    return text.replace(f"{CONTAINER_OUTPUT}/", f"{Path(output).parent}/")


def _on_host(path: str, directory: Path) -> str:
    inside = PurePosixPath(path)
    if inside.is_relative_to(CONTAINER_OUTPUT):
        return str(directory / inside.relative_to(CONTAINER_OUTPUT))
    return path


def with_paths(options: RunOptions, **changes: str) -> RunRequest:
    """The request that the driver gets: ``options`` with run id, head server and the driver's own paths."""
    values: Mapping[str, object] = {**options.model_dump(), **changes}
    return RunRequest.model_validate(values)
