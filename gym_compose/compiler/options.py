"""What ``compile`` is told besides the config: all that would otherwise have to be looked up in the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gym_compose.compiler.deployment import ContextFile
from gym_compose.config.model import NemoGymTree
from gym_compose.wire.names import DEFAULT_UID, EngineName

BASE_SOURCES = ("auto", "pull", "debootstrap")
"""Values of the ``base_image`` setting that are no image reference."""


@dataclass(frozen=True)
class HostFile:
    """A file or directory of this host that a config names. ``sha256`` is None for a directory."""

    path: str
    """Absolute."""
    sha256: str | None = None


@dataclass(frozen=True)
class CompileOptions:
    """The caller's choices and findings, as data."""

    project: str
    version: str
    """Version of gym_compose: stands in every slice, whose launcher refuses another one."""
    target: EngineName
    directory: str
    """Absolute path of ``.gym/<project>``."""
    assets: Mapping[str, str]
    """Text of every file under ``images/`` and ``compose/`` by its path (``images/native/Dockerfile``); see ``read_assets``."""
    package_files: tuple[ContextFile, ...]
    """gym_compose's own sources, ``path`` starting with ``gym_compose/``: inputs of the native and controller images."""
    python: str
    """Interpreter of the process target (``sys.executable``)."""
    session_key: str | None = None
    """Signs session cookies; used when every server of the deployment is native."""
    run_as: tuple[int, int] | None = None
    """(uid, gid) of the caller; None (or root) for the service account."""
    head_port: int = 0
    """The head server's port on 127.0.0.1 of this host. 0 (Docker only): the engine chooses."""
    base_image: str = "auto"
    """The ``base_image`` setting: auto, pull, debootstrap or an image reference."""
    files: Mapping[str, HostFile] = field(default_factory=dict)
    """What ``wanted_files`` asked for and was found: the config's own text to the file."""
    publish: tuple[str, ...] = ()
    """``--publish``: added to the extension key's ``publish``."""
    stop_grace_seconds: float = 10.0
    loopback_ports: frozenset[int] = frozenset()
    """Of the config's loopback URLs (``addresses.host_ports``), the ports where the host listens on loopback addresses alone."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """What earlier builds chose, by lock name (``locks``)."""
    upgrade: bool = False
    """Leave the locks alone: every set of requirements is resolved anew."""
    nemo_gym: NemoGymTree | None = None
    """The NeMo Gym in the search roots; None where there is none, or no server of the config runs on it."""

    @property
    def uid_gid(self) -> tuple[int, int]:
        """Who the services run as: the caller, unless that is root (design decision 7)."""
        if self.run_as is None or self.run_as[0] == 0:
            return DEFAULT_UID, DEFAULT_UID
        return self.run_as
