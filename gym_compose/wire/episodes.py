"""Bodies of the episode protocol: ``/run`` of an environment server and the session calls behind it (contract-data 2.2, 2.5, 2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from gym_compose.wire.failures import FAILURE_REASON_LIMIT, FailureStage, check_failure_kind
from gym_compose.wire.ids import EpisodeId, TaskId

InputT = TypeVar("InputT")

_FORBID = ConfigDict(extra="forbid")
_ACCESS_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class MaterializedTask(BaseModel, Generic[InputT]):
    """A task with its identity; the type of ``task_input`` is the environment server's."""

    model_config = _FORBID

    task_id: TaskId
    task_input: InputT


class EpisodeRequest(BaseModel, Generic[InputT]):
    """Body of ``POST /run``."""

    model_config = _FORBID

    episode_id: EpisodeId
    task: MaterializedTask[InputT]


class EpisodeFailure(BaseModel):
    """Why an episode has no result. ``terminal``: it must not be tried again. Kind and stage are left out of the JSON when unset."""

    model_config = _FORBID

    failure_reason: str = Field(max_length=FAILURE_REASON_LIMIT)
    terminal: bool
    failure_kind: str | None = None
    stage: FailureStage | None = None

    @field_validator("failure_kind")
    @classmethod
    def _known_kind(cls, value: str | None) -> str | None:
        return check_failure_kind(value)

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {key: value for key, value in fields.items() if value is not None or key not in ("failure_kind", "stage")}


class SingleAgentTurnFailure(EpisodeFailure):
    """A failure of ``single_agent_turn``; ``partial_response`` is the agent's answer when there was one."""

    partial_response: dict[str, Any] | None = None


class EpisodeResponse(BaseModel):
    """Answer of ``POST /run``: exactly one of ``result`` and ``failure``."""

    model_config = _FORBID

    episode_id: EpisodeId
    task_id: TaskId
    result: dict[str, Any] | None = None
    failure: SingleAgentTurnFailure | EpisodeFailure | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> EpisodeResponse:
        if (self.result is None) == (self.failure is None):
            raise ValueError("exactly one of result and failure must be set")
        return self


class DirectHTTPToolAccess(BaseModel):
    """A grant: tools are called at ``base_url``/<tool> with these cookies and headers. The URL must work from the agent's container."""

    model_config = _FORBID

    kind: Literal["direct_http"] = "direct_http"
    name: str = Field(min_length=1, pattern=_ACCESS_NAME)
    required: bool
    base_url: AnyHttpUrl
    cookies: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)


class MCPConnection(BaseModel):
    model_config = _FORBID

    transport: Literal["streamable_http"] = "streamable_http"
    url: AnyHttpUrl
    headers: dict[str, str] = Field(default_factory=dict)


class MCPToolAccess(BaseModel):
    """A grant: tools behind an MCP endpoint."""

    model_config = _FORBID

    kind: Literal["mcp"] = "mcp"
    name: str = Field(min_length=1, pattern=_ACCESS_NAME)
    required: bool
    connection: MCPConnection


ToolAccess = Annotated[DirectHTTPToolAccess | MCPToolAccess, Field(discriminator="kind")]


def unique_names(accesses: list[ToolAccess]) -> list[ToolAccess]:
    """``accesses`` unchanged. Raises ValueError when two grants have one name."""
    names = [access.name for access in accesses]
    if len(set(names)) != len(names):
        raise ValueError("two tool accesses have the same name")
    return accesses


def overlay(configured: Sequence[ToolAccess], granted: Sequence[ToolAccess]) -> list[ToolAccess]:
    """The accesses of a session: those of the config, replaced or extended by name by those of the seed."""
    merged: dict[str, ToolAccess] = {access.name: access for access in configured}
    merged.update((access.name, access) for access in granted)
    return list(merged.values())


class SandboxConnection(BaseModel):
    model_config = _FORBID

    kind: Literal["direct"] = "direct"
    provider_config_ref: str
    descriptor: dict[str, Any]


class SandboxAccess(BaseModel):
    model_config = _FORBID

    connection: SandboxConnection
    workdir: str


class MCPServerMetadata(BaseModel):
    """How a resources server says where its MCP endpoint is."""

    server_name: str
    url_path: str = "/mcp"
    transport: str = "http"
    headers: dict[str, str]


class ResourcesSeedRequest(BaseModel):
    """Typed body of a resources server's ``/seed_session``. The caller chooses the id, so that it can close what it never heard back of."""

    model_config = _FORBID

    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, Any]


class ResourcesSeedResponse(BaseModel):
    model_config = _FORBID

    resources_session_id: str
    resources_tools: MCPServerMetadata | None = None
    sandbox_access: SandboxAccess | None = None


class ResourcesCloseRequest(BaseModel):
    model_config = _FORBID

    resources_session_id: str
    episode_id: EpisodeId


class ResourcesCloseResponse(BaseModel):
    model_config = _FORBID

    resources_session_id: str


class AgentSeedRequest(BaseModel):
    """Body of an agent's ``/v1/agent_sessions``. The same body again is the same session."""

    model_config = _FORBID

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: list[ToolAccess] = Field(default_factory=list)
    sandbox_access: SandboxAccess | None = None

    @field_validator("tool_accesses")
    @classmethod
    def _unique(cls, value: list[ToolAccess]) -> list[ToolAccess]:
        return unique_names(value)


class AgentSeedResponse(BaseModel):
    model_config = _FORBID

    agent_session_id: str


class AgentCloseRequest(BaseModel):
    model_config = _FORBID

    agent_session_id: str
    episode_id: EpisodeId


class AgentCloseResponse(BaseModel):
    """The receipt of a closed agent session. ``resources_cookies``, when not null, replace the caller's cookies of the resources server."""

    model_config = _FORBID

    agent_session_id: str
    agent_observations: dict[str, Any] | None = None
    resources_cookies: dict[str, str] | None = None


class AggregateRequest(BaseModel):
    """Body of ``/aggregate_metrics``: verify answers without their texts."""

    verify_responses: list[dict[str, Any]]
