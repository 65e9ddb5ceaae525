"""The compiler: a merged config and the server trees behind it to a deployment, and a deployment to files.

``compile`` and ``render`` are pure. ``read_assets``, ``read_host_files`` (what the options want from disk) and ``write`` are not.
"""

from __future__ import annotations

from gym_compose.compiler.assets import read_assets, read_host_files
from gym_compose.compiler.compile import compile
from gym_compose.compiler.deployment import ContextFile, Deployment
from gym_compose.compiler.errors import CompileError
from gym_compose.compiler.hostfiles import wanted_files
from gym_compose.compiler.options import CompileOptions, HostFile
from gym_compose.compiler.plan import PlanRow, plan_rows
from gym_compose.compiler.render import OutputFile, context_directory, render
from gym_compose.compiler.write import write

__all__ = [
    "CompileError",
    "CompileOptions",
    "ContextFile",
    "Deployment",
    "HostFile",
    "OutputFile",
    "PlanRow",
    "compile",
    "context_directory",
    "plan_rows",
    "read_assets",
    "read_host_files",
    "render",
    "wanted_files",
    "write",
]
