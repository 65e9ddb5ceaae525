"""The YAML fragments of ``compose/`` that every rendered service starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gym_compose.compiler.errors import CompileError

_NAMES = ("hardening", "limits", "logging", "networks", "closed", "health", "nemo_gym")


@dataclass(frozen=True)
class Limits:
    """``memory`` as compose writes it (``2g``), ``cpus`` as a decimal."""

    memory: str
    cpus: str
    pids_limit: int


@dataclass(frozen=True)
class PeerFragment:
    """What services of the nemo-gym runtime get besides; ``ray`` is the service that those have whose class asks for Ray."""

    writable_directories: tuple[str, ...]
    environment: Mapping[str, str]
    least_memory: str
    least_stop_grace_seconds: float
    worker_start_seconds: int
    ray_memory: str
    ray_pids_limit: int
    ray_task_cpus: int
    ray_shm_size: str
    ray_environment: Mapping[str, str]
    """What its users need too."""
    ray_service_environment: Mapping[str, str]
    ray_command: tuple[str, ...]
    ray_health: Mapping[str, Any]

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> PeerFragment:
        ray = value["ray"]
        return cls(
            writable_directories=tuple(value["writable_directories"]),
            environment=value["environment"],
            least_memory=value["least_memory"],
            least_stop_grace_seconds=float(value["least_stop_grace_seconds"]),
            worker_start_seconds=int(value["worker_start_seconds"]),
            ray_memory=ray["memory"],
            ray_pids_limit=ray["pids_limit"],
            ray_task_cpus=ray["task_cpus"],
            ray_shm_size=ray["shm_size"],
            ray_environment=ray["environment"],
            ray_service_environment=ray["service_environment"],
            ray_command=tuple(ray["command"]),
            ray_health=ray["health"],
        )


@dataclass(frozen=True)
class Fragments:
    """Parsed fragments; each mapping holds compose keys as they stand in the file."""

    hardening: Mapping[str, Any]
    limits: Mapping[str, Limits]
    """By role: server, head, driver, relay."""
    logging: Mapping[str, Any]
    networks: Mapping[str, Mapping[str, Any]]
    closed_dns: tuple[str, ...]
    closed_environment: Mapping[str, str]
    health: Mapping[str, Any]
    nemo_gym: PeerFragment


def parse_fragments(texts: Mapping[str, str]) -> Fragments:
    """Read the fragments from ``texts`` (``compose/limits.yaml`` to its text).

    Raises CompileError naming the file that is missing or not of the form that this version knows.
    """
    parsed: dict[str, Any] = {}
    for name in _NAMES:
        path = f"compose/{name}.yaml"
        try:
            parsed[name] = yaml.load(texts[path], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except KeyError:
            raise CompileError("the fragment is missing", where=path, hint="Reinstall gym-compose.") from None
        except yaml.YAMLError as error:
            raise CompileError(f"not YAML: {error}", where=path) from None
        if not isinstance(parsed[name], dict):
            raise CompileError("not a mapping", where=path)
    try:
        return Fragments(
            hardening=parsed["hardening"],
            limits={role: Limits(**parsed["limits"][role]) for role in ("server", "head", "driver", "relay")},
            logging=parsed["logging"],
            networks=parsed["networks"],
            closed_dns=tuple(parsed["closed"]["dns_opt"]),
            closed_environment=parsed["closed"]["environment"],
            health=parsed["health"],
            nemo_gym=PeerFragment.of(parsed["nemo_gym"]),
        )
    except (KeyError, TypeError) as error:
        raise CompileError(f"a fragment lacks or misnames a key: {error}", where="compose/") from None
