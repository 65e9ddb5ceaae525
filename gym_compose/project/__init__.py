"""One project from selection to rollouts and back to nothing: the shell that joins the pieces, used by ``cli`` and ``testing``.

Names are loaded on first use: a project pulls in config, compiler and engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_compose.project.collect import attach, collect_here
    from gym_compose.project.directory import ProjectDirectory, find_project, projects_under
    from gym_compose.project.head import Head, find_head
    from gym_compose.project.project import Project
    from gym_compose.project.runs import RunOptions

_HOME = {
    "Head": "head",
    "Project": "project",
    "ProjectDirectory": "directory",
    "RunOptions": "runs",
    "attach": "collect",
    "collect_here": "collect",
    "find_head": "head",
    "find_project": "directory",
    "projects_under": "directory",
}

__all__ = [
    "Head",
    "Project",
    "ProjectDirectory",
    "RunOptions",
    "attach",
    "collect_here",
    "find_head",
    "find_project",
    "projects_under",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gym_compose.project' has no attribute {name!r}")
    return getattr(import_module(f"gym_compose.project.{_HOME[name]}"), name)
