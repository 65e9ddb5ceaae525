"""What the controller is told when it starts, and what it says of the instances (contract-config 3.3)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gym_compose.wire.slice import SecretValue

HEAD_FORMAT = 1


class Listen(BaseModel):
    """An address to bind. Port 0 lets the system choose (tests)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: int


class InstanceRecord(BaseModel):
    """One element of ``/server_instances``; keys and order as the peer's.

    ``host``, ``port`` and ``url`` are null where the address does not work for whoever asks (the published listener, servers that are
    not published). ``status`` is null, or ``unreachable``; then ``unreachable_since`` (epoch seconds) stands in the answer too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    config_path: str
    dir_path: str
    entrypoint: str
    host: str | None
    name: str
    pid: int | None
    port: int | None
    process_name: str
    server_type: str
    start_time: float | None = None
    status: str | None = None
    uptime_seconds: float | None = None
    url: str | None = None
    unreachable_since: float | None = None


class ModelEndpoint(BaseModel):
    """A model endpoint to wait for. ``url`` is the address to probe, without credentials or query; ``key`` names its config field."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    key: str


class HeadDocument(BaseModel):
    """The controller's input file (public). ``config`` has secrets masked and addresses that work inside the network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = HEAD_FORMAT
    gym_compose: str
    project: str
    engine: str
    config: dict[str, Any]
    instances: tuple[InstanceRecord, ...]
    endpoints: tuple[ModelEndpoint, ...] = ()
    server_spinup_timeout_seconds: float
    """0 or less: no bound."""
    model_endpoint_readiness_timeout_seconds: float
    """0 or less: endpoints are not waited for."""
    listen: Listen
    """Where the servers and the driver ask."""
    listen_published: Listen | None = None
    """The second listener, whose answers hold addresses that work from the host; None in the process engine (one view is both)."""
    published_file: str | None = None
    """JSON ``{instance: "host:port"}`` of what is published on the host, written after start by the CLI; read on each request."""


class HeadSecret(BaseModel):
    """Values to put back into ``config`` for the inner listener; only under ``compose: {head_secrets: true}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = HEAD_FORMAT
    values: tuple[SecretValue, ...] = ()


class DeploymentIdentity(BaseModel):
    """``GET /gym_compose`` on either listener: how a driver learns whose head it talks to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gym_compose: str
    project: str
    engine: str


class InstanceHealth(BaseModel):
    """One server or endpoint in the body of ``/health`` (503 names who is missing)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str = Field(description="server | model_endpoint")
    state: str = Field(description="waiting | ready | unreachable | skipped")
    url: str
    since: float | None = None
    """Epoch seconds since when it is in this state."""
    detail: str | None = None


class HealthReport(BaseModel):
    """Body of ``/health``, ``/readyz`` and ``/healthz``; ``status`` is the contract's: starting | ok | failed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: str
    phase: str = Field(description="servers | model_endpoints | ready | failed")
    elapsed_seconds: float
    waiting: tuple[InstanceHealth, ...] = ()
    unreachable: tuple[InstanceHealth, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    """Set when a phase ran out of its time: names who never answered."""
    answered: dict[str, float] = Field(default_factory=dict)
    """Instance to epoch seconds of its last answer. ``ok`` is about the start of the head; a server that was made anew under a head that
    kept running is up when it answered after that."""
