"""Up and down: desired, observed, plan, apply, wait; and back to nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gym_compose.engine.errors import CommandError, PortTakenError
from gym_compose.engine.interface import PlannedAction, Report, StopReport
from gym_compose.project.errors import HeadFailedError
from gym_compose.project.published import instance_addresses, write_published
from gym_compose.project.wait import DeathWatch, ReadyWait, ready_deadline
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.head import HealthReport
from gym_compose.wire.names import HEAD_SERVICE

if TYPE_CHECKING:
    from gym_compose.project.project import Project


OnPlan = Callable[[Sequence[PlannedAction]], None]
OnHealth = Callable[[HealthReport], None]


@dataclass(frozen=True)
class Listeners:
    """Who is told what on the way: lines of progress, the plan, each answer of the head."""

    report: Report
    on_plan: OnPlan | None = None
    on_health: OnHealth | None = None


def up(project: Project, deadline: Deadline, listeners: Listeners) -> HealthReport:
    """Bring the project to what its config says and wait until it is ready. Idempotent.

    Until containers or processes are touched, a failure leaves alone what runs. From then on a failure or interrupt stops the
    whole project, so that nothing half-made is left; a second interrupt gives the stopping up. The project's lock is held until
    all is started, not while it is waited for: `down` in another terminal must not have to wait for servers that never answer.

    Raises what the steps raise: ProjectBusyError, HeadPortTakenError, BuildError, ServerDiedError, HeadFailedError, …
    """
    engine = project.engine
    with DeathWatch(engine, project.name) as watch:
        with project.directory.lock(deadline.within(project.settings.project_lock_seconds, "the project's lock")):
            project.require_one_engine(deadline, listeners.report)
            observed = engine.observe(project.name, deadline)
            project.settle_ports(observed)
            actions = engine.plan(project.deployment, observed)
            if listeners.on_plan is not None:
                listeners.on_plan(actions)
            project.build(deadline, listeners.report)
            with _StoppedOnFailure(project, listeners.report):
                _apply(project, actions, deadline, listeners.report)
                applied = time.time()
                address = _publish(project, deadline)
        with _StoppedOnFailure(project, listeners.report):
            return _wait(project, address, watch, deadline, listeners, _fresh(project, actions), applied)


def _fresh(project: Project, actions: Sequence[PlannedAction]) -> frozenset[str]:
    """The instances that are started under a head that keeps running. A head that is started too gives its verdict on all."""
    kinds = {action.service: action.action for action in actions}
    if kinds.get(HEAD_SERVICE) != "keep":
        return frozenset()
    services = project.deployment.services
    return frozenset(s.instance for s in services if s.instance is not None and kinds.get(s.name) in {"create", "recreate", "start"})


def _apply(project: Project, actions: Sequence[PlannedAction], deadline: Deadline, report: Report) -> None:
    """Start what is planned. A port that was taken between our look and the engine's bind gives way once, unless the config names it.

    Raises ServerDiedError or NotReadyError for a service that others wait for and that did not become healthy.
    """
    engine, directory = project.engine, project.directory.path
    try:
        engine.apply(project.deployment, directory, actions, deadline, report)
    except PortTakenError as error:
        if project.head_port_is_explicit:
            raise
        report(f"{error.message}: starting once more with free ports")
        engine.stop(project.name, deadline, report)
        observed = engine.observe(project.name, deadline)
        project.settle_ports(observed)
        project.build(deadline, report)
        engine.apply(project.deployment, directory, engine.plan(project.deployment, observed), deadline, report)
    except CommandError as error:
        ReadyWait(engine=engine, deployment=project.deployment, redact=project.redact, settings=project.settings).raise_unhealthy(error)
        raise


def _wait(
    project: Project,
    address: str | None,
    watch: DeathWatch,
    deadline: Deadline,
    listeners: Listeners,
    fresh: frozenset[str],
    since: float,
) -> HealthReport:
    wait = ReadyWait(
        engine=project.engine,
        deployment=project.deployment,
        redact=project.redact,
        settings=project.settings,
        on_health=listeners.on_health,
        fresh=fresh,
        since=since,
    )
    if address is None:  # a container that has ended publishes nothing: say why it ended, if that is it
        wait.raise_dead(deadline)
        raise HeadFailedError("the head server has no address on this host", where=f"services/{HEAD_SERVICE}")
    bound = ready_deadline(project.deployment, project.settings)
    with project.head_client(address) as head:
        return wait.run(head.health, watch, deadline.within(bound.remaining(), bound.purpose))


def down(project: Project, deadline: Deadline, report: Report) -> StopReport:
    """Stop all that is the project's, driver first and head last, and forget its ports. Idempotent."""
    stopped = project.engine.stop(project.name, deadline, report)
    state = project.directory.read_state()
    if state is not None and (state.head_port is not None or state.ports):
        project.directory.write_state(state.model_copy(update={"head_port": None, "ports": {}}))
    return stopped


def _publish(project: Project, deadline: Deadline) -> str | None:
    """Read the published addresses back, hand them to the controller and remember the head's. Returns the head's ``host:port``."""
    published = project.engine.published(project.name, deadline)
    write_published(project.directory, instance_addresses(project.deployment, published))
    address = published.get(HEAD_SERVICE)
    if address is not None:
        project.remember(address)
    return address


class _StoppedOnFailure:
    """Leaves nothing running when its block fails or is interrupted. Stopping is best effort and never replaces the first error."""

    def __init__(self, project: Project, report: Report) -> None:
        self._project = project
        self._report = report

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        self._report("stopping what was started")
        deadline = Deadline.after(self._project.settings.down_seconds, "the project to stop")
        try:
            down(self._project, deadline, self._report)
            if isinstance(error, KeyboardInterrupt):
                # What the engine had been asked for in that moment it still makes.
                threading.Event().wait(deadline.pause(self._project.settings.event_settle_seconds))
                down(self._project, deadline, self._report)
        except GymComposeError as second:
            self._report(f"stopping failed too: {str(second).rstrip('.')}. Run `gym compose -p {self._project.name} down`.")
