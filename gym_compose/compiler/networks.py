"""The three networks of design decision 8, and who sits on which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from gym_compose.compiler.deployment import Attachment, Network, Service
from gym_compose.compiler.extension import PUBLISH_ENVIRONMENT, Extension
from gym_compose.config.model import GymConfig, KeyPath, ServerInstance, ServerSource

SERVERS = "servers"
FRONT = "front"
EGRESS = "egress"


def has_egress(instance: ServerInstance, source: ServerSource | None, extension: Extension, host_urls: Iterable[KeyPath]) -> bool:
    """Whether a server gets a way out: as ``compose: servers`` says; else because its block names a URL on the host; else as its manifest
    says; else because it is a model server."""
    chosen = extension.server(instance.name).egress
    if chosen is not None:
        return chosen
    if any(path[0] == instance.name for path in host_urls):
        return True
    if source is not None and source.manifest.egress is not None:
        return source.manifest.egress
    return instance.server_type == "responses_api_models"


def published(config: GymConfig, extension: Extension, further: Iterable[str]) -> frozenset[str]:
    """Names of the instances with a port on the host."""
    chosen = {*extension.publish.servers, *further}
    names = {instance.name for instance in config.instances if instance.name in chosen}
    if PUBLISH_ENVIRONMENT in chosen:
        names.update(instance.name for instance in config.instances if instance.server_type == "environment_servers")
    return frozenset(names)


def exposure(services: Iterable[Service]) -> tuple[str, ...]:
    """A warning for each address, other than loopback, at which ports of ``services`` are published."""
    found: dict[str, list[str]] = {}
    for service in services:
        for port in service.ports:
            if not ip_address(port.host_address).is_loopback:
                found.setdefault(port.host_address, []).append(service.instance or service.name)
    return tuple(
        f"published on {address}: {', '.join(names)}. Whoever reaches this address can call them, no password is asked for"
        for address, names in found.items()
    )


def attach(alias: str | None, *, front: bool = False, egress: bool = False) -> tuple[Attachment, ...]:
    """Networks of one service. The alias exists on ``servers`` alone: a server that binds it then listens there and nowhere else."""
    found = [Attachment(SERVERS, (alias,) if alias else ())]
    if front:
        found.append(Attachment(FRONT))
    if egress:
        found.append(Attachment(EGRESS))
    return tuple(found)


def used_networks(attachments: Iterable[Attachment], options: Mapping[str, Mapping[str, Any]]) -> tuple[Network, ...]:
    """The networks somebody sits on, with the options of ``compose/networks.yaml``."""
    used = {attachment.network for attachment in attachments}
    return tuple(
        Network(
            name=name,
            internal=bool(options[name].get("internal", False)),
            driver_opts=tuple(sorted((str(key), str(value)) for key, value in options[name].get("driver_opts", {}).items())),
        )
        for name in (SERVERS, FRONT, EGRESS)
        if name in used
    )
