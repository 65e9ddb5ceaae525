"""testcontainers' DockerCompose over a compose file that gym_compose wrote, and an engine that starts projects through it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testcontainers.compose import DockerCompose
from testcontainers.core.config import testcontainers_config

from gym_compose.compiler.deployment import Deployment
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.docker.failure import recognise
from gym_compose.engine.interface import PlannedAction, Report, StopReport
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

# Ryuk's image cannot be pulled everywhere; the reaper here removes by label what a test left (field-notes B41).
testcontainers_config.ryuk_disabled = True


class ComposeFailedError(GymComposeError):
    """testcontainers' call of ``docker compose`` failed; the details are its last lines."""


@dataclass(frozen=True)
class ExecResult:
    """What a command in a service's container said and how it ended."""

    exit_code: int
    stdout: str
    stderr: str


class ProjectCompose(DockerCompose):
    """DockerCompose on ``.gym/<project>/compose.yaml``. The project's name stands in the file, so tests do not share one."""

    def __init__(self, directory: Path, *, tail_lines: int) -> None:
        super().__init__(context=directory, compose_file_name="compose.yaml", wait=False)
        self._tail_lines = tail_lines

    @property
    def file(self) -> Path:
        return Path(self.context) / "compose.yaml"

    def start(self) -> None:
        """``up --detach`` of everything that has no profile: the driver is a run, not a service of the set."""
        self._call("up", "--detach", "--remove-orphans")

    def stop(self, down: bool = True) -> None:
        """``down`` of all profiles, run containers and orphans too: without both flags a driver stays (platform.md)."""
        if down:
            self._call("--profile", "*", "down", "--volumes", "--remove-orphans")
        else:
            self._call("stop")

    def run_in(self, service: str, command: Sequence[str]) -> ExecResult:
        """``exec -T``; a command that fails is a result, not an exception."""
        try:
            stdout, stderr, code = self.exec_in_container(list(command), service)
        except subprocess.CalledProcessError as error:
            return ExecResult(error.returncode, _text(error.stdout), _text(error.stderr))
        return ExecResult(code or 0, stdout, stderr)

    def _call(self, *arguments: str) -> None:
        try:
            self._run_command([*self.docker_compose_command(), *arguments])
        except subprocess.CalledProcessError as error:
            text = _text(error.stderr).strip() or _text(error.stdout).strip()
            lines = text.splitlines()
            # A port that somebody else took meanwhile gives way, as with the product's own engine: by the class of the error.
            raise recognise(text, Redactor()) or ComposeFailedError(
                f"`docker compose {' '.join(arguments)}` ended with exit code {error.returncode}",
                where=str(self.file),
                details=tuple(lines[-self._tail_lines :]),
            ) from error


class ComposeEngine(DockerEngine):
    """The Docker engine with testcontainers doing ``up`` and the last ``down``; all else is the product's own."""

    def __init__(self, environ: Mapping[str, str], settings: Settings, redactor: Redactor | None = None) -> None:
        super().__init__(environ, settings, redactor)
        self._tail_lines = settings.log_tail_lines
        self._composed: dict[str, ProjectCompose] = {}

    def composed(self, project: str) -> ProjectCompose:
        """The DockerCompose of a project that was applied. Raises KeyError."""
        return self._composed[project]

    def apply(
        self,
        deployment: Deployment,
        directory: Path,
        actions: Sequence[PlannedAction],  # noqa: ARG002  compose finds out by itself
        deadline: Deadline,  # noqa: ARG002  testcontainers takes none
        report: Report,
    ) -> None:
        composed = self._composed.setdefault(deployment.project, ProjectCompose(directory, tail_lines=self._tail_lines))
        report(f"starting {deployment.project} with testcontainers")
        composed.start()

    def stop(self, project: str, deadline: Deadline, report: Report) -> StopReport:
        """In the product's order, with its report; then testcontainers' ``down`` for whatever compose still knows of."""
        stopped = super().stop(project, deadline, report)
        composed = self._composed.pop(project, None)
        if composed is not None and composed.file.is_file():
            composed.stop()
        return stopped


def _text(data: bytes | str | None) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data or ""
