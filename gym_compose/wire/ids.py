"""Identities of the episode protocol (contract-data 1.9)."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator

ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED_SUFFIX = re.compile(r"-a[1-9][0-9]*\Z")


class EpisodeId(BaseModel):
    """One attempt at one rollout. ``capture_key`` is how it is known in paths (``/ng-rollout/<capture key>/…``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout_id: str = Field(min_length=1)
    attempt: int = Field(default=0, ge=0, strict=True)

    @field_validator("rollout_id")
    @classmethod
    def _well_formed(cls, value: str) -> str:
        if not ROLLOUT_ID.fullmatch(value):
            raise ValueError("a rollout id starts with a letter or digit and holds letters, digits, '.', '_' and '-' only")
        if _RESERVED_SUFFIX.search(value):
            raise ValueError("a rollout id must not end in '-a<number>': that suffix marks an attempt")
        return value

    @property
    def capture_key(self) -> str:
        return self.rollout_id if self.attempt == 0 else f"{self.rollout_id}-a{self.attempt}"


class TaskId(BaseModel):
    """A task within its taskset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    taskset: str = Field(min_length=1)
    task_id: str = Field(min_length=1)
