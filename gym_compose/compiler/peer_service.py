"""What a service needs because its server was written for NeMo Gym: limits, writable directories, environment (contract-servers 7.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gym_compose.compiler.extension import memory_bytes
from gym_compose.compiler.fragments import Fragments, Limits
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.places import in_site_packages, server_directory
from gym_compose.config.model import ClassFlags, ServerSource
from gym_compose.wire.names import CONTAINER_SERVERS, EXTRA_ROOTS_VARIABLE


@dataclass(frozen=True)
class PeerService:
    """Additions to one service. ``environment`` is the slice's, below what the config itself sets."""

    limits: Limits
    tmpfs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    shm_size: str | None = None
    stop_grace_seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: ServerSource, flags: ClassFlags, ray: str, options: CompileOptions, fragments: Fragments) -> PeerService:
        """``ray`` is ``compose: {ray: …}``: what a class that leaves ``ray_enabled`` undeclared gets."""
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
        shm_size = None
        if uses_ray(flags, ray):
            limits, shm_size = fragment.ray_limits, fragment.ray_shm_size
            environment.update(fragment.ray_environment)
            why = "its class asks for Ray" if flags.ray_enabled else "compose: {ray: peer}"
            notes.append(f"{why}: it starts a Ray cluster in its container ({limits.memory})")
        elif flags.ray_enabled is None and flags.class_name is not None:
            notes.append("its class does not say whether it wants Ray: off (compose: {ray: peer} turns it on)")
        return cls(limits, tuple(tmpfs), environment, shm_size, fragment.least_stop_grace_seconds, tuple(notes))


def uses_ray(flags: ClassFlags, ray: str) -> bool:
    """Whether the server starts Ray: its class says True, or says nothing and today's NeMo Gym is asked for."""
    return flags.ray_enabled is True or (flags.ray_enabled is None and ray == "peer")
