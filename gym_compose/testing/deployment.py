"""A real deployment inside a test: started on enter, gone on exit."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.interface import Engine, Observed, StopReport
from gym_compose.engine.select import select_engine
from gym_compose.project.directory import GYM_DIRECTORY
from gym_compose.project.events import OnEvent, RunEvent
from gym_compose.project.http import HeadClient
from gym_compose.project.project import Project
from gym_compose.project.runs import RunOptions
from gym_compose.testing.compose import ComposeEngine, ExecResult
from gym_compose.testing.leftovers import Leftovers, find_leftovers
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.head import HealthReport
from gym_compose.wire.run import RunSummary
from gym_compose.wire.settings import Settings


class GymDeployment:
    """Configs as running servers, for a ``with`` block or a fixture.

    On Docker ``up`` is testcontainers' DockerCompose over the compose file that gym_compose wrote; the project name stands in that
    file and gets a random ending here, so that tests do not share one. On the process engine the servers are child processes.

        with GymDeployment("configs/quickstart.yaml") as gym:
            records = gym.collect(rows, num_repeats=2)

    ``config`` is a path or several; ``overrides`` are Hydra's; ``engine`` is auto, docker or process; ``cwd`` is where relative paths and
    ``.gym/`` belong (default: the current directory). ``report`` takes lines of progress. Entering raises what ``Project.up`` raises,
    with everything stopped.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        *,
        overrides: Sequence[str] = (),
        engine: str = "auto",
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        name: str | None = None,
        roots: Sequence[Path] = (),
        publish: Sequence[str] = (),
        report: Any = None,
    ) -> None:
        self.environ = dict(os.environ if environ is None else environ)
        self.settings = settings or Settings.from_environ(self.environ)
        self.cwd = (cwd or Path.cwd()).absolute()
        self._configs = [config] if isinstance(config, str | os.PathLike) else list(config)
        self._overrides = tuple(overrides)
        self._wanted_engine = engine
        self._name = name
        self._roots = tuple(roots)
        self._publish = tuple(publish)
        self.lines: list[str] = []
        self._report = report
        self._project: Project | None = None
        self.health: HealthReport | None = None

    # Life

    def __enter__(self) -> GymDeployment:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def start(self) -> HealthReport:
        """Build what is missing, start, wait until ready. Once more it brings the project to what the files now say."""
        project = self.load()
        try:
            self.health = project.up(self._unbounded("the deployment to start"), self._told)
        except BaseException:
            self._discard()
            raise
        return self.health

    def load(self) -> Project:
        """The project, compiled from the files as they are now, not started."""
        first = self._project
        engine = first.engine if first is not None else self._engine()
        if first is None and self._name is None:
            plain = self._loaded(engine, None)
            self._name = f"{plain.name[:50]}-{secrets.token_hex(3)}"
        self._project = self._loaded(engine, self._name)
        return self._project

    def stop(self) -> StopReport:
        """Stop, remove everything, the project's directory too. Idempotent."""
        if self._project is None:
            return StopReport()
        report = self._project.down(Deadline.after(self.settings.down_seconds, "the deployment to stop"), self._told)
        self._discard()
        return report

    def leftovers(self) -> Leftovers:
        """What is still there of this deployment; nothing after ``stop``."""
        return find_leftovers(self.name, environ=self.environ, settings=self.settings)

    # What it is

    @property
    def project(self) -> Project:
        if self._project is None:
            raise InvalidInputError("the deployment was not started", hint="Use it in a `with` block, or call start().")
        return self._project

    @property
    def name(self) -> str:
        """The project's name. Raises InvalidInputError before the first start."""
        if self._name is None:
            raise InvalidInputError("the deployment has no name yet", hint="Use it in a `with` block, or call start().")
        return self._name

    @property
    def directory(self) -> Path:
        """``.gym/<project>``."""
        return self.project.directory.path

    @property
    def engine(self) -> Engine:
        return self.project.engine

    @property
    def docker(self) -> ComposeEngine:
        """The Docker engine. Raises InvalidInputError for a deployment of processes."""
        if not isinstance(self.engine, ComposeEngine):
            raise InvalidInputError("this deployment does not run on Docker", where=f"project {self.name}")
        return self.engine

    @property
    def head_url(self) -> str:
        """Where the head server answers on this host."""
        address = self.project.head_address(self._brief("the head server's address"))
        if address is None:
            raise InvalidInputError("the head server does not run", where=f"project {self.name}")
        return f"http://{address}"

    def head(self) -> HeadClient:
        return HeadClient(self.head_url, self.settings)

    def observe(self) -> Observed:
        return self.project.observe(self._brief("the state of the services"))

    # Use

    def collect(
        self,
        rows: Iterable[Mapping[str, Any]] | str | os.PathLike[str],
        *,
        output: Path | None = None,
        on_event: OnEvent | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Run the rows (or a JSONL file of them) through the deployment; the records of ``output`` in order of completion.

        ``options`` are fields of RunOptions (``num_repeats``, ``num_samples_in_parallel``, ``limit``, …). The run's summary is in
        ``last_summary``.
        """
        place = self.directory / "testing" / secrets.token_hex(4)
        place.mkdir(parents=True)
        if isinstance(rows, str | os.PathLike):
            source = (self.cwd / rows).absolute()
        else:
            source = place / "rows.jsonl"
            source.write_bytes(b"".join(orjson.dumps(dict(row)) + b"\n" for row in rows))
        target = output or place / "rollouts.jsonl"
        run = RunOptions(input_jsonl_fpath=str(source), output_jsonl_fpath=str(target), **options)
        self.last_summary = self.project.collect(run, on_event or _quiet)
        return [orjson.loads(line) for line in target.read_bytes().splitlines()]

    last_summary: RunSummary | None = None

    def logs(self, *services: str, tail: int | None = None) -> str:
        """What the services (all when none is named) wrote so far, secrets masked."""
        stop = threading.Event()
        return "\n".join(line.text for line in self.project.logs(services, follow=False, tail=tail, stop=stop))

    def exec(self, service: str, *command: str) -> ExecResult:
        """Run a command in a service's container. Docker only."""
        return self.docker.composed(self.name).run_in(self.project.service_of(service), command)

    # Inside

    def _engine(self) -> Engine:
        chosen = select_engine(
            self._wanted_engine,
            environ=self.environ,
            settings=self.settings,
            deadline=self._brief("an engine to answer"),
            home=self.cwd / GYM_DIRECTORY,
        )
        return ComposeEngine(self.environ, self.settings) if isinstance(chosen, DockerEngine) else chosen

    def _loaded(self, engine: Engine, name: str | None) -> Project:
        overrides = list(self._overrides)
        if self._configs:
            paths = ",".join(_quoted(os.fspath(path)) for path in self._configs)
            overrides.insert(0, f"+config_paths=[{paths}]")
        return Project.load(
            overrides,
            engine=engine,
            cwd=self.cwd,
            environ=self.environ,
            settings=self.settings,
            name=name,
            roots=self._roots,
            publish=self._publish,
        )

    def _told(self, line: str) -> None:
        self.lines.append(line)
        if self._report is not None:
            self._report(line)

    def _discard(self) -> None:
        if self._project is not None:
            if self._project.directory.path.exists():  # one that was loaded only has none
                shutil.rmtree(self._project.directory.path, ignore_errors=False)
            parent = self.cwd / GYM_DIRECTORY
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
            self._project = None

    def _brief(self, purpose: str) -> Deadline:
        return Deadline.after(self.settings.docker_call_seconds, purpose)

    @staticmethod
    def _unbounded(purpose: str) -> Deadline:
        return Deadline.after(None, purpose)


def _quoted(text: str) -> str:
    """A string in Hydra's override grammar: double-quoted, with backslashes only before quotes."""
    return '"' + text.replace('\\"', '\\\\"').replace('"', '\\"') + '"'


def _quiet(_: RunEvent) -> None:
    """Progress that nobody looks at."""
