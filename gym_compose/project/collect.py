"""Running a driver: in a container of the project's network, or right here; followed, interrupted, attached to."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gym_compose.compiler.deployment import Mount
from gym_compose.engine.docker.driver import DriverContainer, DriverRequest
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.project.directory import GYM_DIRECTORY
from gym_compose.project.errors import NoHeadError, RunFailedError
from gym_compose.project.events import DriverOutput, OnEvent, redacted
from gym_compose.project.naming import run_id
from gym_compose.project.runs import ContainerPaths, HostPaths, RunDirectory, RunOptions, check_paths, on_host, text_on_host, with_paths
from gym_compose.project.wait import Redact
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.names import HEAD_ALIAS, HEAD_PORT_INSIDE
from gym_compose.wire.run import RunSummary
from gym_compose.wire.settings import PREFIX, Settings

if TYPE_CHECKING:
    from gym_compose.project.project import Project

_INTERRUPT = "SIGINT"
_READ_BY_DRIVERS = ("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING")


def collect(project: Project, options: RunOptions, on_event: OnEvent, *, cwd: Path | None = None) -> RunSummary:
    """Run a driver against what runs of ``project`` and return its summary, with paths of this host.

    On the Docker engine the driver is a detached container: it goes on when this process dies, and ``attach`` finds it. An interrupt
    (Ctrl+C, or a SIGTERM that the caller turned into KeyboardInterrupt) asks it to end and waits ``driver_stop_seconds`` for its
    summary, which then says ``interrupted``; a second one kills it.

    Raises InvalidInputError for paths that cannot work, NoHeadError when the project does not run, RunFailedError.
    """
    paths = check_paths(options, cwd or Path.cwd())
    if isinstance(project.engine, DockerEngine):
        return _in_container(project, project.engine, options, paths, on_event)
    deadline = Deadline.after(project.settings.docker_call_seconds, "the head server's address")
    address = project.head_address(deadline)
    if address is None:
        raise NoHeadError(f"project {project.name}", "it does not run")
    run = RunDirectory.of(project.directory, new_run_id())
    return _here(f"http://{address}", run, options, paths, redacted(on_event, project.redact))


def collect_here(head_url: str, options: RunOptions, on_event: OnEvent, *, cwd: Path) -> RunSummary:
    """Run a driver in this process against any head server (``eval run --no-serve`` on a peer's own). Interrupts as in ``collect``."""
    paths = check_paths(options, cwd)
    run = RunDirectory(cwd / GYM_DIRECTORY / "runs" / new_run_id())
    return _here(head_url, run, options, paths, on_event)


def attach(project: Project, on_event: OnEvent, *, run: str | None = None) -> RunSummary:
    """Follow a driver that was started before, from its first line to its summary: the run named ``run``, else the youngest one that
    runs, else the youngest that ended.

    Interrupts as in ``collect``. Raises InvalidInputError when there is no such run.
    """
    if not isinstance(project.engine, DockerEngine):
        raise InvalidInputError("a run of the process engine ends with its command", where=f"project {project.name}")
    deadline = Deadline.after(project.settings.docker_call_seconds, "a list of drivers")
    everything = project.engine.drivers(project.name, deadline, running=False)
    alive = {driver.container for driver in project.engine.drivers(project.name, deadline, running=True)}
    chosen = [driver for driver in everything if run is None or driver.run_id == run]
    chosen.sort(key=lambda driver: driver.container not in alive)
    if not chosen or chosen[0].run_id is None:
        known = ", ".join(driver.run_id for driver in everything if driver.run_id)
        what = "no run to attach to" if run is None else f"no run {run!r}"
        raise InvalidInputError(f"there is {what}", where=f"project {project.name}", hint=f"There are: {known}." if known else None)
    driver = chosen[0]
    directory = RunDirectory.of(project.directory, str(driver.run_id))
    output = driver.output or directory.host_paths().output
    return _follow(driver, directory, output, on_event, project.settings, project.redact)


def new_run_id() -> str:
    return run_id(time.time(), secrets.token_hex(2))


# In a container


def _in_container(project: Project, engine: DockerEngine, options: RunOptions, paths: HostPaths, on_event: OnEvent) -> RunSummary:
    run = RunDirectory.of(project.directory, new_run_id())
    inside = ContainerPaths.of(paths, run)
    request = with_paths(
        options,
        run_id=run.run_id,
        head_url=f"http://{HEAD_ALIAS}:{HEAD_PORT_INSIDE}",
        input_jsonl_fpath=inside.input,
        output_jsonl_fpath=inside.output,
    )
    run.create(request, paths)
    return start_and_follow(project, engine, run, inside.mounts, paths.output, on_event)


def start_and_follow(
    project: Project, engine: DockerEngine, run: RunDirectory, mounts: Sequence[tuple[str, str, bool]], output: str, on_event: OnEvent
) -> RunSummary:
    """Start a driver for a run directory with its request in it, with these (host, container, read-only) mounts, and follow it to its end.
    ``output`` is the host's path of its rollouts."""
    deadline = Deadline.after(project.settings.compose_create_seconds, "the driver to start")
    asked = DriverRequest(
        project=project.name,
        directory=project.directory.path,
        run_id=run.run_id,
        user=f"{os.getuid()}:{os.getgid()}",
        mounts=tuple(Mount(source, target, read_only) for source, target, read_only in mounts),
        output=output,
        environment=driver_environment(project.environ),
    )
    try:
        driver = engine.start_driver(asked, deadline)
    except BaseException:
        _discard(project, engine, run)
        raise
    return _follow(driver, run, output, on_event, project.settings, project.redact)


def driver_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a driver in a container gets of the caller's environment: the settings, and the two variables of NeMo Gym that it reads."""
    names = {*(PREFIX + field.name.upper() for field in dataclasses.fields(Settings)), *_READ_BY_DRIVERS}
    return {name: environ[name] for name in sorted(names) if environ.get(name)}


def _discard(project: Project, engine: DockerEngine, run: RunDirectory) -> None:
    """Remove a driver whose start failed or was interrupted: nobody would follow it. Best effort, the first error is what counts."""
    with contextlib.suppress(GymComposeError):
        deadline = Deadline.after(project.settings.docker_call_seconds, "the driver to be removed")
        for driver in engine.drivers(project.name, deadline, running=False):
            if driver.run_id == run.run_id:
                driver.remove(deadline)


def _follow(driver: DriverContainer, run: RunDirectory, output: str, on_event: OnEvent, settings: Settings, redact: Redact) -> RunSummary:
    """Read a driver's lines to its end, take its exit code, keep that, remove the container."""
    said = DriverOutput(on_event, tail_lines=settings.log_tail_lines, redact=lambda text: redact(text_on_host(text, output)))
    stop = threading.Event()
    interrupted = False
    try:
        _read(driver, said, stop)
    except KeyboardInterrupt:
        interrupted = True
        _end(driver, said, settings)
    code = driver.wait(Deadline.after(settings.driver_stop_seconds, "the driver's exit code"))
    call = Deadline.after(settings.docker_call_seconds, "what is left of the driver")
    for line in driver.errors(call, tail=settings.log_tail_lines):
        said.feed(line)
    run.write_exit_code(code)
    driver.remove(call)
    try:
        summary = said.summary(code)
    except RunFailedError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    return on_host(summary, output)


def _read(driver: DriverContainer, said: DriverOutput, stop: threading.Event) -> None:
    for line in driver.lines(stop):
        said.feed(line)


def _end(driver: DriverContainer, said: DriverOutput, settings: Settings) -> None:
    """Ask the driver to end and read what it still says; kill it when it takes longer than it may, or at a second interrupt."""
    bound = Deadline.after(settings.driver_stop_seconds, "the driver to end")
    stop = threading.Event()
    timer = threading.Timer(settings.driver_stop_seconds, stop.set)
    timer.daemon = True
    timer.start()
    try:
        driver.signal(_INTERRUPT, bound)
        # The interrupt ended the first reading; its last lines are read again, and what was told already is not told twice.
        quiet = DriverOutput(lambda _: None, tail_lines=settings.log_tail_lines, redact=lambda text: text)
        for line in driver.lines(stop, tail=settings.log_tail_lines):
            quiet.feed(line)
        said.last = quiet.last
    except KeyboardInterrupt:
        stop.set()
    finally:
        timer.cancel()
        if stop.is_set():
            with contextlib.suppress(GymComposeError):
                driver.signal("SIGKILL", Deadline.after(settings.docker_call_seconds, "the driver to be killed"))


# Right here


def _here(head_url: str, run: RunDirectory, options: RunOptions, paths: HostPaths, on_event: OnEvent) -> RunSummary:
    from gym_compose.driver import collect as drive

    request = with_paths(options, run_id=run.run_id, head_url=head_url, input_jsonl_fpath=paths.input, output_jsonl_fpath=paths.output)
    run.create(request, paths)
    return run_here(run, lambda stop: drive(request, on_event, stop))


def run_here(run: RunDirectory, work: Callable[[asyncio.Event], Awaitable[RunSummary]]) -> RunSummary:
    """Do a driver's work in this process; SIGINT and SIGTERM set the event that it is given. The exit code is kept in ``run``."""

    async def main() -> RunSummary:
        stop = asyncio.Event()
        with _signals(stop):
            return await work(stop)

    try:
        summary = asyncio.run(main())
    except GymComposeError as error:
        run.write_exit_code(error.exit_code)
        raise
    run.write_exit_code(0 if not summary.interrupted else 130)
    return summary


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask the driver to end; a second one is as it was before. Only the main thread has signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def first() -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        restore()
