"""``compile``: a merged config and the server trees behind it become a ``Deployment``. Pure: the same input gives the same value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from posixpath import isabs
from typing import Any

from gym_compose.compiler import document as doc
from gym_compose.compiler.addresses import (
    ANY_ADDRESS,
    Address,
    Addressed,
    address_config,
    assign_addresses,
    host_ports,
    is_loopback,
    probe_url,
)
from gym_compose.compiler.deployment import Deployment, Service
from gym_compose.compiler.errors import CompileError, ExtensionError, SourceError, dotted
from gym_compose.compiler.extension import Extension, parse_extension
from gym_compose.compiler.fragments import Fragments, parse_fragments
from gym_compose.compiler.head import head_document, head_secret
from gym_compose.compiler.hostfiles import Sources, dataset_inputs, mount_files
from gym_compose.compiler.images import ImageSet, ServerBuild, plan_images
from gym_compose.compiler.networks import exposure, has_egress, published, used_networks
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.own_image import own_notes
from gym_compose.compiler.peer_images import LOWEST_PYTHON
from gym_compose.compiler.peer_service import PeerService
from gym_compose.compiler.places import python_path, server_directory
from gym_compose.compiler.ray import ADDRESS_KEY, RayPlan, plan_ray
from gym_compose.compiler.services import driver_service, head_service, ray_service, relay_service, server_service
from gym_compose.compiler.slices import own_paths, slice_config, slice_digest
from gym_compose.compiler.slug import InstanceNames, assign_names
from gym_compose.compiler.trees import tree_note, tree_warnings
from gym_compose.compiler.workers import PATIENCE_KEY, check_workers, one_process_serves, worker_count
from gym_compose.config.model import ClassFlags, GymConfig, KeyPath, NemoGymTree, ServerInstance, ServerSource
from gym_compose.wire.names import EXTENSION_KEY, SERVER_TYPES
from gym_compose.wire.slice import PublicSlice, SecretSlice


@dataclass(frozen=True)
class _Plan:
    """What every service is made from."""

    config: GymConfig
    sources: Sources
    options: CompileOptions
    extension: Extension
    fragments: Fragments
    names: Mapping[str, InstanceNames]
    addresses: Mapping[str, Address]
    addressed: Addressed
    secrets: frozenset[KeyPath]
    images: ImageSet
    published: frozenset[str]
    all_native: bool
    ray: RayPlan

    def source(self, instance: ServerInstance) -> ServerSource | None:
        return self.sources.get((instance.server_type, instance.implementation))


def compile(config: GymConfig, sources: Sources, options: CompileOptions) -> Deployment:
    """Make the deployment of ``config`` for ``options.target``.

    ``sources`` maps (server type, implementation) to the snapshot of its directory. Raises CompileError, naming instance and key: names
    that clash, an implementation without directory or of another runtime, more workers than the server's entry point can start, an unknown
    ``compose`` key, a file that is missing.
    """
    extension = parse_extension(config.extension, [instance.name for instance in config.instances])
    options = replace(options, nemo_gym=_nemo_gym(extension, options.nemo_gym))
    fragments = parse_fragments(options.assets)
    names = assign_names(instance.name for instance in config.instances)
    for instance in config.instances:
        _check(instance, config, sources, extension, options)
    addresses = assign_addresses(config, names, options.target)
    relayed = _relayed(config, extension, options)
    addressed = address_config(config, addresses, options.target, options.head_port, relayed)
    datasets = dataset_inputs(config, options)
    docker = options.target == "docker"
    own = [instance for instance in config.instances if not docker or extension.server(instance.name).image is None]
    external = [image for instance in config.instances if docker and (image := extension.server(instance.name).image)]
    images = plan_images(
        [
            ServerBuild(instance.name, sources[instance.server_type, instance.implementation], extension.server(instance.name))
            for instance in own
        ],
        external,
        options,
        frozenset(file.path for file in options.files.values()),
    )
    plan = _Plan(
        config=config,
        sources=sources,
        options=options,
        extension=extension,
        fragments=fragments,
        names=names,
        addresses=addresses,
        addressed=addressed,
        secrets=doc.normalize_paths(config.resolved, config.secret_paths),
        images=images,
        published=published(config, extension, options.publish) if docker else frozenset(),
        all_native=len(own) == len(config.instances) and all(source.runtime == "native" for source in _used(config, sources)),
        ray=_ray(config, sources, extension, images, names) if docker else RayPlan(),
    )
    servers: list[Service] = []
    secret_names: list[tuple[str, tuple[str, ...]]] = []
    for instance in config.instances:
        service, visible = _server(plan, instance)
        servers.append(service)
        secret_names.append((instance.name, visible))
    document = addressed.document
    if plan.ray.clusters:
        # The peer's start command writes the address that its servers connect to into the config that the head gives out.
        document = {**document, ADDRESS_KEY: plan.ray.clusters[0].address}
    directories = {service.instance: service.slice.server_dir for service in servers if service.instance and service.slice}
    head_config = head_document(config, document, plan.secrets, addresses, directories, options)
    secret = head_secret(addressed.document, plan.secrets, reveal=extension.head_secrets)
    probes = bool(head_config.endpoints) and head_config.model_endpoint_readiness_timeout_seconds > 0
    head = head_service(
        images.controller,
        doc.digest(doc.canonical([head_config.model_dump(mode="json"), secret.model_dump(mode="json")])),
        options,
        fragments,
        egress=probes,
        host_gateway=bool(addressed.host_urls),
        reveal=extension.head_secrets,
        publish_address=extension.publish.address,
    )
    relay = (relay_service(relayed, images.native, options, fragments),) if relayed else ()
    rays = [
        ray_service(
            cluster,
            [found for name in cluster.instances if (found := plan.source(config.instance(name))) is not None],
            cluster.image,
            options,
            extension,
            fragments,
        )
        for cluster in plan.ray.clusters
    ]
    services = (head, *relay, *rays, *servers, *((driver_service(images.controller, options, fragments),) if docker else ()))
    return Deployment(
        project=options.project,
        version=options.version,
        target=options.target,
        services=services,
        images=images.images,
        networks=used_networks((attachment for service in services for attachment in service.attachments), fragments.networks),
        head=head_config,
        head_secret=secret,
        head_port=options.head_port,
        secrets=tuple(secret_names),
        datasets=datasets,
        warnings=(*config.warnings, *exposure(services), *tree_warnings(_used(config, sources))),
        notes=(*addressed.notes, *images.notes, *_notes(plan, servers)),
    )


def _nemo_gym(extension: Extension, tree: NemoGymTree | None) -> NemoGymTree | None:
    """The NeMo Gym to run on: the one in the search roots, unless ``compose: {nemo_gym: {version: …}}`` names another release."""
    version = extension.nemo_gym.version
    if version is None or (tree is not None and tree.version == version):
        return tree
    if tree is not None and tree.form == "checkout":
        raise ExtensionError(
            ("nemo_gym", "version"),
            f"it is {version}, and {tree.directory} is a checkout of NeMo Gym {tree.version}",
            hint="Take one of both.",
        )
    return NemoGymTree("", "wheel", version, LOWEST_PYTHON)


def _relayed(config: GymConfig, extension: Extension, options: CompileOptions) -> frozenset[int]:
    """Ports of this host that servers reach over the relay."""
    if options.target != "docker":
        return frozenset()
    ports = {port: path for port, path in host_ports(config).items() if port in options.loopback_ports}
    if ports and not extension.host_relay:
        port, path = next(iter(ports.items()))
        raise CompileError(
            f"port {port} of this host is listened on at loopback alone, which no container reaches, and host_relay is false",
            where=dotted(path),
            hint="Let the endpoint listen on 0.0.0.0, or allow the relay.",
        )
    return frozenset(ports)


def _flags(instance: ServerInstance, source: ServerSource) -> ClassFlags:
    return dict(source.entrypoint_flags).get(instance.entrypoint, source.flags)


def _used(config: GymConfig, sources: Sources) -> list[ServerSource]:
    keys = dict.fromkeys((instance.server_type, instance.implementation) for instance in config.instances)
    return [sources[key] for key in keys if key in sources]


def _check(instance: ServerInstance, config: GymConfig, sources: Sources, extension: Extension, options: CompileOptions) -> None:
    """Raise for an instance that cannot become a service."""
    value = config.resolved.get(instance.name)
    kinds = [kind for kind in SERVER_TYPES if isinstance(value, Mapping) and kind in value]
    if len(kinds) > 1:
        raise SourceError(instance.name, f"it has two server types: {', '.join(kinds)}", "Make one instance of each.")
    chosen = extension.server(instance.name)
    if options.target == "docker" and chosen.image is not None:
        for key, given in (("apt", chosen.apt), ("run", chosen.run)):
            if given:
                raise SourceError(
                    instance.name,
                    f"compose.servers.{instance.name}.{key} is for images of ours, and {chosen.image} is taken as it is",
                    "Make the step part of that image, or take one of both.",
                )
        return
    within = f"{instance.server_type}/{instance.implementation}"
    source = sources.get((instance.server_type, instance.implementation))
    if source is None:
        raise SourceError(
            instance.name,
            f"there is no directory {within} in any search root",
            f"Make it, name a tree that has it with --search-dir, or name an image with compose: servers: {instance.name}: {{image: …}}.",
        )
    if source.runtime == "dockerfile" and options.target == "process":
        raise SourceError(
            instance.name, f"{within} has a Dockerfile of its own, which the process engine does not build", "Use --engine docker."
        )
    if source.runtime == "nemo-gym" and options.target == "process":
        raise SourceError(
            instance.name,
            f"{within} runs on NeMo Gym, which the process engine does not start",
            f"Use --engine docker, or port {source.directory} (its requirements.txt then names gym-compose).",
        )
    if isabs(instance.entrypoint):
        raise SourceError(instance.name, f"its entrypoint {instance.entrypoint} is an absolute path", f"Give it relative to {within}.")
    if source.runtime == "dockerfile":
        return
    flags = {
        other.name: _flags(other, found) for other in config.instances if (found := sources.get((other.server_type, other.implementation)))
    }
    if not one_process_serves(instance, source):
        check_workers(instance, config, flags, extension.server(instance.name))


def _server(plan: _Plan, instance: ServerInstance) -> tuple[Service, tuple[str, ...]]:
    """The service of one instance, and the names of the secrets in its slice."""
    options, source = plan.options, plan.source(instance)
    docker = options.target == "docker"
    chosen = plan.extension.server(instance.name)
    own = own_paths(plan.addressed.document, instance.name, chosen)
    host_urls = [path for path in plan.addressed.host_urls if any(path[: len(prefix)] == prefix for prefix in own)]
    host_gateway = bool(host_urls)
    egress = has_egress(instance, source, plan.extension, [(instance.name,)] if host_gateway else [])
    is_published = instance.name in plan.published
    address = plan.addresses[instance.name]

    document = dict(plan.addressed.document)
    document[instance.name] = doc.plain(document[instance.name])
    block: dict[str, Any] = document[instance.name][instance.server_type][instance.implementation]
    if is_published:
        block["host"] = ANY_ADDRESS
    mounts, digests = mount_files(instance, source, block, options, chosen)
    peer = _peer(plan, instance, source)
    environment = {
        **(plan.fragments.closed_environment if docker and not egress else {}),
        **(peer.environment if peer is not None else {}),
    }
    if peer is not None and worker_count(instance) > 1:
        document.setdefault(PATIENCE_KEY, plan.fragments.nemo_gym.worker_start_seconds)
    document.pop(ADDRESS_KEY, None)
    ray_address = plan.ray.address(instance.name)
    if ray_address is not None:
        document[ADDRESS_KEY] = ray_address
    cut = slice_config(plan.config, instance, document, plan.secrets, chosen, environment, strict=plan.extension.strict)
    public = PublicSlice(
        gym_compose=options.version,
        instance=instance.name,
        server_type=instance.server_type,
        implementation=instance.implementation,
        entrypoint=instance.entrypoint,
        server_dir=server_directory(source, options) if source else "/",
        runtime=source.runtime if source else "external",
        python_path=python_path(source, options) if source else (),
        config=cut.config,
        environment=cut.environment,
        ray=plan.extension.ray,
        withheld=cut.withheld if peer is not None else (),
    )
    secret = SecretSlice(
        values=cut.values, environment=cut.secret_environment, session_key=options.session_key if plan.all_native else None
    )
    external = chosen.image if docker else None
    service = server_service(
        plan.names[instance.name].service,
        public,
        secret,
        slice_digest(public, secret, digests),
        address,
        external or plan.images.by_instance.get(instance.name, ""),
        options=options,
        extension=plan.extension,
        fragments=plan.fragments,
        mounts=mounts,
        egress=egress if docker else True,
        published=is_published,
        host_gateway=host_gateway,
        references=_references(plan, instance),
        peer=peer,
    )
    return replace(service, gpus=None) if not docker else service, cut.secret_names


def _peer(plan: _Plan, instance: ServerInstance, source: ServerSource | None) -> PeerService | None:
    if plan.options.target == "process" or source is None or source.runtime != "nemo-gym":
        return None
    if plan.extension.server(instance.name).image is not None:
        return None
    return PeerService.of(instance.name, source, plan.ray, plan.options, plan.fragments)


def _ray(config: GymConfig, sources: Sources, extension: Extension, images: ImageSet, names: Mapping[str, InstanceNames]) -> RayPlan:
    flags = {
        instance.name: _flags(instance, source)
        for instance in config.instances
        if (source := sources.get((instance.server_type, instance.implementation))) is not None
        and source.runtime == "nemo-gym"
        and extension.server(instance.name).image is None
    }
    return plan_ray(flags, extension.ray, config.resolved.get(ADDRESS_KEY), images.by_instance, names)


def _references(plan: _Plan, instance: ServerInstance) -> tuple[str, ...]:
    targets = (reference.target for reference in plan.config.references if reference.source == instance.name)
    return tuple(dict.fromkeys(plan.names[target].service for target in targets if target in plan.names))


def _notes(plan: _Plan, servers: list[Service]) -> list[tuple[str, str]]:
    """What a user should know and need not do anything about."""
    notes: list[tuple[str, str]] = []
    known = {instance.name for instance in plan.config.instances}
    notes.extend(
        (reference.source, f"{reference.field} references {reference.target!r}, which is no instance of this config")
        for reference in plan.config.references
        if reference.target not in known
    )
    for instance, service in zip(plan.config.instances, servers, strict=True):
        source = plan.source(instance)
        tree = tree_note(source) if source is not None else None
        if tree is not None:
            notes.append((instance.name, tree))
        if source is not None and one_process_serves(instance, source) and (asked := worker_count(instance)) > 1:
            notes.append((instance.name, f"num_workers is {asked}: a native server of this type needs one process, and runs in one"))
        peer = _peer(plan, instance, source)
        notes.extend((instance.name, note) for note in (peer.notes if peer is not None else ()))
        if service.own_command and service.secret is not None:
            notes.extend((instance.name, note) for note in own_notes(service.secret, dict(service.environment)))
        if service.writable:
            notes.append((instance.name, "its root file system is writable"))
        if not service.closed:
            continue
        if plan.ray.given is not None and instance.name in plan.ray.users:
            notes.append((instance.name, f"{ADDRESS_KEY} may be outside, and the server has no way out (egress: true gives it one)"))
        for path, value in doc.walk(plan.addressed.document[instance.name], (instance.name,)):
            if isinstance(value, str) and isinstance(path[-1], str) and path[-1].endswith("base_url") and _outside(value):
                notes.append(
                    (instance.name, f"{dotted(path)} names an address outside, and the server has no way out (egress: true gives it one)")
                )
    used = plan.options.nemo_gym
    if used is not None and any(source.runtime == "nemo-gym" for source in _used(plan.config, plan.sources)):
        kind = "the checkout in " + used.directory if used.form == "checkout" else f"release {used.version}"
        minor = ".".join(used.python.split(".")[:2])
        notes.append(
            (
                "",
                f"NeMo Gym: {kind}; it asks for Python {used.python} and is installed on the base's {minor}, whatever its last number is",
            )
        )
    if plan.options.target == "process" and EXTENSION_KEY in plan.config.resolved:
        notes.append(("", "the process engine applies no networks, limits, mounts or images of the compose key"))
    return notes


def _outside(value: str) -> bool:
    address = probe_url(value, origin_only=True)
    if address is None:
        return False
    host = address.split("://", 1)[1].rsplit(":", 1)[0]
    return not is_loopback(host)


__all__ = ["CompileError", "compile"]
