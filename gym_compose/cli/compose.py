"""``gym compose …``: a config as containers (or processes), one for each server."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from gym_compose.cli.console import Console
from gym_compose.cli.progress import up_progress
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import GymComposeError, UsageError

if TYPE_CHECKING:
    from gym_compose.engine.interface import BuiltImage, Observed, PlannedAction, ServiceState, StopReport
    from gym_compose.project.project import Project

_PLAN_COLUMNS = ("instance", "type", "runtime", "image", "references", "networks", "secrets", "source")
_SHOWN_SERVERS = 3


def up(call: Invocation, console: Console) -> int:
    """``gym compose up``: 0 when ready (``-d``) or after a clean stop by Ctrl+C, before it is ready too."""
    session = Session(call, console)
    project = session.load()
    if call.args.dry_run:
        return _show_actions(project.plan(session.brief("the state of the project")), session)
    if call.args.detach:
        bring_up(session, project)
        return _show_ready(session, project)
    foreground(session, project, lambda: console.err("Ctrl+C stops it."))
    return 0


def down(call: Invocation, console: Console) -> int:
    """``gym compose down``: 0 when nothing is left. Idempotent."""
    session = Session(call, console)
    if call.args.all:
        from gym_compose.project.directory import projects_under

        projects = [session.open(directory.path) for directory in projects_under(session.cwd)]
    else:
        projects = [session.find()]
    reports: dict[str, StopReport] = {}
    for project in projects:
        if call.args.dry_run:
            observed = project.observe(session.brief("the state of the project"))
            console.err(f"{project.name}: would stop {', '.join(state.service for state in observed.services) or 'nothing'}")
            continue
        reports[project.name] = project.down(session.stopping(), session.report)
        if not call.json:
            show_stopped(console, project.name, reports[project.name])
    if call.json and not call.args.dry_run:
        console.json({name: dataclasses.asdict(report) for name, report in reports.items()})
    return 0


def ps(call: Invocation, console: Console) -> int:
    """``gym compose ps``: what the engine says now, the dead included."""
    session = Session(call, console)
    project = session.find()
    observed = project.observe(session.brief("the state of the project"))
    if call.json:
        console.json([dataclasses.asdict(state) for state in observed.services])
        return 0
    show_services(console, observed)
    return 0


def logs(call: Invocation, console: Console) -> int:
    """``gym compose logs``: lines with the service before each; ``-f`` until Ctrl+C, which is a clean end."""
    session = Session(call, console)
    project = session.find()
    stop = threading.Event()
    lines = project.logs(call.args.services, follow=call.args.follow, tail=call.args.tail, stop=stop)
    width = 0
    try:
        for line in lines:
            if call.json:
                import orjson

                console.out(orjson.dumps(dataclasses.asdict(line)).decode())
                continue
            width = max(width, len(line.service))
            console.out(f"{line.service:<{width}} | {line.text.removeprefix(f'({line.service}) ')}")
    except KeyboardInterrupt:
        if not call.args.follow:
            raise
    finally:
        stop.set()
    return 0


def config(call: Invocation, console: Console) -> int:
    """``gym compose config``: the compose file that ``up`` would write, on stdout. Nothing is written, and Docker need not run."""
    from gym_compose.compiler.assets import read_assets
    from gym_compose.compiler.fragments import parse_fragments
    from gym_compose.compiler.render import compose_text
    from gym_compose.project import assets

    session = Session(call, console)
    if session.wanted_engine == "process":
        raise UsageError("the process engine has no compose file.", hint="gym compose plan shows what it would start.")
    project = session.load(engine=session.docker())
    text = compose_text(project.deployment, parse_fragments(read_assets(assets.root())), str(project.directory.path))
    if call.json:
        import yaml

        console.json(yaml.safe_load(text))
    else:
        console.stdout.write(text)
        console.stdout.flush()
    return 0


def plan(call: Invocation, console: Console) -> int:
    """``gym compose plan``: a table of what would run; with ``--json`` plan.json and the sources. Nothing that runs is asked."""
    from gym_compose.compiler.networks import exposure
    from gym_compose.compiler.plan import plan_document, plan_rows

    session = Session(call, console)
    project = session.load()
    if call.json:
        document = plan_document(project.deployment)
        document["sources"] = [
            {
                "type": source.server_type,
                "implementation": source.implementation,
                "directory": source.directory,
                "origin": source.origin,
                "shadowed": list(source.shadowed),
            }
            for source in project.sources.values()
        ]
        console.json(document)
        return 0
    rows = []
    for row in plan_rows(project.deployment):
        source = project.sources.get((row.server_type, row.implementation))
        rows.append(
            (
                row.instance,
                f"{row.server_type}/{row.implementation}" if row.implementation else row.server_type,
                row.runtime,
                row.image,
                ", ".join(row.references),
                ", ".join(row.networks) + (" (published)" if row.published else ""),
                ", ".join(row.secrets),
                f"{source.origin}: {source.directory}" if source is not None else "",
            )
        )
    console.table(_PLAN_COLUMNS, rows, title=f"project {project.name}")
    for warning in exposure(project.deployment.services):
        console.alarm(warning)
    for instance, note in project.deployment.notes:
        console.err(f"Note: {instance}: {note}" if instance else f"Note: {note}")
    return 0


def build(call: Invocation, console: Console) -> int:
    """``gym compose build``: the images that are missing."""
    return build_images(Session(call, console))


def build_images(session: Session) -> int:
    """Make the images of the command line's config and list them; with ``--dry-run`` only list them."""
    project = session.load()
    if getattr(session.call.args, "dry_run", False):
        for image in project.deployment.images:
            session.console.out(f"{image.name} ({image.kind})")
        return 0
    upgrade = bool(getattr(session.call.args, "upgrade", False))
    with up_progress(session.console) as progress:
        images = project.build(session.unbounded("the images to be built"), progress.report, upgrade=upgrade)
    _show_images(images, project, session)
    return 0


def bring_up(session: Session, project: Project) -> None:
    """``Project.up`` with its progress shown. Raises what it raises; then nothing of the project runs any more."""
    with up_progress(session.console) as progress:
        project.up(session.unbounded("the project to start"), progress.report, on_plan=progress.plan, on_health=progress.health)


class Interrupted(KeyboardInterrupt):
    """Ctrl+C, after everything was stopped in order."""


@contextmanager
def running(session: Session, project: Project, *, keep: bool = False) -> Iterator[None]:
    """The project is up while the block runs and stopped afterwards, however it ends; ``keep`` leaves it running.

    An interrupt may come at any moment, also between two steps: everything from the first one on is inside. Raises Interrupted for it
    once all is stopped; one that comes while it stops gives the stopping up and is raised as it is.
    """

    def stop() -> None:
        if not keep:
            show_stopped(session.console, project.name, project.down(session.stopping(), session.report))

    started = False
    try:
        bring_up(session, project)
        started = True
        yield
    except KeyboardInterrupt:
        stop()
        raise Interrupted from None
    except BaseException:
        if started:  # a start that failed by itself has stopped everything already
            stop()
        raise
    else:
        stop()


def foreground(session: Session, project: Project, ready: Callable[[], object]) -> None:
    """Bring the project up, call ``ready`` and keep it until Ctrl+C, which ends it cleanly, or until one of its servers ends.

    Raises what the start raises, and ServerEndedError after everything was stopped.
    """
    from gym_compose.project.wait import DeathWatch

    with suppress(Interrupted), running(session, project), DeathWatch(project.engine, project.name) as watch:
        ready()
        _raise_dead(session, project)
        while True:
            if watch.next_death(session.settings.watch_seconds) is not None:
                _raise_dead(session, project)
            if watch.error is not None:
                raise watch.error


class ServerEndedError(GymComposeError):
    """A server of a running project ended by itself."""


def _raise_dead(session: Session, project: Project) -> None:
    """Raise ServerEndedError for the first service that has ended, with its last lines."""
    observed = project.observe(session.brief("the state of the project"))
    for service in project.deployment.services:
        state = observed.state(service.name)
        if service.role == "driver" or (state is not None and state.status == "running"):
            continue
        lines = tuple(line.text for line in project.logs([service.name], tail=session.settings.log_tail_lines))
        raise ServerEndedError(f"the server {_cause(state)}; the others were stopped.", where=f"services/{service.name}", details=lines)


def _cause(state: ServiceState | None) -> str:
    if state is None:
        return "is gone"
    return "was killed for lack of memory" if state.oom_killed else f"ended with exit code {state.exit_code}"


def show_stopped(console: Console, project: str, report: StopReport) -> None:
    """One line on stderr, and one that names whoever had to be killed."""
    console.err(f"{project}: stopped {len(report.stopped) + len(report.killed)}, removed {report.removed}.")
    if report.killed:
        console.err(f"{project}: had to be killed: {', '.join(report.killed)}.")


def show_services(console: Console, observed: Observed) -> None:
    rows = []
    for state in observed.services:
        ended = f" ({state.exit_code}{', out of memory' if state.oom_killed else ''})" if state.status == "exited" else ""
        status = f"{state.status}{ended}"
        memory = "" if state.memory_bytes is None else f"{state.memory_bytes / 1_048_576:.0f} MiB"
        rows.append((state.service, state.role, status, state.identity[:12] if state.identity else "", memory, state.restarts, state.image))
    console.table(("service", "role", "state", "id", "memory", "restarts", "image"), rows)


def _show_ready(session: Session, project: Project) -> int:
    address = project.head_address(session.brief("the head server's address"))
    if session.call.json:
        observed = project.observe(session.brief("the state of the project"))
        session.console.json(
            {
                "project": project.name,
                "engine": project.engine.name,
                "head": f"http://{address}" if address else None,
                "services": [dataclasses.asdict(state) for state in observed.services],
            }
        )
        return 0
    servers = sum(service.role == "server" for service in project.deployment.services)
    session.console.err(f"{project.name}: {servers} servers ready on {project.engine.name}, head server at http://{address}.")
    return 0


def _show_actions(actions: Sequence[PlannedAction], session: Session) -> int:
    if session.call.json:
        session.console.json([dataclasses.asdict(action) for action in actions])
    else:
        session.console.table(("service", "action", "reason"), ((action.service, action.action, action.reason) for action in actions))
    return 0


def _show_images(images: Sequence[BuiltImage], project: Project, session: Session) -> None:
    from gym_compose.compiler.sharing import users

    used = users(project.deployment)
    kinds = {image.name: image.kind for image in project.deployment.images}
    if session.call.json:
        session.console.json(
            [{**dataclasses.asdict(image), "kind": kinds.get(image.name), "used_by": list(used.get(image.name, ()))} for image in images]
        )
        return
    instances = [service.instance for service in project.deployment.services if service.instance is not None]
    rows: list[tuple[Any, ...]] = []
    for image in images:
        size = "" if image.own_bytes is None else f"{image.own_bytes / 1_048_576:.1f} MiB"
        servers = _names_of(used.get(image.name, ()), len(instances))
        rows.append((image.name, "built" if image.built else "there", f"{image.seconds:.1f} s" if image.built else "", size, servers))
    session.console.table(("image", "", "time", "adds", "servers"), rows)
    shipped = [image for image in images if kinds.get(image.name) != "build"]  # the compiler's image runs nowhere
    own = [image for image in shipped if len(used.get(image.name, ())) == 1]
    shared = [image for image in shipped if len(used.get(image.name, ())) > 1]
    run_on = len({service.image for service in project.deployment.services if service.instance is not None and service.image})
    session.console.err(
        f"{_count(len(instances), 'server')} on {_count(run_on, 'image')}: "
        f"{_size(shared)} of layers shared, {_size(own)} of one server each."
    )


def _names_of(instances: Sequence[str], total: int) -> str:
    if len(instances) == total and total > 1:
        return f"all {total}"
    return ", ".join(instances[:_SHOWN_SERVERS]) + (
        f" and {len(instances) - _SHOWN_SERVERS} more" if len(instances) > _SHOWN_SERVERS else ""
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(images: Sequence[BuiltImage]) -> str:
    return f"{sum(image.own_bytes or 0 for image in images) / 1_048_576:.1f} MiB"
