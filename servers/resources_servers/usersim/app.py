"""Judges conversations with a simulated user, and has the tools of a shop for those that need some (docs/usersim.md)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from pydantic import BaseModel, Field
from task_data import Expected, Order, TaskData
from usersim_checks import components, reward
from usersim_orders import OrderBook
from usersim_transcript import Transcript

from gym_compose.serving import Call, HTTPError, ResourcesServer, ResourcesServerConfig, Verdict, VerifyRequest, tool


class OrderRequest(BaseModel):
    order_id: str


class HandOverRequest(BaseModel):
    reason: str = ""


class UserSimVerifyRequest(VerifyRequest):
    """The task's ``orders`` and ``expected``, and in ``response`` the whole conversation."""

    orders: dict[str, Order] = Field(default_factory=dict)
    expected: Expected

    def row_fields(self) -> dict[str, Any]:
        """Nothing of the task comes back: a record names its task, and the row of that id holds it."""
        return {}


class UserSimResourcesServer(ResourcesServer):
    """The verdict needs the conversation and the task, nothing of the session; the session keeps the orders that the tools work on."""

    config: ResourcesServerConfig
    seed_model = TaskData
    verify_model = UserSimVerifyRequest
    reverify_mode = "stateless"

    def setup(self) -> None:
        self._books: OrderedDict[str, OrderBook] = OrderedDict()

    async def seed(self, task: TaskData, call: Call) -> None:
        self._books[call.session_id] = OrderBook({name: order.model_dump() for name, order in task.orders.items()})
        while len(self._books) > self.settings.closed_sessions_kept:
            self._books.popitem(last=False)

    async def release(self, session_id: str) -> None:
        self._books.pop(session_id, None)

    def _book(self, call: Call) -> OrderBook:
        book = self._books.get(call.session_id)
        if book is None:
            raise HTTPError(409, "this session has no orders: it was not seeded, or is closed")
        return book

    @tool
    async def look_up_order(self, body: OrderRequest, call: Call) -> dict[str, Any]:
        """An order with all its fields."""
        return self._book(call).look_up(body.order_id)

    @tool
    async def cancel_order(self, body: OrderRequest, call: Call) -> dict[str, Any]:
        """Cancel an order that was not shipped yet."""
        return self._book(call).cancel(body.order_id)

    @tool
    async def hand_over(self, body: HandOverRequest, call: Call) -> dict[str, Any]:
        """Give the conversation to a human; a task's ``end_tools`` makes that its end."""
        self._book(call)
        return {"handed_over": True, "reason": body.reason}

    async def verify(self, body: UserSimVerifyRequest, call: Call) -> Verdict:  # noqa: ARG002 - the base's signature
        transcript = Transcript.of(body.response)
        parts = components(body.expected, {name: order.status for name, order in body.orders.items()}, transcript)
        failed = transcript.stop == "assistant_error"
        return Verdict(
            reward=reward(parts),
            failure_kind="agent_run_error" if failed else None,
            failure_reason=transcript.error if failed else None,
            details={
                "reward_components": parts,
                "stop_reason": transcript.stop,
                "turns": transcript.turns,
                "conversation": [message.as_json() for message in transcript.messages],
            },
        )


if __name__ == "__main__":
    UserSimResourcesServer.run_webserver()
