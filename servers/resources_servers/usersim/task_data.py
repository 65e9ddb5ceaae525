"""What a task of a simulated conversation holds beside ``responses_create_params`` (contract-data 3.6; docs/usersim.md).

Loaded by path to check datasets, so it imports nothing but pydantic.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

StopReason = Literal["user_stop", "assistant_stop", "end_tool", "max_turns", "assistant_error"]
OrderStatus = Literal["processing", "shipped", "delivered", "cancelled"]


class User(BaseModel):
    """Who the user is: ``instructions`` for its model, and its first message where that is fixed."""

    model_config = ConfigDict(extra="forbid")

    instructions: str = Field(min_length=1)
    opening: str | None = Field(default=None, min_length=1)


class Order(BaseModel):
    """An order of the shop that the assistant works for. Further fields are told by ``look_up_order`` as they are."""

    model_config = ConfigDict(extra="allow")

    status: OrderStatus
    item: str


class Expected(BaseModel):
    """What is checked when the conversation is over. What is left out is not checked."""

    model_config = ConfigDict(extra="forbid")

    facts: list[str | list[str]] = Field(default_factory=list)
    """Each must stand in some message of the assistant; a list holds ways to say one."""
    forbidden: list[str] = Field(default_factory=list)
    """None of these may stand in a message of the assistant."""
    order_status: dict[str, OrderStatus] = Field(default_factory=dict)
    """Orders as the assistant's tools must leave them."""
    max_turns: int | None = Field(default=None, gt=0)
    """Turns that the conversation may take."""
    stop: tuple[StopReason, ...] = Field(default=("user_stop", "assistant_stop", "end_tool"), min_length=1)
    """Ends that count as an end; others give no reward."""

    @field_validator("facts", "forbidden")
    @classmethod
    def _something(cls, value: list[Any]) -> list[Any]:
        for entry in value:
            ways = entry if isinstance(entry, list) else [entry]
            if not ways or any(not way.strip() for way in ways):
                raise ValueError("a text to look for cannot be blank")
        return value


class TaskData(BaseModel):
    """One task. ``task_id`` names it within its taskset."""

    model_config = ConfigDict(extra="forbid")

    task_id: str | None = None
    user: User
    max_turns: int | None = Field(default=None, gt=0)
    assistant_stop_words: list[str] = Field(default_factory=list)
    end_tools: list[str] = Field(default_factory=list)
    role_request_params: dict[Literal["user", "assistant"], dict[str, Any]] = Field(default_factory=dict)
    orders: dict[str, Order] = Field(default_factory=dict)
    expected: Expected

    @model_validator(mode="after")
    def _known_orders(self) -> TaskData:
        unknown = sorted(self.expected.order_status.keys() - self.orders.keys())
        if unknown:
            raise ValueError(f"expected.order_status names orders that the task does not have: {', '.join(unknown)}")
        return self
