"""A rollout run as data: what the driver is asked (``request.json``) and what it tells (progress lines, one JSON document each)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

RUN_FORMAT = 1


class PromptTemplate(BaseModel):
    """A prompt file as data. ``path`` only names it in messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str
    system: str | None = None
    path: str = ""


class RunRequest(BaseModel):
    """One run. Paths are those of the process that runs the driver (the CLI maps them for a container)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = RUN_FORMAT
    run_id: str
    head_url: str
    input_jsonl_fpath: str
    output_jsonl_fpath: str
    agent_name: str | None = None
    environment_routing_mode: Literal["agent", "legacy", "taskset"] = "agent"
    environment_server_name: str | None = None
    environment_server_routes: dict[str, str] | None = None
    """None: as the head server's config says."""
    limit: int | None = None
    num_repeats: int | dict[str, int] = 1
    num_repeats_add_seed: bool = False
    interleave_repeats: bool = False
    num_samples_in_parallel: int | None = Field(default=None, gt=0)
    responses_create_params: dict[str, Any] = Field(default_factory=dict)
    disable_aggregation: bool = False
    overwrite: bool = False
    agent_map: dict[str, str] = Field(default_factory=dict)
    fan_out: dict[str, list[str]] = Field(default_factory=dict)
    prompt: PromptTemplate | None = None
    """The content of ``prompt_config``: whoever makes the request reads the file, which a driver's container does not see."""
    skills_ref: dict[str, Any] | None = None
    """What is stamped on flat rows for ``skills`` (tasks.skills makes it)."""
    max_resident_rollout_tasks: int | None = Field(default=None, ge=1)
    dispatch_budget_s: float | None = Field(default=None, ge=0)
    drain_margin_s: float | None = Field(default=None, ge=0)
    dispatch_longest_first: bool = False
    rollout_timeout_s: float | None = Field(default=None, gt=0)
    max_failures: int | float | None = Field(default=None, ge=0)
    """An int: so many failed rollouts; a float below 1: that share of those requested. One more ends the run. None: never."""
    on_server_death: Literal["fail", "wait"] = "fail"
    resume_from_cache: bool = False
    resume_anyway: bool = False
    """Resume although input or config changed."""
    retry_terminal_timeouts: bool = False
    retry_invalid_judge_responses: bool = False
    route_failures_to_sidecar: bool = False
    """Only read with ``strict_compatibility``: without it failures always go there."""
    count_failure_classes_as_zero: list[str] = Field(default_factory=list)
    count_missing_rollouts_as_zero: bool = False
    retain_results_in_memory: bool = True
    """Only for library callers: the driver itself holds no results."""
    strict_compatibility: bool = False
    """The peer's behaviour wherever docs/differences.md names one of ours (config key ``compose: {strict: true}``)."""


class RunCounts(BaseModel):
    """completed + failed + unresolved = requested, always."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requested: int
    completed: int = 0
    failed: int = 0
    unresolved: int = 0


class RunProgress(BaseModel):
    """A line while the run goes on. Rates are rollouts per second since the first request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: Literal["progress"] = "progress"
    counts: RunCounts
    in_flight: int
    elapsed_seconds: float
    rate: float
    eta_seconds: float | None = None
    mean_reward: float | None = None
    failures: dict[str, int] = Field(default_factory=dict)


class RunWarning(BaseModel):
    """Something to tell; a ``note`` is nothing to worry about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: Literal["warning"] = "warning"
    text: str
    level: Literal["warning", "note"] = "warning"


class GroupSummary(BaseModel):
    """One row of the table at the end: an environment server, taskset or agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    environment_server: str
    taskset: str | None = None
    agent: str | None = None
    rollouts: int
    failed: int
    mean_reward: float | None = None


class LatencySummary(BaseModel):
    """How long the rollouts of a run took, in seconds (quantiles to 1 %), and all together in hours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    p50: float
    p90: float
    p99: float
    longest: float
    rollout_hours: float


class RunSummary(BaseModel):
    """The last line of a run, and ``<stem>_summary.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: Literal["finished"] = "finished"
    run_id: str
    counts: RunCounts
    elapsed_seconds: float
    rate: float
    mean_reward: float | None = None
    failures: dict[str, int] = Field(default_factory=dict)
    unresolved: dict[str, int] = Field(default_factory=dict)
    """Why rows have no answer, and how many: ``not_persisted`` (their server asked for that), ``cancelled`` in flight, and not started:
    ``dispatch_budget``, ``interrupted``, ``run_ended`` (by ``error``)."""
    latency: LatencySummary | None = None
    groups: tuple[GroupSummary, ...] = ()
    files: dict[str, str] = Field(default_factory=dict)
    """kind (rollouts, failures, materialized_inputs, aggregate_metrics, summary) to path, of the process that ran the driver."""
    interrupted: bool = False
    error: str | None = None
    exit_code: int = 0
    """0 also for a run with failed rollouts; of the error's class with ``error``; 130 when interrupted."""


class RunFailed(BaseModel):
    """The run could not start or had to end; ``exit_code`` is that of the error class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: Literal["error"] = "error"
    message: str
    hint: str | None = None
    exit_code: int = 1
