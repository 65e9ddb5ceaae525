"""Configs, sources and options made by hand, so that the compiler's tests need neither the config package nor a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler import CompileOptions, ContextFile, HostFile, read_assets
from gym_compose.config.model import (
    ClassFlags,
    GymConfig,
    KeyPath,
    ServerInstance,
    ServerManifest,
    ServerReference,
    ServerSource,
    SourceFile,
)
from gym_compose.wire.names import SERVER_TYPES

ROOT = Path(__file__).resolve().parents[3]
MakeConfig = Callable[..., GymConfig]
MakeSources = Callable[..., dict[tuple[str, str], ServerSource]]
MakeOptions = Callable[..., CompileOptions]


def four_servers() -> dict[str, Any]:
    """A merged config of the usual shape: resources server, agent, model server, environment server."""
    reference = {"type": "resources_servers", "name": "math"}
    return {
        "math": {"resources_servers": {"math": {"entrypoint": "app.py", "domain": "math", "host": "127.0.0.1", "port": 8000}}},
        "math_agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "entrypoint": "app.py",
                    "resources_server": reference,
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                    "host": "127.0.0.1",
                    "port": 8000,
                }
            }
        },
        "policy_model": {
            "responses_api_models": {
                "openai_model": {
                    "entrypoint": "app.py",
                    "openai_base_url": "https://models.example/v1",
                    "openai_api_key": "sk-MARKER-API",
                    "host": "127.0.0.1",
                    "port": 8000,
                }
            }
        },
        "math_environment": {
            "environment_servers": {
                "legacy_agent": {
                    "entrypoint": "app.py",
                    "agent_server": {"type": "responses_api_agents", "name": "math_agent"},
                    "host": "127.0.0.1",
                    "port": 8000,
                }
            }
        },
        "policy_api_key": "sk-MARKER-API",
        "policy_model_name": "m",
        "head_server": {"host": "127.0.0.1", "port": 11000},
        "disallowed_ports": [11000, 8000, 8000, 8000, 8000],
        "results_dir": "/home/me/results",
        "dry_run": True,
        "server_spinup_timeout_seconds": 600,
        "model_endpoint_readiness_timeout_seconds": 600,
    }


FOUR_SECRETS = frozenset({("policy_model", "responses_api_models", "openai_model", "openai_api_key"), ("policy_api_key",)})


def config_of(resolved: Mapping[str, Any], secrets: Iterable[KeyPath] = FOUR_SECRETS, *, pinned: Iterable[str] = ()) -> GymConfig:
    """A GymConfig of ``resolved``; instances and direct references are read off it."""
    instances: list[ServerInstance] = []
    references: list[ServerReference] = []
    for name, value in resolved.items():
        kind = next((kind for kind in SERVER_TYPES if isinstance(value, Mapping) and kind in value), None)
        if kind is None:
            continue
        implementation, block = next(iter(value[kind].items()))
        instances.append(
            ServerInstance(name, kind, implementation, block["entrypoint"], block["host"], int(block["port"]), block, name in set(pinned))
        )
        references.extend(
            ServerReference(name, field, item["type"], item["name"])
            for field, item in block.items()
            if isinstance(item, Mapping) and item.keys() >= {"type", "name"}
        )
    return GymConfig(
        merged=resolved,
        resolved=resolved,
        instances=tuple(instances),
        references=tuple(references),
        secret_paths=frozenset(secrets),
        extension=resolved.get("compose", {}),
    )


def sources_of(config: GymConfig, **changes: Any) -> dict[tuple[str, str], ServerSource]:
    """A native source for each implementation; ``changes`` are fields of ServerSource, or ``IMPLEMENTATION={field: value}``."""
    fields = {name: value for name, value in changes.items() if not isinstance(value, dict)}
    found: dict[tuple[str, str], ServerSource] = {}
    for instance in config.instances:
        directory = f"/src/{instance.server_type}/{instance.implementation}"
        values: dict[str, Any] = {
            "server_type": instance.server_type,
            "implementation": instance.implementation,
            "directory": directory,
            "origin": "native",
            "runtime": "native",
            "requirement_lines": (),
            "files": (SourceFile("app.py", hashlib.sha256(directory.encode()).hexdigest(), 10),),
            "flags": ClassFlags(class_name="S", ray_enabled=False),
            "manifest": ServerManifest(),
            **fields,
            **(changes[instance.implementation] if isinstance(changes.get(instance.implementation), dict) else {}),
        }
        found[instance.server_type, instance.implementation] = ServerSource(**values)
    return found


def options_of(**changes: Any) -> CompileOptions:
    """Docker options with a stable set of gym_compose's own files."""
    names = (
        "gym_compose/__init__.py", "gym_compose/wire/names.py", "gym_compose/serving/launch.py", "gym_compose/controller/__main__.py",
        "gym_compose/driver/__main__.py", "gym_compose/tasks/rows.py", "gym_compose/config/model.py", "gym_compose/cli/main.py",
    )  # fmt: skip
    values: dict[str, Any] = {
        "project": "p",
        "version": "0.1.0",
        "target": "docker",
        "directory": "/work/.gym/p",
        "assets": read_assets(ROOT),
        "package_files": tuple(ContextFile(name, hashlib.sha256(name.encode()).hexdigest(), f"/pkg/{name}") for name in names),
        "python": "/usr/bin/python3",
        "session_key": "MARKER-SESSION-KEY",
        "run_as": (1000, 1000),
        **changes,
    }
    return CompileOptions(**values)


@pytest.fixture
def four() -> dict[str, Any]:
    return four_servers()


@pytest.fixture
def make_config() -> MakeConfig:
    return config_of


@pytest.fixture
def make_sources() -> MakeSources:
    return sources_of


@pytest.fixture
def make_options() -> MakeOptions:
    return options_of


@pytest.fixture
def host_file() -> Callable[[str, str], HostFile]:
    return lambda path, text: HostFile(path, hashlib.sha256(text.encode()).hexdigest())
