"""Who uses Ray, and the services that give it to them (contract-config 4.5).

A class that says ``ray_enabled = True`` connects at its start to ``ray_head_node_address``, or makes a cluster of its own in its container:
about 20 processes and 1.6 GB for each such server. Here it gets a service, Ray's own head, reached as ``ray://`` (Ray Client); by the
address of the head's GCS a container of its own is aborted natively.

Tasks run in that service, and import what they need there. So it runs the image of the servers that use it, with their directories on
PYTHONPATH. Servers of one image share one; a server with another image gets another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gym_compose.compiler.addresses import is_loopback
from gym_compose.compiler.errors import CompileError, NameClashError
from gym_compose.compiler.slug import InstanceNames
from gym_compose.config.model import ClassFlags
from gym_compose.wire.names import ALIAS_SUFFIX, RAY_CLIENT_PORT, RAY_SERVICE

ADDRESS_KEY = "ray_head_node_address"


@dataclass(frozen=True)
class RayCluster:
    """One Ray service and who uses it."""

    service: str
    image: str
    instances: tuple[str, ...]

    @property
    def alias(self) -> str:
        return self.service + ALIAS_SUFFIX

    @property
    def address(self) -> str:
        return f"ray://{self.alias}:{RAY_CLIENT_PORT}"


@dataclass(frozen=True)
class RayPlan:
    """``users`` maps an instance that uses Ray to why; ``given`` is the config's own address, which needs no service of ours."""

    users: Mapping[str, str] = field(default_factory=dict)
    undeclared: frozenset[str] = frozenset()
    """Instances whose class does not say whether it wants Ray, and which get none."""
    given: str | None = None
    clusters: tuple[RayCluster, ...] = ()

    def cluster(self, instance: str) -> RayCluster | None:
        return next((cluster for cluster in self.clusters if instance in cluster.instances), None)

    def address(self, instance: str) -> str | None:
        """``ray_head_node_address`` for an instance; None for one that does not use Ray."""
        if instance not in self.users:
            return None
        cluster = self.cluster(instance)
        return cluster.address if cluster is not None else self.given

    def note(self, instance: str) -> str | None:
        """What the plan says of an instance."""
        if instance in self.undeclared:
            return "its class does not say whether it wants Ray: off (compose: {ray: peer} turns it on)"
        if instance not in self.users:
            return None
        cluster = self.cluster(instance)
        if cluster is not None:
            return f"{self.users[instance]}: the service {cluster.service} is its Ray ({cluster.address}) and is started before it"
        reach = "" if str(self.given).startswith("ray://") else "; another container reaches Ray over a ray:// address only"
        host = str(self.given).rpartition("://")[2].rpartition(":")[0]
        if is_loopback(host):
            reach += "; a loopback address there is the container itself, not this host"
        return f"{self.users[instance]}: it uses the config's {ADDRESS_KEY}{reach}"


def plan_ray(
    flags: Mapping[str, ClassFlags], mode: str, given: object, images: Mapping[str, str], names: Mapping[str, InstanceNames]
) -> RayPlan:
    """``flags`` are those of the instances that run on NeMo Gym, in the config's order; ``mode`` is ``compose: {ray: …}``; ``given`` the
    config's ``ray_head_node_address``; ``images`` and ``names`` those of the instances.

    Raises NameClashError when an instance already bears the name of a service that is needed; CompileError for an address that is none.
    """
    users: dict[str, str] = {}
    undeclared = set()
    for instance, found in flags.items():
        if found.ray_enabled:
            users[instance] = "its class asks for Ray"
        elif found.ray_enabled is None and mode == "peer":
            users[instance] = "compose: {ray: peer}"
        elif found.ray_enabled is None and found.class_name is not None:
            undeclared.add(instance)
    if given and not isinstance(given, str):
        raise CompileError(f"{given!r} is no address", where=ADDRESS_KEY, hint="Write ray://HOST:10001, or unset it to get a Ray service.")
    if given:
        return RayPlan(users, frozenset(undeclared), str(given))
    groups: dict[str, list[str]] = {}
    for instance in users:
        groups.setdefault(images[instance], []).append(instance)
    clusters = tuple(
        RayCluster(RAY_SERVICE if number == 1 else f"{RAY_SERVICE}-{number}", image, tuple(instances))
        for number, (image, instances) in enumerate(groups.items(), start=1)
    )
    _refuse_clashes(clusters, names)
    return RayPlan(users, frozenset(undeclared), None, clusters)


def _refuse_clashes(clusters: Iterable[RayCluster], names: Mapping[str, InstanceNames]) -> None:
    wanted = {name: kind for cluster in clusters for name, kind in ((cluster.service, "service"), (cluster.alias, "alias"))}
    for instance, taken in names.items():
        for name in (taken.service, taken.alias):
            if name in wanted:
                raise NameClashError("the Ray service", instance, name, wanted[name])
