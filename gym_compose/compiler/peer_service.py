"""What a service needs because its server was written for NeMo Gym: limits, writable directories, environment (contract-servers 7.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gym_compose.compiler.extension import memory_bytes
from gym_compose.compiler.fragments import Fragments, Limits
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.places import in_site_packages, server_directory
from gym_compose.compiler.ray import RayPlan
from gym_compose.config.model import ServerSource
from gym_compose.wire.names import CONTAINER_SERVERS, EXTRA_ROOTS_VARIABLE


@dataclass(frozen=True)
class PeerService:
    """Additions to one service. ``environment`` is the slice's, below what the config itself sets."""

    limits: Limits
    tmpfs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    """Services that must be healthy before this one starts."""
    stop_grace_seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, instance: str, source: ServerSource, ray: RayPlan, options: CompileOptions, fragments: Fragments) -> PeerService:
        """The additions for ``instance``, whose server is ``source``."""
        fragment = fragments.nemo_gym
        directory = server_directory(source, options)
        environment = dict(fragment.environment)
        tmpfs: list[str] = []
        notes: list[str] = []
        for name in fragment.writable_directories:
            if any(file.path.startswith(name + "/") for file in source.files):
                notes.append(f"{name}/ holds files of the server, so it stays read-only (writable: true opens the whole file system)")
            else:
                tmpfs.append(f"{directory}/{name}:mode=1777")
        if not in_site_packages(source):
            environment[EXTRA_ROOTS_VARIABLE] = CONTAINER_SERVERS
        limits = fragments.limits["server"]
        if memory_bytes(limits.memory) < memory_bytes(fragment.least_memory):
            limits = replace(limits, memory=fragment.least_memory)
        cluster = ray.cluster(instance)
        if cluster is not None:
            environment.update(fragment.ray_environment)
        note = ray.note(instance)
        if note is not None:
            notes.append(note)
        depends_on = (cluster.service,) if cluster is not None else ()
        return cls(limits, tuple(tmpfs), environment, depends_on, fragment.least_stop_grace_seconds, tuple(notes))
