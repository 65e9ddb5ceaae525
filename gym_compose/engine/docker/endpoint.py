"""Which Docker engine is meant, and is it on this machine: DOCKER_HOST, DOCKER_CONTEXT, the CLI's current context, the default socket.

Slices, secrets and results are bind mounts, so an engine on another machine cannot work and is refused before anything else.
The SDK does not know contexts and the CLI does, so both are given the address that is found here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from gym_compose.engine.errors import DockerUnavailableError
from gym_compose.wire.redaction import Redactor

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Endpoint:
    """An engine's address (``unix:///path`` or ``tcp://127.0.0.1:port``) and where it was said."""

    url: str
    source: str

    @property
    def socket(self) -> str | None:
        """The path of the Unix socket, None for TCP."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a TCP endpoint."""
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 2375


def find_endpoint(environ: Mapping[str, str]) -> Endpoint:
    """The engine that the docker CLI would use in this environment.

    Raises DockerUnavailableError when it is on another machine, or the context is unknown.
    """
    return _local(_find(environ))


def _find(environ: Mapping[str, str]) -> Endpoint:
    host = environ.get("DOCKER_HOST")
    if host:
        return Endpoint(host, "DOCKER_HOST")
    config = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or Path.home()) / ".docker")
    name, source = environ.get("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
    if not name:
        name, source = _current_context(config), f"the current context in {config / 'config.json'}"
    if not name or name == "default":
        return Endpoint(DEFAULT_SOCKET, "the default socket")
    meta = config / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    try:
        url = orjson.loads(meta.read_bytes())["Endpoints"]["docker"]["Host"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DockerUnavailableError(
            f"the Docker context {name!r} cannot be read", where=source, hint="`docker context ls` lists those that exist."
        ) from error
    return Endpoint(str(url), f"the Docker context {name!r}")


def _current_context(config: Path) -> str | None:
    try:
        document = orjson.loads((config / "config.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None  # no such file is the ordinary case; the CLI reports a broken one itself
    name = document.get("currentContext") if isinstance(document, dict) else None
    return name if isinstance(name, str) else None


def _local(endpoint: Endpoint) -> Endpoint:
    url = endpoint.url
    if url.startswith("unix://") and len(url) > len("unix://"):
        return endpoint
    parts = urlsplit(url)
    if parts.scheme in {"tcp", "http"} and parts.hostname in _LOOPBACK:
        return endpoint
    raise DockerUnavailableError(
        f"the Docker engine at {Redactor().text(url)} is on another machine: its containers could not see the project's files",
        where=endpoint.source,
        hint="Unset DOCKER_HOST and DOCKER_CONTEXT (or `docker context use default`), or run gym compose on that machine.",
    )
