"""Config blocks of the four server types (contract-servers 1.1, 2.1 to 2.4).

Unknown keys are ignored, as ``datasets`` and the parser's own keys stand in the same block; environment servers forbid them, so that a
misspelt limit does not pass for a limit.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gym_compose.wire.episodes import ToolAccess, unique_names
from gym_compose.wire.names import Domain, ServerType


class ServerReference(BaseModel):
    """``{type, name}``: another instance of the deployment. The client turns it into an address at call time."""

    model_config = ConfigDict(frozen=True)

    type: ServerType
    name: str = Field(min_length=1)


class ResourcesServerReference(ServerReference):
    type: Literal["resources_servers"]


class AgentServerReference(ServerReference):
    type: Literal["responses_api_agents"]


class ModelServerReference(ServerReference):
    type: Literal["responses_api_models"]


class EnvironmentServerReference(ServerReference):
    type: Literal["environment_servers"]


class ServerConfig(BaseModel):
    """What every block has. ``name`` is the instance (top-level key), put in by the process that reads the block."""

    model_config = ConfigDict(extra="ignore")

    name: str
    host: str
    port: int
    entrypoint: str
    num_workers: int | None = None
    domain: Domain | None = None


class ResourcesServerConfig(ServerConfig):
    expose_tools_over_mcp: bool = False


class ModelServerConfig(ServerConfig):
    token_id_capture_non_generating_requests: list[dict[str, str]] = Field(default_factory=list)


class AgentServerConfig(ServerConfig):
    session_close_retry_window_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    """How long the receipt of a closed session is kept for a caller that asks again."""
    skip_verification: bool = False
    skip_verification_reward: float = 0.0
    token_id_capture: bool = False
    tool_accesses: list[ToolAccess] = Field(default_factory=list)

    @field_validator("tool_accesses")
    @classmethod
    def _unique(cls, value: list[ToolAccess]) -> list[ToolAccess]:
        return unique_names(value)


class EnvironmentServerConfig(ServerConfig):
    """Limits of the episodes of one process. Seconds; ``None`` is no bound."""

    model_config = ConfigDict(extra="forbid")

    max_concurrent_episodes: int | None = Field(default=None, gt=0)
    queue_timeout_seconds: float | None = Field(default=None, gt=0)
    default_episode_timeout_seconds: float | None = Field(default=None, gt=0)
    cleanup_timeout_seconds: float = Field(gt=0)

    @model_validator(mode="after")
    def _queue_timeout(self) -> EnvironmentServerConfig:
        if self.max_concurrent_episodes is not None and self.queue_timeout_seconds is None:
            raise ValueError("max_concurrent_episodes needs queue_timeout_seconds: how long an episode may wait for a free slot")
        return self


def first_block(config: dict[str, Any], instance: str) -> tuple[str, str, dict[str, Any]] | None:
    """``(server type, implementation, block)`` of an instance in a merged config; None when there is no such server block.

    Position counts, not the type's name: first key under the instance, first key under that (contract-servers 1.1).
    """
    outer = config.get(instance)
    if not isinstance(outer, dict) or not outer:
        return None
    server_type, inner = next(iter(outer.items()))
    if not isinstance(inner, dict) or not inner:
        return None
    implementation, block = next(iter(inner.items()))
    if not isinstance(block, dict):
        return None
    return str(server_type), str(implementation), block
