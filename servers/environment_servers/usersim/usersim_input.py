"""The task input of a simulated conversation: the assistant's params, who the user is, and when the two are done (docs/usersim.md)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from gym_compose.serving import TurnInput
from gym_compose.wire.responses import ResponsesCreateParams

Role = Literal["user", "assistant"]

_MADE_HERE = ("input", "instructions", "tools", "stream")
"""Params that the conversation itself makes, or that stand in the row's ``responses_create_params``."""
_BEFORE = frozenset({"system", "developer"})


class SimulatedUser(BaseModel):
    """Who the user is. ``opening`` is the first message where it is fixed; without one the user's model makes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: str = Field(min_length=1)
    opening: str | None = Field(default=None, min_length=1)


class ConversationPlan(BaseModel):
    """What the environment server reads of ``task_data``; the rest is the resources server's.

    ``role_request_params`` are Responses params by role, over those of the row (contract-data 2.8).
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    user: SimulatedUser
    max_turns: int | None = Field(default=None, gt=0)
    assistant_stop_words: tuple[str, ...] = ()
    end_tools: tuple[str, ...] = ()
    role_request_params: dict[Role, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("assistant_stop_words")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return non_empty_words(value)

    @field_validator("role_request_params")
    @classmethod
    def _known_params(cls, value: dict[Role, dict[str, Any]]) -> dict[Role, dict[str, Any]]:
        for role, params in value.items():
            for name in _MADE_HERE:
                if name in params:
                    raise ValueError(f"{role}.{name} cannot be set here")
            try:
                ResponsesCreateParams.model_validate({"input": "", **params})
            except ValidationError as error:
                raise ValueError(f"{role}.{_first(error)}") from None
        return value


def non_empty_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """``words`` unchanged. Raises ValueError for a stop word of blanks, which every message would hold."""
    if any(not word.strip() for word in words):
        raise ValueError("a stop word is a text that is not blank")
    return words


class UserSimInput(TurnInput):
    """``responses_create_params`` are the assistant's: ``input`` holds its system or developer messages and nothing that anybody said."""

    _plan: ConversationPlan = PrivateAttr()

    @property
    def plan(self) -> ConversationPlan:
        return self._plan

    @model_validator(mode="after")
    def _planned(self) -> UserSimInput:
        try:
            self._plan = ConversationPlan.model_validate(self.task_data)
        except ValidationError as error:
            raise ValueError(f"task_data.{_first(error)}") from None
        if isinstance(self.responses_create_params.input, str):
            raise ValueError("responses_create_params.input is a list of system and developer messages; the user's first is user.opening")
        for number, item in enumerate(self.responses_create_params.input):
            if item.get("type", "message") != "message" or item.get("role") not in _BEFORE:
                raise ValueError(
                    f"responses_create_params.input.{number} is no system or developer message; the user's first is user.opening"
                )
        return self


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
