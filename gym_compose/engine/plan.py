"""Desired against observed (design decision 4): pure, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence

from gym_compose.compiler.deployment import Deployment, Service
from gym_compose.engine.interface import Observed, PlannedAction, ServiceState


def plan_actions(deployment: Deployment, observed: Observed) -> Sequence[PlannedAction]:
    """One action for each service that runs all the time, in start order; then what runs and is not wanted any more, by name.

    A driver is a run, not a service of the set: it is never planned. A service that ended is recreated, not started again: a restarted
    container keeps a stale health and its old log (field-notes B13).
    """
    wanted = [service for service in deployment.services if service.role != "driver"]
    names = {service.name for service in wanted}
    actions = [_action(service, observed.state(service.name)) for service in wanted]
    gone = sorted({state.service for state in observed.services if state.role != "driver" and state.service not in names})
    return (*actions, *(PlannedAction(name, "remove", "not in this configuration") for name in gone))


def changes(actions: Sequence[PlannedAction]) -> Sequence[PlannedAction]:
    """Those that are not ``keep``."""
    return tuple(action for action in actions if action.action != "keep")


def _action(service: Service, state: ServiceState | None) -> PlannedAction:
    if state is None or state.status == "missing":
        return PlannedAction(service.name, "create", "does not exist")
    if state.image is not None and state.image != service.image:
        return PlannedAction(service.name, "recreate", f"image {state.image} is now {service.image}")
    if state.slice_sha256 != service.slice_sha256:
        return PlannedAction(service.name, "recreate", "its configuration changed")
    if state.status == "exited":
        code = "" if state.exit_code is None else f" with exit code {state.exit_code}"
        return PlannedAction(service.name, "recreate", f"it ended{code}" + (" (out of memory)" if state.oom_killed else ""))
    if state.status == "created":
        return PlannedAction(service.name, "start", "created, never started")
    return PlannedAction(service.name, "keep", "unchanged")
