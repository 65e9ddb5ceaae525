"""What ``compile`` makes: everything an engine needs, as frozen data, before one byte is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gym_compose.wire.head import HeadDocument, HeadSecret
from gym_compose.wire.names import EngineName, Role
from gym_compose.wire.slice import PublicSlice, SecretSlice

ImageKind = Literal[
    "base", "packages", "native", "controller", "build", "requirements", "server", "external",
    "system", "peer-packages", "peer-requirements",
]  # fmt: skip
"""``packages``: the native runtime's pinned packages without gym_compose; ``requirements``: one set of servers' requirements above them;
``peer-…``: the same of the nemo-gym runtime; ``system``: Debian packages."""


@dataclass(frozen=True)
class ContextFile:
    """A file of a build context: taken from the host (``host_path``, whose content has ``sha256``) or given as ``content``."""

    path: str
    sha256: str
    host_path: str | None = None
    content: bytes | None = None
    executable: bool = False


@dataclass(frozen=True)
class Requested:
    """One requirement line: which instance asks, and where it stands (``/dir/requirements.txt:3``)."""

    instance: str
    place: str
    line: str


@dataclass(frozen=True)
class Image:
    """An image, known by content: ``name`` is ``gym-compose/<slug>:<first 12 of key>``, ``key`` the digest of ``inputs``.

    ``base`` and ``external`` images are not built from a Dockerfile: the engine makes or only looks for them.
    """

    name: str
    key: str
    kind: ImageKind
    inputs: tuple[tuple[str, str], ...]
    dockerfile: str | None = None
    context: tuple[ContextFile, ...] = ()
    depends_on: tuple[str, ...] = ()
    """Names of images that must exist first."""
    uses_ca_secret: bool = False
    """Its build goes to package indexes: gets the CA bundle as secret ``ca`` and the index variables of the caller's environment."""
    build_args: tuple[tuple[str, str], ...] = ()
    """Names of parent images by build argument, and further arguments."""

    requested: tuple[Requested, ...] = ()
    """Whose requirement lines it installs: for the message when that fails. Not in the key."""
    lock_name: str = ""
    """The file of ``.gym/requirements.lock`` (without ``.txt``) that keeps what was chosen; empty where nothing is resolved."""
    lock: str | None = None
    """Its text, when there is one: the build then installs exactly that."""
    renew: bool = False
    """Resolve anew although it is there and locked (``gym compose build --upgrade``)."""

    @property
    def is_built(self) -> bool:
        """Made from a Dockerfile: one of ours, or a server's own among its context's files."""
        return self.dockerfile is not None or any(file.path == "Dockerfile" for file in self.context)


@dataclass(frozen=True)
class Network:
    """A network of the project. ``internal`` ones have no gateway address on the host (design decision 8)."""

    name: str
    internal: bool = False
    driver_opts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Mount:
    """A host file or directory in a container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class PublishedPort:
    """A port on the host. ``host_port`` None: the engine chooses."""

    host_address: str
    host_port: int | None
    container_port: int


@dataclass(frozen=True)
class Attachment:
    """A service on a network, with its aliases there."""

    network: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Service:
    """One container (Docker) or process. ``name`` is the compose service name; ``command`` its argv."""

    name: str
    role: Role
    instance: str | None
    image: str
    command: tuple[str, ...]
    attachments: tuple[Attachment, ...]
    user: str | None
    slice: PublicSlice | None = None
    secret: SecretSlice | None = None
    slice_sha256: str | None = None
    """Digest over both halves: a label, so that a changed slice recreates the service."""
    environment: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    extra_hosts: tuple[tuple[str, str], ...] = ()
    memory: str | None = None
    cpus: str | None = None
    pids_limit: int | None = None
    gpus: int | None = None
    shm_size: str | None = None
    network_mode: str | None = None
    """``host``: no network of the project's; ``attachments`` then are none."""
    writable: bool = False
    closed: bool = True
    """No egress: short DNS timeouts."""
    stop_grace_seconds: float = 10.0
    depends_on: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    host: str = ""
    port: int = 0
    references: tuple[str, ...] = ()
    """Services that this one's config references directly; may hold cycles, orders nothing."""
    own_command: bool = False
    """The image says what runs and which signal stops it (``image:``, or a Dockerfile of the server's own)."""
    pull: bool = False
    """The image comes from a registry when it is not here (``compose: servers: NAME: {image: …}``)."""


@dataclass(frozen=True)
class DatasetInput:
    """A dataset that the config declares; ``sha256`` None where the file is not on disk (yet)."""

    instance: str
    name: str
    type: str
    path: str
    sha256: str | None


@dataclass(frozen=True)
class Deployment:
    """A whole project. ``services`` stand in start order: head first, then the servers in the order of the config; the driver last."""

    project: str
    version: str
    target: EngineName
    services: tuple[Service, ...]
    images: tuple[Image, ...]
    """Base first: an image stands after all that it is built from."""
    networks: tuple[Network, ...]
    head: HeadDocument
    head_secret: HeadSecret
    head_port: int
    """The port wanted on 127.0.0.1 of the host; 0 lets the engine choose."""
    secrets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Instance to the dotted names (never the values) of the secrets in its slice."""
    datasets: tuple[DatasetInput, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = field(default=())
    """(instance or '', text) lines for the plan: rewritten URLs, ignored keys, shadowed trees."""

    def service(self, name: str) -> Service:
        for candidate in self.services:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
