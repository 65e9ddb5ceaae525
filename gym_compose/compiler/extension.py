"""The ``compose:`` key of a config: everything of ours that a user may say (design.md, extension key)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from posixpath import dirname, normpath
from typing import Annotated, Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gym_compose.compiler.addresses import LOOPBACK
from gym_compose.compiler.errors import ExtensionError
from gym_compose.wire.names import CONTAINER_SECRET, CONTAINER_SLICE
from gym_compose.wire.suggestions import close_or_all

_MEMORY = re.compile(r"[1-9][0-9]*(\.[0-9]+)?([bkmgt]b?)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LEAST_MEMORY = 6 * 2**20
"""What the Docker daemon accepts as a limit."""
_OURS = (dirname(CONTAINER_SLICE), dirname(CONTAINER_SECRET))
"""Directories of a container that hold what the launcher reads."""
PUBLISH_ENVIRONMENT = "environment"
"""Word in ``publish`` for every environment server."""


def _memory(value: Any) -> Any:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not _MEMORY.fullmatch(text):
        raise ValueError("not an amount of memory such as 512m or 2g")
    if memory_bytes(text) < _LEAST_MEMORY:
        raise ValueError("less than the 6m that Docker accepts")
    return text.lower()


def _cpus(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("not a number of processors such as 0.5 or 2")
    try:
        number = float(value)
    except ValueError:
        raise ValueError("not a number of processors such as 0.5 or 2") from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError("not a number of processors above 0")
    return repr(number)


def _variable(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value


def _mount_target(value: str) -> str:
    path = normpath(value)
    if path == "/" or ":" in path or "\0" in path:
        raise ValueError("no place for a mount: give a directory or file below /, without a colon")
    if any(path == taken or path.startswith(taken + "/") for taken in _OURS) or any(taken.startswith(path + "/") for taken in _OURS):
        raise ValueError(f"taken: the server's config and secrets are in {' and '.join(_OURS)}")
    return path


def _release(value: str) -> str:
    try:
        return str(Version(value))
    except InvalidVersion:
        raise ValueError("not a release such as 0.7.0") from None


def _switched(value: Any) -> Any:
    return "off" if value is False else value  # YAML reads the bare word off as false


def _host_address(value: str) -> str:
    try:
        address = IPv4Address(value)
    except ValueError:
        raise ValueError("not an IPv4 address of this host, such as 10.0.0.5") from None
    if address.is_unspecified:
        raise ValueError("no address that others could be told: give that of the interface by which they come")
    return str(address)


Memory = Annotated[str, BeforeValidator(_memory)]
Cpus = Annotated[str, BeforeValidator(_cpus)]
Variable = Annotated[str, BeforeValidator(_variable)]
DebianPackage = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MountOptions(_Model):
    """A host path in a container, read-only unless said otherwise. A relative ``source`` is one of the config's search roots."""

    source: str = Field(min_length=1)
    target: Annotated[str, Field(pattern=r"^/"), AfterValidator(_mount_target)]
    read_only: bool = True


class DefaultOptions(_Model):
    """For every server that does not say otherwise."""

    memory: Memory | None = None
    cpus: Cpus | None = None
    pids_limit: Annotated[int, Field(gt=0)] | None = None
    stop_grace_seconds: Seconds | None = None


class ServerOptions(DefaultOptions):
    """For one instance."""

    egress: bool | None = None
    environment: dict[str, Variable] = Field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    """Dotted names of config values, wherever they stand, that this server may read besides its own."""
    gpus: Annotated[int, Field(gt=0)] | None = None
    image: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][^\s]*$")
    writable: bool = False
    stateless: bool = False
    """No request needs an earlier one, whatever its code looks like: several workers may share the sessions."""
    idempotent_episodes: bool = False
    """Of an environment server: a second ``POST /run`` of one episode id does no harm, so the driver may send it again."""
    mounts: tuple[MountOptions, ...] = ()
    apt: tuple[DebianPackage, ...] = ()
    """Debian packages that the server's image has, below its Python requirements."""
    run: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Setup steps (bash), run as root in the server's directory while its image is built."""


class RayOptions(DefaultOptions):
    """For the Ray services. ``egress``: tasks have a way out; off, as every server of the deployment can send tasks there."""

    egress: bool = False
    gpus: Annotated[int, Field(gt=0)] | None = None


class NemoGymOptions(_Model):
    """Which NeMo Gym servers of the nemo-gym runtime run on, where no tree of the user's says it."""

    version: Annotated[str, AfterValidator(_release)] | None = None


class PublishOptions(_Model):
    """``servers`` have a port on the host: instance names, or ``environment`` for every environment server. ``address`` is where they and
    the head server have it: 127.0.0.1, or an address of this host that others reach. Nobody is asked for a password there."""

    servers: tuple[str, ...] = ()
    address: Annotated[str, AfterValidator(_host_address)] = LOOPBACK


def _publish(value: Any) -> Any:
    return {"servers": value} if isinstance(value, list | tuple) else value


Published = Annotated[PublishOptions, BeforeValidator(_publish)]


class Extension(_Model):
    """The whole key."""

    defaults: DefaultOptions = DefaultOptions()
    servers: dict[str, ServerOptions] = Field(default_factory=dict)
    head_secrets: bool = False
    """The inner listener of the head server answers with secrets (a peer's tool that needs them there)."""
    host_relay: bool = True
    """Endpoints that listen on the host's loopback interface alone are reached over a relay; False makes such a config an error."""
    runtime: Literal["native", "nemo-gym"] = "native"
    """Whose server runs where both we and an installed NeMo Gym have one of that name."""
    nemo_gym: NemoGymOptions = NemoGymOptions()
    ray: Annotated[Literal["off", "peer"], BeforeValidator(_switched)] = "off"
    """What a server class that leaves ``ray_enabled`` undeclared gets."""
    ray_service: RayOptions = RayOptions()
    strict: bool = False
    """The peer's behaviour wherever docs/differences.md names one of ours."""
    publish: Published = PublishOptions()
    """Servers with a port on the host; a plain list is ``{servers: [...]}``."""

    def server(self, instance: str) -> ServerOptions:
        return self.servers.get(instance, ServerOptions())


def parse_extension(value: Mapping[str, Any], instances: Iterable[str]) -> Extension:
    """Validate the resolved ``compose`` mapping. ``instances`` are the names that ``servers`` and ``publish`` may use.

    Raises ExtensionError naming the first wrong key, with close matches when it is unknown.
    """
    try:
        extension = Extension.model_validate(value)
    except ValidationError as error:
        raise _explain(error) from None
    names = set(instances)
    for name in extension.servers:
        if name not in names:
            raise ExtensionError(("servers", name), "there is no server instance of this name", hint=close_or_all(name, names))
    for name in extension.publish.servers:
        if name != PUBLISH_ENVIRONMENT and name not in names:
            raise ExtensionError(
                ("publish",), f"there is no server instance {name!r}", hint=close_or_all(name, names | {PUBLISH_ENVIRONMENT})
            )
    for name, options in extension.servers.items():
        targets = [mount.target for mount in options.mounts]
        twice = next((target for target in targets if targets.count(target) > 1), None)
        if twice is not None:
            raise ExtensionError(("servers", name, "mounts"), f"{twice} is the target of two mounts", hint="Give each its own.")
        for variable in options.environment:
            if not variable or "=" in variable or "\0" in variable:
                raise ExtensionError(("servers", name, "environment"), f"{variable!r} is no name of an environment variable")
    return extension


def memory_bytes(text: str) -> int:
    """Bytes of a memory amount that ``Memory`` accepted."""
    number = text.lower().rstrip("bkmgt")
    unit = text[len(number) :].lower().rstrip("b")
    return int(float(number) * _UNITS[unit])


def _explain(error: ValidationError) -> ExtensionError:
    first = error.errors(include_url=False)[0]
    path = tuple(first["loc"])
    if first["type"] == "extra_forbidden":
        return ExtensionError(path, "unknown key", hint=close_or_all(str(path[-1]), _siblings(path)))
    message = _WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return ExtensionError(path, "is missing")
    if first["type"] == "string_pattern_mismatch" and "apt" in path:
        message = "not the name of a Debian package such as libxrender1"
    if first["type"] == "string_pattern_mismatch" and path[-1] == "image":
        message = "not the name of an image such as registry.example/judge:3"
    given = first["input"]
    shown = f" (got {type(given).__name__})" if isinstance(given, dict | list) else f" (got {given!r})"
    return ExtensionError(path, message + ("" if _hidden(path) else shown))


_WORDS: Mapping[str, str] = {
    "tuple_type": "it has to be a list",
    "dict_type": "it has to be a mapping",
    "model_type": "it has to be a mapping",
    "bool_type": "it has to be true or false",
    "bool_parsing": "it has to be true or false",
    "string_type": "it has to be text",
}
"""Types of pydantic's errors, in YAML's words."""


def _hidden(path: tuple[str | int, ...]) -> bool:
    """A value below ``environment`` may be a secret."""
    return "environment" in path


def _siblings(path: tuple[str | int, ...]) -> Iterable[str]:
    model: type[BaseModel] = Extension
    if path[:1] == ("defaults",):
        model = DefaultOptions
    elif path[:1] == ("ray_service",):
        model = RayOptions
    elif path[:1] == ("nemo_gym",):
        model = NemoGymOptions
    elif path[:1] == ("publish",):
        model = PublishOptions
    elif path[:1] == ("servers",):
        model = MountOptions if "mounts" in path else ServerOptions
    return model.model_fields
