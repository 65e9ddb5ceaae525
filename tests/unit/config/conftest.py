"""A directory with config files, and the ways to merge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from gym_compose.config import GymConfig, load_config, resolve_config
from gym_compose.config.ports import OfflinePorts, PortAllocator


@dataclass
class World:
    """``cwd`` is an empty directory of its own below ``root``."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    MODEL: ClassVar[dict[str, Any]] = {"pm": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}}}
    RESOURCES: ClassVar[dict[str, Any]] = {"rs": {"resources_servers": {"rsi": {"entrypoint": "app.py", "domain": "math"}}}}

    @staticmethod
    def agent(name: str, kind: str = "simple_agent", **fields: Any) -> dict[str, Any]:
        """An agent instance that is bound to ``rs`` and ``pm``."""
        bindings = {
            "resources_server": {"type": "resources_servers", "name": "rs"},
            "model_server": {"type": "responses_api_models", "name": "pm"},
        }
        return {name: {"responses_api_agents": {kind: {"entrypoint": "app.py", **bindings, **fields}}}}

    @staticmethod
    def unbound(name: str = "hermes_agent", kind: str = "hermes_agent", **fields: Any) -> dict[str, Any]:
        """A standalone agent config: it leaves its resources server open."""
        return World.agent(name, kind, resources_server={"type": "resources_servers", "name": "???"}, **fields)

    @staticmethod
    def front(name: str, **references: Any) -> dict[str, Any]:
        """An environment server; a string stands for a reference to the agent of that name."""
        block = {
            field: {"type": "responses_api_agents", "name": value} if isinstance(value, str) else value
            for field, value in references.items()
        }
        return {name: {"environment_servers": {"legacy_agent": {"entrypoint": "app.py", **block}}}}

    @property
    def cwd(self) -> Path:
        return self.root / "cwd"

    def write(self, files: Mapping[str, Any]) -> None:
        """Texts as they are, everything else as YAML; names are relative to the working directory."""
        for name, content in files.items():
            path = self.cwd / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def resolve(self, overrides: Sequence[str] | Mapping[str, Any] = (), **options: Any) -> dict[str, Any]:
        return resolve_config(overrides, cwd=self.cwd, environ=self.environ, **options)

    def load(self, overrides: Sequence[str] | Mapping[str, Any] = (), *, ports: PortAllocator | None = None, **options: Any) -> GymConfig:
        return load_config(overrides, cwd=self.cwd, environ=self.environ, ports=ports or OfflinePorts(), **options)

    def merged(self, *trees: Mapping[str, Any], **options: Any) -> Mapping[str, Any]:
        """The merged config of some trees, the last one highest; interpolations unresolved."""
        names = []
        for number, tree in enumerate(trees):
            name = f"{number}.yaml"
            self.write({name: dict(tree)})
            names.append(name)
        return self.load({"config_paths": names}, **options).merged


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.cwd.mkdir()
    return found
