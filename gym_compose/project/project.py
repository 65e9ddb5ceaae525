"""One project: from overrides to a deployment on an engine, and back to nothing. The CLI and ``testing`` are thin over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gym_compose.engine.interface import BuiltImage, Engine, LogLine, Observed, PlannedAction, Report, StopReport
from gym_compose.engine.masking import deployment_redactor, directory_redactor
from gym_compose.engine.select import select_engine
from gym_compose.project import lifecycle
from gym_compose.project.directory import ProjectDirectory, ProjectState, find_project
from gym_compose.project.errors import OtherEngineError
from gym_compose.project.http import HeadClient
from gym_compose.project.ports import expected_head_port, settled_head_port
from gym_compose.project.published import port_of
from gym_compose.project.source import ProjectSource, Selection
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.head import HealthReport
from gym_compose.wire.names import HEAD_SERVICE
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

if TYPE_CHECKING:
    from gym_compose.compiler.deployment import Deployment
    from gym_compose.config.model import GymConfig, ServerSource
    from gym_compose.project.events import OnEvent
    from gym_compose.project.runs import RunOptions
    from gym_compose.wire.run import RunSummary


@dataclass(frozen=True)
class _Compiled:
    """A deployment and what it was compiled with, so that it can be compiled again when a port or key turns out otherwise."""

    source: ProjectSource
    deployment: Deployment
    head_port: int
    session_key: str | None


class Project:
    """A project with its directory and engine.

    ``load`` gives one with a config, which can do everything; ``open`` one that was written before, which can look at what runs,
    stop it and collect from it. Not safe to use from several threads at once.
    """

    def __init__(
        self, directory: ProjectDirectory, *, engine: Engine, environ: Mapping[str, str], settings: Settings, compiled: _Compiled | None
    ) -> None:
        self.directory = directory
        self.engine = engine
        self.environ = environ
        self.settings = settings
        self._compiled = compiled
        self._redactor: Redactor | None = None

    # Making one

    @classmethod
    def load(
        cls,
        overrides: Sequence[str],
        *,
        engine: Engine,
        cwd: Path,
        environ: Mapping[str, str],
        settings: Settings,
        name: str | None = None,
        roots: Sequence[Path] = (),
        publish: Sequence[str] = (),
    ) -> Project:
        """Merge, validate and compile a config. Writes nothing and asks no engine.

        ``overrides`` are Hydra's, config_paths among them; ``name`` is ``-p``, else the name is made (``naming.project_name``);
        ``roots`` are ``--search-dir`` directories; ``publish`` is ``--publish``. Raises the config's and the compiler's errors.
        """
        chosen = Selection(tuple(overrides), cwd, environ, roots=tuple(roots), publish=tuple(publish), name=name)
        source = ProjectSource.load(chosen, target=engine.name, settings=settings)
        directory = ProjectDirectory.under(cwd, source.name)
        state = directory.read_state()
        port = expected_head_port(
            source.head_port.wanted, explicit=source.head_port.explicit, remembered=state.head_port if state else None
        )
        compiled = cls._compile(source, directory, port)
        return cls(directory, engine=engine, environ=environ, settings=settings, compiled=compiled)

    @classmethod
    def open(cls, directory: ProjectDirectory, *, engine: Engine, environ: Mapping[str, str], settings: Settings) -> Project:
        """A project that was written before, without its config: for ``down``, ``ps``, ``logs``, ``attach`` and ``eval run --no-serve``."""
        return cls(directory, engine=engine, environ=environ, settings=settings, compiled=None)

    @classmethod
    def find(cls, cwd: Path, name: str | None, *, engine: Engine, environ: Mapping[str, str], settings: Settings) -> Project:
        """``open`` of the project ``name``, or of the only one under ``cwd``. Raises ProjectNotFoundError."""
        return cls.open(find_project(cwd, name), engine=engine, environ=environ, settings=settings)

    @staticmethod
    def _compile(source: ProjectSource, directory: ProjectDirectory, head_port: int) -> _Compiled:
        key = directory.read_session_key()
        return _Compiled(source, source.compile(directory, head_port=head_port, session_key=key), head_port, key)

    # What it is

    @property
    def name(self) -> str:
        return self.directory.project

    @property
    def deployment(self) -> Deployment:
        """Raises InvalidInputError for a project that was opened without its config."""
        return self._loaded().deployment

    @property
    def config(self) -> GymConfig:
        return self._loaded().source.config

    @property
    def sources(self) -> Mapping[tuple[str, str], ServerSource]:
        """The server trees behind the config, by (server type, implementation)."""
        return self._loaded().source.sources

    @property
    def has_config(self) -> bool:
        return self._compiled is not None

    @property
    def head_port_is_explicit(self) -> bool:
        """The config names the head's port on this host, so no other one will do."""
        return self._loaded().source.head_port.explicit

    def _loaded(self) -> _Compiled:
        if self._compiled is None:
            raise InvalidInputError(
                "this needs the project's config", where=f"project {self.name}", hint="Give it again, with --config or a selector."
            )
        return self._compiled

    @property
    def redactor(self) -> Redactor:
        """Knows every secret value of the config, or of the slices on disk for a project that was opened."""
        if self._redactor is None:
            if self._compiled is None:
                self._redactor = directory_redactor(self.directory.path)
            else:
                self._redactor = deployment_redactor(self._compiled.deployment).with_values(self._compiled.source.secret_values())
        return self._redactor

    def redact(self, text: str) -> str:
        return self.redactor.text(text)

    def state(self) -> ProjectState | None:
        return self.directory.read_state()

    def head_address(self, deadline: Deadline) -> str | None:
        """The head's ``host:port`` on this host as the engine says now; None when it does not run."""
        return self.engine.published(self.name, deadline).get(HEAD_SERVICE)

    def head_client(self, address: str) -> HeadClient:
        """A client of the head at ``host:port``; close it, or use it as a context manager."""
        return HeadClient(f"http://{address}", self.settings)

    def compose_text(self) -> str:
        """The compose file that ``write`` writes. Raises InvalidInputError for the process engine, which has none."""
        files = {file.path: file.content for file in self._loaded().source.files(self.deployment, self.directory)}
        content = files.get(self.directory.compose_file.name)
        if content is None:
            raise InvalidInputError("the process engine has no compose file", where=f"project {self.name}", hint="Say --engine docker.")
        return content.decode("utf-8")

    # Steps

    def write(self) -> None:
        """Write everything under ``.gym/<project>/``. Makes the session key at the first time. Raises PrerequisiteError."""
        compiled = self._loaded()
        self.directory.create()
        key = self.directory.session_key()
        if key != compiled.session_key:
            self._compiled = compiled = self._compile(compiled.source, self.directory, compiled.head_port)
            self._redactor = None
        compiled.source.write(compiled.deployment, self.directory)
        state = self.directory.read_state()
        self.directory.write_state(
            ProjectState(
                project=self.name,
                engine=self.engine.name,
                gym_compose=compiled.source.version,
                head_port=state.head_port if state else None,
                ports=compiled.source.ports_to_remember(),
                config_paths=compiled.source.config_paths,
            )
        )

    def plan(self, deadline: Deadline) -> Sequence[PlannedAction]:
        """What ``up`` would do now."""
        return self.engine.plan(self.deployment, self.engine.observe(self.name, deadline))

    def build(self, deadline: Deadline, report: Report, *, upgrade: bool = False) -> Sequence[BuiltImage]:
        """Make the images (or requirement sets) that are missing; the files are written first. ``upgrade`` leaves the locks of requirements
        alone, so that all versions are chosen anew. Raises BuildError."""
        if upgrade:
            compiled = self._loaded()
            self._compiled = self._compile(replace(compiled.source, upgrade=True), self.directory, compiled.head_port)
        self.write()
        return self.engine.build(self.deployment, self.directory.path, deadline, report)

    def up(
        self,
        deadline: Deadline,
        report: Report,
        *,
        on_plan: lifecycle.OnPlan | None = None,
        on_health: lifecycle.OnHealth | None = None,
    ) -> HealthReport:
        """Plan, write, build, apply, wait until ready; see ``lifecycle.up``."""
        return lifecycle.up(self, deadline, lifecycle.Listeners(report, on_plan, on_health))

    def down(self, deadline: Deadline, report: Report) -> StopReport:
        """Stop and remove all that is the project's; see ``lifecycle.down``."""
        return lifecycle.down(self, deadline, report)

    def observe(self, deadline: Deadline) -> Observed:
        return self.engine.observe(self.name, deadline)

    def logs(
        self, services: Sequence[str] = (), *, follow: bool = False, tail: int | None = None, stop: threading.Event | None = None
    ) -> Iterator[LogLine]:
        """Lines of the services (all when none is named), secrets masked. Names may be those of instances.

        Raises InvalidInputError for a name that is neither a service's nor an instance's.
        """
        names = [self.service_of(name) for name in services]
        for line in self.engine.logs(self.name, names, follow=follow, tail=tail, stop=stop):
            yield replace(line, text=self.redact(line.text))

    def service_of(self, name: str) -> str:
        """The compose service of an instance or service name. Raises InvalidInputError, which lists the services, when it is neither."""
        if self._compiled is not None:
            known = [(service.name, service.instance) for service in self._compiled.deployment.services]
        else:
            known = self.directory.planned_services()
        for service, instance in known:
            if name in (service, instance):
                return service
        if not known:  # no plan was written: the engine alone knows
            return name
        raise InvalidInputError(
            f"there is no service {name!r}", where=f"project {self.name}", hint=f"There is: {', '.join(service for service, _ in known)}."
        )

    def collect(self, options: RunOptions, on_event: OnEvent) -> RunSummary:
        """Run a driver against what runs; see ``collect.collect``."""
        from gym_compose.project import collect

        return collect.collect(self, options, on_event)

    # Called by lifecycle

    def require_one_engine(self, deadline: Deadline, report: Report) -> None:
        """Raise OtherEngineError when servers of this project are there on the engine that it was started with before: `down` stops those
        of one engine only, so they would be left for ever."""
        state = self.directory.read_state()
        if state is None or state.engine == self.engine.name:
            return
        bounded = deadline.within(self.settings.docker_call_seconds, "the state of the project")
        try:
            other = select_engine(state.engine, self.environ, self.settings, bounded, home=self.directory.path.parent)
        except PrerequisiteError as error:
            report(f"Servers of {self.name} that were started on {state.engine} before cannot be looked for: {error.message}.")
            return
        if other.observe(self.name, bounded).services:
            raise OtherEngineError(self.name, state.engine)

    def settle_ports(self, observed: Observed) -> None:
        """Choose the ports that are really used, now that it is known what runs. Compiles again when one differs.

        Raises HeadPortTakenError.
        """
        compiled = self._loaded()
        source = compiled.source
        if not any(state.status == "running" for state in observed.services):
            source = source.with_free_ports()
        state = self.directory.read_state()
        head = observed.state(HEAD_SERVICE)
        port = settled_head_port(
            source.head_port.wanted,
            explicit=source.head_port.explicit,
            remembered=state.head_port if state else None,
            head_runs=head is not None and head.status == "running",
        )
        if port != compiled.head_port or source is not compiled.source:
            self._compiled = self._compile(source, self.directory, port)
            self._redactor = None

    def remember(self, head_address: str) -> None:
        """Keep the head's port: a later command, or another one while this runs, finds it in ``state.json``."""
        state = self.directory.read_state()
        if state is not None:
            self.directory.write_state(state.model_copy(update={"head_port": port_of(head_address)}))
