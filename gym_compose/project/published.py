"""Which addresses of a deployment work from the host: read back from the engine after start, handed to the controller in a file."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from gym_compose.compiler.deployment import Deployment
from gym_compose.project.directory import ProjectDirectory, write_file
from gym_compose.wire.names import HEAD_SERVICE


def instance_addresses(deployment: Deployment, published: Mapping[str, str]) -> dict[str, str]:
    """``{instance: "host:port"}`` out of the engine's ``{service: "host:port"}``; the head is none of the instances."""
    names = {service.name: service.instance for service in deployment.services if service.instance is not None}
    return {names[service]: address for service, address in sorted(published.items()) if service in names and service != HEAD_SERVICE}


def write_published(directory: ProjectDirectory, addresses: Mapping[str, str]) -> None:
    """Replace ``head/published/addresses.json`` atomically; the directory is what is mounted, so the head sees the new file at once."""
    write_file(directory.published_file, orjson.dumps(dict(addresses), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def port_of(address: str) -> int:
    """The port of ``host:port``."""
    return int(address.rpartition(":")[2])
