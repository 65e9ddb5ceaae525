"""The compose services (or processes) of a deployment: one per server instance, the head server, the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from posixpath import dirname

from gym_compose.compiler import document as doc
from gym_compose.compiler.addresses import HOST_GATEWAY_NAME, LOOPBACK, Address
from gym_compose.compiler.deployment import Attachment, Mount, PublishedPort, Service
from gym_compose.compiler.extension import Extension
from gym_compose.compiler.fragments import Fragments, Limits
from gym_compose.compiler.networks import attach
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.peer_service import PeerService
from gym_compose.wire.names import (
    CONTAINER_HEAD,
    CONTAINER_HEAD_SECRET,
    CONTAINER_PUBLISHED,
    CONTAINER_PYTHON,
    CONTAINER_RUN,
    CONTAINER_SECRET,
    CONTAINER_SLICE,
    DRIVER_SERVICE,
    HEAD_ALIAS,
    HEAD_PORT_INSIDE,
    HEAD_PORT_PUBLISHED,
    HEAD_SERVICE,
    RELAY_SERVICE,
    Role,
)
from gym_compose.wire.slice import PublicSlice, SecretSlice

GATEWAY_HOSTS = ((HOST_GATEWAY_NAME, "host-gateway"),)
DRIVER_PROFILE = "driver"
_ROLES: Mapping[str, Role] = {HEAD_SERVICE: "head", DRIVER_SERVICE: "driver", RELAY_SERVICE: "relay"}


def slice_path(service: str, half: str, options: CompileOptions) -> str:
    """The host's path of one half (``public`` or ``secret``) of a service's slice."""
    return f"{options.directory}/slices/{service}/{half}.json"


def server_service(
    service: str,
    public: PublicSlice,
    secret: SecretSlice,
    digest: str,
    address: Address,
    image: str,
    *,
    options: CompileOptions,
    extension: Extension,
    fragments: Fragments,
    mounts: tuple[Mount, ...],
    egress: bool,
    published: bool,
    host_gateway: bool,
    references: Iterable[str],
    peer: PeerService | None = None,
) -> Service:
    """The service of one server instance. An ``image`` of the user's own keeps its own command; all others run the launcher.

    ``peer`` is what a server of the nemo-gym runtime needs besides.
    """
    instance = public.instance
    chosen, defaults = extension.server(instance), extension.defaults
    limits = peer.limits if peer is not None else fragments.limits["server"]
    docker = options.target == "docker"
    launcher = ("-m", "gym_compose.serving.launch", "--slice")
    command: tuple[str, ...]
    if not docker:
        command = (options.python, *launcher, slice_path(service, "public", options), "--secret", slice_path(service, "secret", options))
    elif chosen.image is not None:
        command = ()
    else:
        command = (CONTAINER_PYTHON, *launcher, CONTAINER_SLICE, "--secret", CONTAINER_SECRET)
    return Service(
        name=service,
        role="server",
        instance=instance,
        image=image,
        command=command,
        attachments=attach(address.host, front=published, egress=egress) if docker else (),
        user=user(options) if docker else None,
        slice=public,
        secret=secret,
        slice_sha256=digest,
        mounts=mounts,
        ports=(PublishedPort(LOOPBACK, None, address.port),) if docker and published else (),
        extra_hosts=GATEWAY_HOSTS if docker and host_gateway and egress else (),
        memory=chosen.memory or defaults.memory or limits.memory,
        cpus=chosen.cpus or defaults.cpus or limits.cpus,
        pids_limit=chosen.pids_limit or defaults.pids_limit or limits.pids_limit,
        gpus=chosen.gpus,
        shm_size=peer.shm_size if peer is not None else None,
        tmpfs=peer.tmpfs if peer is not None and not chosen.writable else (),
        writable=chosen.writable,
        closed=not egress,
        stop_grace_seconds=chosen.stop_grace_seconds
        or defaults.stop_grace_seconds
        or max(options.stop_grace_seconds, peer.stop_grace_seconds if peer is not None else 0.0),
        host=address.host,
        port=address.port,
        references=tuple(references),
        pull=chosen.image is not None,
    )


def head_service(
    image: str, digest: str, options: CompileOptions, fragments: Fragments, *, egress: bool, host_gateway: bool, reveal: bool
) -> Service:
    """The controller. ``digest`` is over its document, so that a changed config recreates it; ``egress`` where it probes endpoints."""
    docker = options.target == "docker"
    document = CONTAINER_HEAD if docker else f"{options.directory}/head/head.json"
    secret = CONTAINER_HEAD_SECRET if docker else f"{options.directory}/head/secret.json"
    return _control(
        HEAD_SERVICE,
        (CONTAINER_PYTHON if docker else options.python, "-m", "gym_compose.controller", "--document", document)
        + (("--secret", secret) if reveal else ()),
        image,
        fragments.limits["head"],
        options,
        attachments=attach(HEAD_ALIAS, front=True, egress=egress) if docker else (),
        digest=digest,
        mounts=(Mount(f"{options.directory}/head/published", dirname(CONTAINER_PUBLISHED)),) if docker else (),
        ports=(PublishedPort(LOOPBACK, options.head_port or None, HEAD_PORT_PUBLISHED),) if docker else (),
        extra_hosts=GATEWAY_HOSTS if docker and host_gateway and egress else (),
        closed=not egress,
        host=HEAD_ALIAS if docker else LOOPBACK,
        port=HEAD_PORT_INSIDE if docker else options.head_port,
    )


def driver_service(image: str, options: CompileOptions, fragments: Fragments) -> Service:
    """What ``docker compose run`` starts a rollout run from: under a profile, so that ``up`` leaves it out."""
    return _control(
        DRIVER_SERVICE,
        (CONTAINER_PYTHON, "-m", "gym_compose.driver", "--request", f"{CONTAINER_RUN}/request.json"),
        image,
        fragments.limits["driver"],
        options,
        attachments=attach(None),
        profiles=(DRIVER_PROFILE,),
    )


def relay_service(ports: Iterable[int], image: str, options: CompileOptions, fragments: Fragments) -> Service:
    """What carries connections to the bridge's address on to endpoints that listen on the host's loopback interface alone."""
    numbers = tuple(str(port) for port in sorted(ports))
    listen = ("--listen", HOST_GATEWAY_NAME, "--target", "localhost")
    return replace(
        _control(
            RELAY_SERVICE,
            (CONTAINER_PYTHON, "-m", "gym_compose.serving.host_relay", *listen, *numbers),
            image,
            fragments.limits["relay"],
            options,
            attachments=(),
            digest=doc.digest(doc.canonical(list(numbers))),
            extra_hosts=GATEWAY_HOSTS,
            closed=False,
        ),
        network_mode="host",
    )


def user(options: CompileOptions) -> str:
    """``uid:gid`` of every service."""
    uid, gid = options.uid_gid
    return f"{uid}:{gid}"


def _control(
    name: str,
    command: tuple[str, ...],
    image: str,
    limits: Limits,
    options: CompileOptions,
    *,
    attachments: tuple[Attachment, ...],
    digest: str | None = None,
    mounts: tuple[Mount, ...] = (),
    ports: tuple[PublishedPort, ...] = (),
    extra_hosts: tuple[tuple[str, str], ...] = (),
    closed: bool = True,
    profiles: tuple[str, ...] = (),
    host: str = "",
    port: int = 0,
) -> Service:
    return Service(
        name=name,
        role=_ROLES[name],
        instance=None,
        image=image,
        command=command,
        attachments=attachments,
        user=user(options) if options.target == "docker" else None,
        slice_sha256=digest,
        mounts=mounts,
        ports=ports,
        extra_hosts=extra_hosts,
        memory=limits.memory,
        cpus=limits.cpus,
        pids_limit=limits.pids_limit,
        closed=closed,
        stop_grace_seconds=options.stop_grace_seconds,
        profiles=profiles,
        host=host,
        port=port,
    )
