"""A deployment as the files of its project directory: compose.yaml, build.yaml, slices, contexts, plan.json. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel

from gym_compose.compiler.deployment import Deployment, Image, Mount, Service
from gym_compose.compiler.fragments import Fragments, parse_fragments
from gym_compose.compiler.locks import RESOLVE_VARIABLE, lock_digest
from gym_compose.compiler.own_image import whole_config
from gym_compose.compiler.plan import plan_document
from gym_compose.compiler.yaml_text import dump_compose
from gym_compose.wire.names import (
    CONTAINER_CONFIG,
    CONTAINER_HEAD,
    CONTAINER_HEAD_SECRET,
    CONTAINER_SECRET,
    CONTAINER_SLICE,
    HEAD_SERVICE,
    LABEL_DIRECTORY,
    LABEL_IMAGE_KEY,
    LABEL_INSTANCE,
    LABEL_LOCK,
    LABEL_PROJECT,
    LABEL_ROLE,
    LABEL_SLICE,
    LABEL_VERSION,
    Role,
)

COMPOSE_FILE = "compose.yaml"
BUILD_FILE = "build.yaml"
PLAN_FILE = "plan.json"
PUBLISHED_DIRECTORY = "head/published"
INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
"""Build arguments without a value in build.yaml: compose takes them from the environment that it is called in."""
PYTHON_IMAGE_VARIABLE = "PYTHON_IMAGE"
"""Likewise, of the base image: the engine's builder says what it could pull."""
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

_HEALTH: Mapping[Role, Callable[[Fragments], Mapping[str, Any]]] = {
    "head": lambda fragments: fragments.health,
    "ray": lambda fragments: fragments.nemo_gym.ray_health,
}
"""The health checks of services that others, or people, wait for."""

_COMPOSE_HEADING = """Written by gym compose; edits are lost with the next `up`. It stands alone once the images are built:
docker compose -f THIS FILE up, logs, ps, exec. What each image is made of stands in plan.json."""
_BUILD_HEADING = "Written by gym compose for `gym compose build`: one service for each image."


@dataclass(frozen=True)
class OutputFile:
    """A file below the project directory: ``content``, or a copy of ``host_path``, whose digest then must be ``sha256``.

    ``owner`` (uid, gid) is applied when the writer is root.
    """

    path: str
    content: bytes | None = None
    host_path: str | None = None
    sha256: str | None = None
    mode: int = 0o644
    owner: tuple[int, int] | None = None


def render(deployment: Deployment, assets: Mapping[str, str], directory: str, *, ca_bundle: str | None = None) -> tuple[OutputFile, ...]:
    """All files, sorted by path. ``directory`` is the absolute path of the project directory (it stands in a label); ``ca_bundle`` that of
    the host's CA bundle, which builds get as a secret.

    In the process target there are no compose files and no build contexts but those of the requirement sets.
    """
    fragments = parse_fragments(assets)
    files = [OutputFile(PLAN_FILE, _json(plan_document(deployment)))]
    docker = deployment.target == "docker"
    if docker:
        files.append(OutputFile(COMPOSE_FILE, compose_text(deployment, fragments, directory).encode("ascii")))
        files.append(OutputFile(BUILD_FILE, build_text(deployment, ca_bundle).encode("ascii")))
    for service in deployment.services:
        if service.slice is not None and service.secret is not None:
            files.append(OutputFile(f"slices/{service.name}/public.json", _json(service.slice)))
            files.append(_secret_file(f"slices/{service.name}/secret.json", service.secret, service))
            if service.own_command:
                files.append(_secret_file(f"slices/{service.name}/config.json", whole_config(service.slice, service.secret), service))
    files.append(OutputFile("head/head.json", _json(deployment.head)))
    if deployment.head_secret.values:
        files.append(_secret_file("head/secret.json", deployment.head_secret, deployment.service(HEAD_SERVICE)))
    for image in deployment.images:
        files.extend(_context(image))
    return tuple(sorted(files, key=lambda file: file.path))


def context_directory(image: Image) -> str:
    """The build context of ``image`` relative to the project directory: ``images/<slug>-<key12>``."""
    return "images/" + image.name.rsplit("/", 1)[-1].replace(":", "-")


def compose_text(deployment: Deployment, fragments: Fragments, directory: str) -> str:
    """``compose.yaml``."""
    configs: dict[str, Any] = {}
    secrets: dict[str, Any] = {}
    services: dict[str, Any] = {}
    for service in deployment.services:
        own_configs, own_secrets = _files_of(service, deployment)
        configs.update({name: {"file": path} for name, path, _ in own_configs})
        secrets.update({name: {"file": path} for name, path, _ in own_secrets})
        services[service.name] = {
            **_service(service, deployment, fragments, directory),
            **({"configs": [{"source": name, "target": target} for name, _, target in own_configs]} if own_configs else {}),
            **({"secrets": [{"source": name, "target": target} for name, _, target in own_secrets]} if own_secrets else {}),
        }
    networks = {
        network.name: {
            **({"internal": True} if network.internal else {}),
            **({"driver_opts": dict(network.driver_opts)} if network.driver_opts else {}),
            "labels": {LABEL_PROJECT: deployment.project},
        }
        for network in deployment.networks
    }
    document: dict[str, Any] = {
        "name": deployment.project,
        "services": services,
        "networks": networks,
        "configs": configs,
        "secrets": secrets,
    }
    return dump_compose({key: value for key, value in document.items() if value}, heading=_COMPOSE_HEADING)


def build_text(deployment: Deployment, ca_bundle: str | None) -> str:
    """``build.yaml``: a service for each image that has a Dockerfile, named ``<slug>-<key12>``. The base is made by the engine's own means
    where no registry answers, so its service is only used where one does."""
    services: dict[str, Any] = {}
    for image in deployment.images:
        if not image.is_built:
            continue
        arguments: dict[str, Any] = dict(image.build_args)
        if image.kind == "base":
            arguments[PYTHON_IMAGE_VARIABLE] = None
        elif image.uses_ca_secret:
            arguments.update(dict.fromkeys((*INDEX_VARIABLES, *PROXY_VARIABLES)))
        if image.lock_name:
            arguments[RESOLVE_VARIABLE] = None
        directory = context_directory(image)
        services[directory.removeprefix("images/")] = {
            "image": image.name,
            "build": {
                "context": "./" + directory,
                "args": arguments,
                "labels": {
                    LABEL_IMAGE_KEY: image.key,
                    LABEL_VERSION: deployment.version,
                    **({LABEL_LOCK: lock_digest(image.lock)} if image.lock is not None else {}),
                },
                **({"secrets": ["ca"]} if image.uses_ca_secret and ca_bundle else {}),
            },
        }
    document: dict[str, Any] = {"name": f"{deployment.project}-build", "services": services}
    if ca_bundle:
        document["secrets"] = {"ca": {"file": ca_bundle}}
    return dump_compose(document, heading=_BUILD_HEADING)


def _service(service: Service, deployment: Deployment, fragments: Fragments, directory: str) -> dict[str, Any]:
    left_out = {*(("read_only",) if service.writable else ()), *(("stop_signal",) if service.own_command else ())}
    hardening = {key: value for key, value in fragments.hardening.items() if key not in left_out}
    found: dict[str, Any] = {
        **hardening,
        "image": service.image,
        "pull_policy": "missing" if service.pull else "never",
        "user": service.user,
        "labels": _labels(service, deployment, directory),
        "logging": dict(fragments.logging),
        **_network(service),
        "stop_grace_period": f"{service.stop_grace_seconds:g}s",
        "tmpfs": [*fragments.hardening.get("tmpfs", ()), *service.tmpfs],
    }
    if service.command:
        found["command"] = list(service.command)
    if service.environment:
        found["environment"] = dict(service.environment)
    if service.memory:
        found["mem_limit"] = found["memswap_limit"] = service.memory
    if service.cpus:
        found["cpus"] = service.cpus
    if service.pids_limit:
        found["pids_limit"] = service.pids_limit
    if service.shm_size:
        found["shm_size"] = service.shm_size
    if service.mounts:
        found["volumes"] = [_bind(mount) for mount in service.mounts]
    if service.ports:
        found["ports"] = [
            {
                "host_ip": port.host_address,
                "target": port.container_port,
                "protocol": "tcp",
                **({"published": str(port.host_port)} if port.host_port else {}),
            }
            for port in service.ports
        ]
    if service.extra_hosts:
        found["extra_hosts"] = [f"{name}:{address}" for name, address in service.extra_hosts]
    if service.closed and service.network_mode is None:
        found["dns_opt"] = list(fragments.closed_dns)
    if service.profiles:
        found["profiles"] = list(service.profiles)
    health = _HEALTH.get(service.role)
    if health is not None:
        found["healthcheck"] = dict(health(fragments))
    if service.depends_on:
        found["depends_on"] = {name: {"condition": "service_healthy"} for name in service.depends_on}
    if service.gpus:
        devices = [{"driver": "nvidia", "count": service.gpus, "capabilities": ["gpu"]}]
        found["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    return found


def _network(service: Service) -> dict[str, Any]:
    if service.network_mode is not None:
        return {"network_mode": service.network_mode}
    return {
        "networks": {
            attachment.network: {"aliases": list(attachment.aliases)} if attachment.aliases else None for attachment in service.attachments
        }
    }


def _labels(service: Service, deployment: Deployment, directory: str) -> dict[str, str]:
    labels = {
        LABEL_PROJECT: deployment.project,
        LABEL_ROLE: service.role,
        LABEL_VERSION: deployment.version,
        LABEL_DIRECTORY: directory,
    }
    if service.instance is not None:
        labels[LABEL_INSTANCE] = service.instance
    if service.slice_sha256 is not None:
        labels[LABEL_SLICE] = service.slice_sha256
    return labels


def _files_of(service: Service, deployment: Deployment) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """(name, path, target) of the service's configs and of its secrets."""
    if service.slice is not None:
        configs = [(f"slice-{service.name}", f"./slices/{service.name}/public.json", CONTAINER_SLICE)]
        secrets = [(f"slice-{service.name}", f"./slices/{service.name}/secret.json", CONTAINER_SECRET)]
        if service.own_command:
            secrets.append((f"config-{service.name}", f"./slices/{service.name}/config.json", CONTAINER_CONFIG))
        return configs, secrets
    if service.role == "head":
        secrets = [("head", "./head/secret.json", CONTAINER_HEAD_SECRET)] if deployment.head_secret.values else []
        return [("head", "./head/head.json", CONTAINER_HEAD)], secrets
    return [], []


def _bind(mount: Mount) -> dict[str, Any]:
    # Without create_host_path: false a missing source becomes a directory of root's (field-notes B25).
    return {
        "type": "bind",
        "source": mount.source,
        "target": mount.target,
        "read_only": mount.read_only,
        "bind": {"create_host_path": False},
    }


def _context(image: Image) -> list[OutputFile]:
    directory = context_directory(image)
    files = [
        OutputFile(
            f"{directory}/{file.path}",
            content=file.content,
            host_path=file.host_path if file.content is None else None,
            sha256=file.sha256,
            mode=0o755 if file.executable else 0o644,
        )
        for file in image.context
    ]
    if image.dockerfile is not None:
        files.append(OutputFile(f"{directory}/Dockerfile", image.dockerfile.encode("utf-8")))
    return files


def _secret_file(path: str, secret: BaseModel | Mapping[str, Any], service: Service) -> OutputFile:
    owner = None
    if service.user is not None:
        uid, gid = service.user.split(":")
        owner = (int(uid), int(gid))
    return OutputFile(path, _json(secret), mode=0o400, owner=owner)


def _json(value: BaseModel | Mapping[str, Any]) -> bytes:
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n"
