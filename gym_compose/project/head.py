"""Whose head server is asked: that of a deployment of ours, or anybody's who speaks the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gym_compose.project.directory import ProjectDirectory, projects_under
from gym_compose.project.errors import NoHeadError, ProjectNotFoundError
from gym_compose.project.http import HeadClient
from gym_compose.wire.head import DeploymentIdentity
from gym_compose.wire.names import HEAD_PORT_INSIDE
from gym_compose.wire.settings import Settings


@dataclass(frozen=True)
class Head:
    """A head server that answered. ``identity`` is None for a peer's own; ``directory`` is that of our project, when it is under cwd."""

    url: str
    identity: DeploymentIdentity | None
    directory: ProjectDirectory | None = None


def head_url(host: str, port: int) -> str:
    """Where a client asks a head server that binds ``host``: a wildcard address is no address to ask."""
    reachable = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def find_head(
    host: str = "127.0.0.1",
    port: int = HEAD_PORT_INSIDE,
    *,
    explicit: bool,
    cwd: Path,
    settings: Settings,
    name: str | None = None,
    connect: Callable[[str, Settings], HeadClient] = HeadClient,
) -> Head:
    """The head server to collect from.

    ``explicit``: the user said host or port, so only that address counts. Else a project under ``cwd`` that runs on another port
    (11000 was taken when it started) is found through its ``state.json``; ``name`` picks one. Several that answer are an error
    (ProjectNotFoundError); none is one too (NoHeadError).
    """
    if not explicit:
        running = [head for head in (_of_project(project, settings, connect) for project in projects_under(cwd)) if head is not None]
        if name is not None:
            running = [head for head in running if head.directory is not None and head.directory.project == name]
            if not running:
                raise ProjectNotFoundError(
                    f"project {name!r} does not run here",
                    cwd,
                    tuple(project.project for project in projects_under(cwd) if project.project != name),
                )
        if len(running) == 1:
            return running[0]
        default = [head for head in running if head.url == head_url(host, port)]
        if len(default) == 1:
            return default[0]
        if running:
            names = tuple(head.directory.project for head in running if head.directory is not None)
            raise ProjectNotFoundError("several projects run here", cwd, names)
    url = head_url(host, port)
    with connect(url, settings) as client:
        identity = client.identity()
        if identity is None and not client.answers():
            raise NoHeadError(url, client.last_error or "no answer")
    directory = None
    if identity is not None and ProjectDirectory.under(cwd, identity.project).exists:
        directory = ProjectDirectory.under(cwd, identity.project)
    return Head(url, identity, directory)


def _of_project(directory: ProjectDirectory, settings: Settings, connect: Callable[[str, Settings], HeadClient]) -> Head | None:
    state = directory.read_state()
    if state is None or state.head_port is None:
        return None
    url = head_url("127.0.0.1", state.head_port)
    with connect(url, settings) as client:
        identity = client.identity()
    if identity is None or identity.project != directory.project:
        return None
    return Head(url, identity, directory)
