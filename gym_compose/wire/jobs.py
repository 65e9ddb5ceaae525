"""What a driver is asked beside a run: to aggregate shards of rollouts, to verify stored rollouts again. Its events are those of a run.

All paths are those of the process that does it (``project.jobs`` maps them for a container).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class AggregateJob(BaseModel):
    """``gym eval aggregate`` (contract-data 4.6)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Literal["aggregate"] = "aggregate"
    run_id: str
    head_url: str
    shards: tuple[str, ...]
    output_jsonl_fpath: str
    merge_shards: bool = True
    overwrite: bool = False
    count_failure_classes_as_zero: tuple[str, ...] = ()
    count_missing_rollouts_as_zero: bool = False


class ReverifyJob(BaseModel):
    """``gym eval reverify`` (contract-data 4.8)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Literal["reverify"] = "reverify"
    run_id: str
    head_url: str
    materialized_inputs_jsonl_fpath: str
    rollouts_jsonl_fpath: str
    output_jsonl_fpath: str
    num_samples_in_parallel: int | None = Field(default=None, ge=1)
    limit: int | None = Field(default=None, ge=1)
    force: bool = False
    overwrite: bool = False
    resume_from_cache: bool = False
    judge_failed_only: bool = False
    append: bool = False
    disable_aggregation: bool = False
    retry_terminal_timeouts: bool = False
    retry_invalid_judge_responses: bool = False
    strict_compatibility: bool = False
    """A failed ``/verify`` ends the job, as the peer's does; without it that rollout goes to the failures file."""


Job = AggregateJob | ReverifyJob
JOB: TypeAdapter[Job] = TypeAdapter(Annotated[Job, Field(discriminator="job")])
