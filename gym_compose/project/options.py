"""Everything impure that ``compile`` must be told, collected in one place: who calls, which version, which key, which files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gym_compose.compiler.addresses import host_ports
from gym_compose.compiler.assets import read_assets, read_host_files, read_locks
from gym_compose.compiler.hostfiles import wanted_files
from gym_compose.compiler.locks import LOCK_DIRECTORY
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.own_image import NEMO_GYM_ARGUMENT
from gym_compose.config.model import GymConfig, ServerSource
from gym_compose.config.nemo_gym import find_nemo_gym
from gym_compose.project import assets
from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.listening import loopback_only
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import DEFAULT_UID, HEAD_PORT_INSIDE, EngineName
from gym_compose.wire.settings import Settings

UNWRITTEN_KEY = "0" * 64
"""The session key of a project that was never written: only a plan is made with it, ``Project.write`` compiles again with a real one."""
CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def ca_bundle(environ: Mapping[str, str], files: Sequence[str] = _CA_FILES) -> str | None:
    """The host's CA bundle, which image builds get as a secret: as the environment says, else where distributions keep it."""
    for candidate in (*(environ.get(name) for name in CA_VARIABLES), *files):
        if candidate and Path(candidate).is_file():
            return str(Path(candidate).absolute())
    return None


def run_as(uid: int, gid: int) -> tuple[int, int]:
    """Who the servers run as: the caller, or the service account when that is root (design decision 7)."""
    return (DEFAULT_UID, DEFAULT_UID) if uid == 0 else (uid, gid)


@dataclass(frozen=True)
class HeadPort:
    """What a config says of the head server's port on this host. ``explicit``: a source names it, so no other one will do."""

    wanted: int
    explicit: bool

    @classmethod
    def of(cls, config: GymConfig, overrides: Sequence[str]) -> HeadPort:
        """Out of the merged config. Its ``head_server`` is always filled in, so a port of 11000 may be the default or a wish: the
        overrides and files are looked at to tell. Raises InvalidInputError for what is no port."""
        head = config.resolved.get("head_server")
        port = head.get("port") if isinstance(head, Mapping) else None
        wanted = HEAD_PORT_INSIDE if port is None else _port(port)
        explicit = (
            wanted != HEAD_PORT_INSIDE or any(_names_head_port(text) for text in overrides) or any(map(_file_names_it, config.config_files))
        )
        return cls(wanted, explicit)


def _port(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 65536:
        return number
    raise InvalidInputError(f"{value!r} is no port", where="head_server.port", hint="Give a number of 1 to 65535, or leave the key out.")


def _names_head_port(override: str) -> bool:
    key = override.lstrip("+").partition("=")[0].strip()
    return key == "head_server.port" or (key == "head_server" and "port" in override)


def _file_names_it(path: str) -> bool:
    """Whether a config file has ``head_server: {port: …}`` at its top level. It was read and merged before, so it is YAML."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    if "head_server" not in text:
        return False
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:  # a construct that only OmegaConf's loader takes
        return True
    head = document.get("head_server") if isinstance(document, dict) else None
    return isinstance(head, dict) and head.get("port") is not None


def compile_options(
    config: GymConfig,
    sources: Mapping[tuple[str, str], ServerSource],
    *,
    project: str,
    target: EngineName,
    directory: ProjectDirectory,
    head_port: int,
    session_key: str | None,
    version: str,
    roots: Sequence[Path],
    settings: Settings,
    publish: Sequence[str] = (),
    upgrade: bool = False,
) -> CompileOptions:
    """All of it. ``roots`` are where files that the config names are looked for, in order. Reads files and writes none: while a project
    was never written, a placeholder stands for its session key."""
    tree = assets.root()
    return CompileOptions(
        project=project,
        version=version,
        target=target,
        directory=str(directory.path),
        assets=read_assets(tree),
        package_files=assets.package_files(),
        python=sys.executable,
        session_key=session_key or UNWRITTEN_KEY,
        run_as=run_as(os.getuid(), os.getgid()),
        head_port=head_port,
        base_image=settings.base_image,
        files=read_host_files(wanted_files(config, sources), roots),
        publish=tuple(publish),
        stop_grace_seconds=settings.stop_grace_seconds,
        locks=read_locks(directory.path.parent / LOCK_DIRECTORY),
        upgrade=upgrade,
        loopback_ports=loopback_only(host_ports(config)) if target == "docker" else frozenset(),
        nemo_gym=find_nemo_gym(roots) if any(_runs_on_nemo_gym(source) for source in sources.values()) else None,
    )


def _runs_on_nemo_gym(source: ServerSource) -> bool:
    return source.runtime == "nemo-gym" or NEMO_GYM_ARGUMENT in source.build_arguments
