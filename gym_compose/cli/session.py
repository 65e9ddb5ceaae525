"""What the commands that touch a project share: settings, engine, project."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gym_compose.cli.console import Console
from gym_compose.cli.translate import Invocation
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.settings import Settings

if TYPE_CHECKING:
    from gym_compose.engine.interface import Engine
    from gym_compose.project.project import Project


class Session:
    """One command at work. ``report`` takes lines of progress and shows them on stderr."""

    def __init__(self, call: Invocation, console: Console) -> None:
        self.call = call
        self.console = console

    @property
    def cwd(self) -> Path:
        return self.call.cwd

    @cached_property
    def settings(self) -> Settings:
        return Settings.from_environ(self.call.environ)

    @property
    def wanted_engine(self) -> str:
        return str(getattr(self.call.args, "engine", "auto"))

    @property
    def project_name(self) -> str | None:
        name = getattr(self.call.args, "project", None)
        return None if name is None else str(name)

    @property
    def publish(self) -> tuple[str, ...]:
        """``--publish``, for commands that have it."""
        return tuple(getattr(self.call.args, "publish", ()))

    def unbounded(self, purpose: str) -> Deadline:
        """No bound of its own: each step below has one, from the settings or from the config."""
        return Deadline.after(None, purpose)

    def brief(self, purpose: str) -> Deadline:
        """For one look at the engine."""
        return Deadline.after(self.settings.docker_call_seconds, purpose)

    def stopping(self) -> Deadline:
        return Deadline.after(self.settings.down_seconds, "the project to stop")

    def engine(self, wanted: str | None = None) -> Engine:
        """The engine that the flags ask for; ``auto`` takes Docker when it answers. Raises PrerequisiteError."""
        from gym_compose.engine.select import GYM_DIRECTORY, select_engine

        return select_engine(
            wanted or self.wanted_engine,
            self.call.environ,
            self.settings,
            self.brief("an engine to answer"),
            home=self.cwd / GYM_DIRECTORY,
            say=self.report,
        )

    def docker(self) -> Engine:
        """The Docker engine without a call to it: for what only compiles."""
        from gym_compose.engine.docker.engine import DockerEngine

        return DockerEngine(self.call.environ, self.settings)

    def load(self, *, engine: Engine | None = None) -> Project:
        """The project of this command line's config, compiled; its warnings are printed. Writes nothing.

        Raises NoServerInstancesError for a config without servers.
        """
        from gym_compose.config import require_instances
        from gym_compose.project.project import Project

        project = Project.load(
            self.call.overrides,
            engine=engine or self.engine(),
            cwd=self.cwd,
            environ=self.call.environ,
            settings=self.settings,
            name=self.project_name,
            publish=self.publish,
        )
        require_instances(project.config)
        for warning in dict.fromkeys((*project.config.warnings, *project.deployment.warnings)):
            self.console.err(f"Warning: {project.redact(warning)}")
        return project

    def find(self) -> Project:
        """The project that ``-p`` names, or the only one below the working directory; one that was started elsewhere is found by the
        labels of its containers. Raises ProjectNotFoundError."""
        from gym_compose.project.directory import find_project
        from gym_compose.project.errors import ProjectNotFoundError

        try:
            return self.open(find_project(self.cwd, self.project_name).path)
        except ProjectNotFoundError:
            directory = self._labelled_directory()
            if directory is None:
                raise
            return self.open(directory)

    def _labelled_directory(self) -> Path | None:
        if self.project_name is None or self.wanted_engine == "process":
            return None
        try:
            observed = self.engine("docker").observe(self.project_name, self.brief("the state of the project"))
        except PrerequisiteError:  # no Docker here: then nothing of it can run in containers
            return None
        return None if observed.directory is None else Path(observed.directory)

    def open(self, directory: Path) -> Project:
        """A project that was written before, on the engine that it was started with unless ``--engine`` says otherwise."""
        from gym_compose.project.directory import ProjectDirectory
        from gym_compose.project.project import Project

        found = ProjectDirectory(directory)
        wanted = self.wanted_engine
        if wanted == "auto":
            state = found.read_state()
            wanted = state.engine if state is not None else "docker"  # without a state only labels can have led here
        return Project.open(found, engine=self.engine(wanted), environ=self.call.environ, settings=self.settings)

    def report(self, line: str) -> None:
        self.console.err(line)
