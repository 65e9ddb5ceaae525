"""The orders of one session, and what the assistant's tools do with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

CANCEL = "cancel_order"


class OrderBook:
    """Orders by id. Answers are for a model to read, errors too."""

    def __init__(self, orders: Mapping[str, Mapping[str, Any]]) -> None:
        self._orders = {order_id: dict(order) for order_id, order in orders.items()}

    def look_up(self, order_id: str) -> dict[str, Any]:
        order = self._orders.get(order_id)
        return {"error": f"there is no order {order_id}"} if order is None else {"order_id": order_id, **order}

    def cancel(self, order_id: str) -> dict[str, Any]:
        """An order can be cancelled until it is shipped."""
        order = self._orders.get(order_id)
        if order is None:
            return {"error": f"there is no order {order_id}"}
        if order["status"] not in ("processing", "cancelled"):
            return {"order_id": order_id, "status": order["status"], "error": "an order that was shipped cannot be cancelled"}
        order["status"] = "cancelled"
        return {"order_id": order_id, "status": "cancelled"}


def statuses(orders: Mapping[str, str], output: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Statuses by order once the calls of a conversation were made: ``orders`` at its begin, changed by what ``cancel_order`` answered.

    Calls without an answer changed nothing. Call ids may come again in a later turn, so an answer belongs to the last call of its id.
    """
    after = dict(orders)
    names: dict[str, str] = {}
    for item in output:
        if item["type"] == "function_call":
            names[item["call_id"]] = item["name"]
        elif item["type"] == "function_call_output" and names.get(item["call_id"]) == CANCEL:
            answer = _object(item["output"])
            if answer.get("order_id") in after and isinstance(answer.get("status"), str):
                after[answer["order_id"]] = answer["status"]
    return after


def _object(text: Any) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return {}  # an error page or a refused body: whatever it says, it changed no order
    return value if isinstance(value, dict) else {}
