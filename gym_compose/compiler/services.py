"""The compose services (or processes) of a deployment: one per server instance, the head server, the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from posixpath import dirname

from gym_compose.compiler import document as doc
from gym_compose.compiler.addresses import ANY_ADDRESS, HOST_GATEWAY_NAME, LOOPBACK, Address
from gym_compose.compiler.deployment import Attachment, Mount, PublishedPort, Service
from gym_compose.compiler.extension import Extension
from gym_compose.compiler.fragments import Fragments, Limits
from gym_compose.compiler.networks import attach
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.own_image import has_own_command, own_environment
from gym_compose.compiler.peer_service import PeerService
from gym_compose.compiler.places import in_site_packages, python_path, server_directory
from gym_compose.compiler.ray import RayCluster
from gym_compose.config.model import ServerSource
from gym_compose.wire.names import (
    CONTAINER_HEAD,
    CONTAINER_HEAD_SECRET,
    CONTAINER_PUBLISHED,
    CONTAINER_PYTHON,
    CONTAINER_RUN,
    CONTAINER_SECRET,
    CONTAINER_SERVERS,
    CONTAINER_SLICE,
    DRIVER_SERVICE,
    EXTRA_ROOTS_VARIABLE,
    HEAD_ALIAS,
    HEAD_PORT_INSIDE,
    HEAD_PORT_PUBLISHED,
    HEAD_SERVICE,
    RAY_CLIENT_PORT,
    RAY_SERVICE,
    RELAY_SERVICE,
    Role,
)
from gym_compose.wire.slice import PublicSlice, SecretSlice

GATEWAY_HOSTS = ((HOST_GATEWAY_NAME, "host-gateway"),)
DRIVER_PROFILE = "driver"
_ROLES: Mapping[str, Role] = {HEAD_SERVICE: "head", DRIVER_SERVICE: "driver", RELAY_SERVICE: "relay", RAY_SERVICE: "ray"}


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
    """The service of one server instance. An image of the user's own, named or built from the server's Dockerfile, keeps its own command;
    all others run the launcher.

    ``peer`` is what a server of the nemo-gym runtime needs besides.
    """
    instance = public.instance
    chosen, defaults = extension.server(instance), extension.defaults
    limits = peer.limits if peer is not None else fragments.limits["server"]
    docker = options.target == "docker"
    listen = ANY_ADDRESS if published else address.host
    launcher = ("-m", "gym_compose.serving.launch", "--slice")
    own_command = docker and has_own_command(public.runtime, chosen)
    command: tuple[str, ...]
    if not docker:
        command = (options.python, *launcher, slice_path(service, "public", options), "--secret", slice_path(service, "secret", options))
    elif own_command:
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
        environment=tuple(sorted(own_environment(public, listen, address.port).items())) if own_command else (),
        own_command=own_command,
        mounts=mounts,
        ports=(PublishedPort(extension.publish.address, None, address.port),) if docker and published else (),
        extra_hosts=GATEWAY_HOSTS if docker and host_gateway and egress else (),
        memory=chosen.memory or defaults.memory or limits.memory,
        cpus=chosen.cpus or defaults.cpus or limits.cpus,
        pids_limit=chosen.pids_limit or defaults.pids_limit or limits.pids_limit,
        gpus=chosen.gpus,
        tmpfs=peer.tmpfs if peer is not None and not chosen.writable else (),
        writable=chosen.writable,
        closed=not egress,
        stop_grace_seconds=chosen.stop_grace_seconds
        or defaults.stop_grace_seconds
        or max(options.stop_grace_seconds, peer.stop_grace_seconds if peer is not None else 0.0),
        host=address.host,
        port=address.port,
        depends_on=peer.depends_on if peer is not None else (),
        references=tuple(references),
        pull=chosen.image is not None,
    )


def head_service(
    image: str,
    digest: str,
    options: CompileOptions,
    fragments: Fragments,
    *,
    egress: bool,
    host_gateway: bool,
    reveal: bool,
    publish_address: str,
) -> Service:
    """The controller. ``digest`` is over its document, so that a changed config recreates it; ``egress`` where it probes endpoints.

    Commands on this host ask it at 127.0.0.1, others at ``publish_address`` when that is another one.
    """
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
        ports=tuple(
            PublishedPort(host, options.head_port or None, HEAD_PORT_PUBLISHED) for host in dict.fromkeys((LOOPBACK, publish_address))
        )
        if docker
        else (),
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


def ray_service(
    cluster: RayCluster,
    sources: Iterable[ServerSource],
    image: str,
    options: CompileOptions,
    extension: Extension,
    fragments: Fragments,
) -> Service:
    """Ray's head for the servers of ``cluster``, whose directories are ``sources``: tasks import their modules."""
    fragment, chosen = fragments.nemo_gym, extension.ray_service
    used = list(sources)
    directories = dict.fromkeys(path for source in used for path in (server_directory(source, options), *python_path(source, options)))
    environment = {
        **({} if chosen.egress else fragments.closed_environment),
        **fragment.environment,
        **fragment.ray_environment,
        **fragment.ray_service_environment,
        "PYTHONPATH": ":".join(directories),
        **({} if all(in_site_packages(source) for source in used) else {EXTRA_ROOTS_VARIABLE: CONTAINER_SERVERS}),
    }
    tasks = fragment.ray_task_cpus if chosen.cpus is None else max(1, int(float(chosen.cpus)))
    return replace(
        _control(
            RAY_SERVICE,
            (*fragment.ray_command, f"--num-cpus={tasks}"),
            image,
            Limits(chosen.memory or fragment.ray_memory, "", chosen.pids_limit or fragment.ray_pids_limit),
            options,
            attachments=attach(cluster.alias, egress=chosen.egress),
            closed=not chosen.egress,
            host=cluster.alias,
            port=RAY_CLIENT_PORT,
        ),
        name=cluster.service,
        slice_sha256=doc.digest(doc.canonical(sorted(environment.items()))),
        cpus=chosen.cpus,
        environment=tuple(sorted(environment.items())),
        shm_size=fragment.ray_shm_size,
        gpus=chosen.gpus,
        stop_grace_seconds=chosen.stop_grace_seconds or max(options.stop_grace_seconds, fragment.least_stop_grace_seconds),
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
