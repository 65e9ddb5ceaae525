"""Where a server's files are at run time, and what Python searches besides."""

from __future__ import annotations

from gym_compose.compiler.options import CompileOptions
from gym_compose.config.model import NemoGymTree, ServerSource
from gym_compose.wire.names import CONTAINER_SERVERS

CONTAINER_VENV = "/opt/gym"


def site_packages(tree: NemoGymTree) -> str:
    """Where the runtime's image has the packages of NeMo Gym, and with them the wheel's server directories."""
    minor = ".".join(tree.python.split(".")[:2])
    return f"{CONTAINER_VENV}/lib/python{minor}/site-packages"


def server_directory(source: ServerSource, options: CompileOptions) -> str:
    """A server's directory where it runs: its own on this host, site-packages for a server of the wheel, else below ``/srv/gym``."""
    if options.target == "process":
        return source.directory
    within = f"{source.server_type}/{source.implementation}"
    if in_site_packages(source) and options.nemo_gym is not None:
        return f"{site_packages(options.nemo_gym)}/{within}"
    return f"{CONTAINER_SERVERS}/{within}"


def in_site_packages(source: ServerSource) -> bool:
    """Whether the server is one that an installed NeMo Gym brought."""
    return source.runtime == "nemo-gym" and source.origin == "wheel"


def python_path(source: ServerSource, options: CompileOptions) -> tuple[str, ...]:
    """The tree that holds the server's directory: workers import ``<type>.<implementation>.<module>``, servers import siblings."""
    if options.target == "process":
        return (source.directory.removesuffix(f"/{source.server_type}/{source.implementation}"),)
    return () if in_site_packages(source) else (CONTAINER_SERVERS,)
