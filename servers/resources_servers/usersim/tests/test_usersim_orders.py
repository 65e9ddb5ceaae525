from __future__ import annotations

from typing import Any

import pytest
from usersim_orders import OrderBook, statuses

ORDERS = {"A": {"status": "processing", "item": "lamp"}, "B": {"status": "shipped", "item": "pan", "carrier": "P"}}


def call(name: str, call_id: str = "c") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def output(text: Any, call_id: str = "c") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_an_order_is_told_with_all_its_fields() -> None:
    assert OrderBook(ORDERS).look_up("B") == {"order_id": "B", "status": "shipped", "item": "pan", "carrier": "P"}
    assert OrderBook(ORDERS).look_up("C") == {"error": "there is no order C"}


def test_only_what_was_not_shipped_is_cancelled() -> None:
    book = OrderBook(ORDERS)
    assert book.cancel("A") == book.cancel("A") == {"order_id": "A", "status": "cancelled"}
    assert book.look_up("A")["status"] == "cancelled"
    assert "error" in book.cancel("B")
    assert book.look_up("B")["status"] == "shipped"
    assert book.cancel("C") == {"error": "there is no order C"}
    assert ORDERS["A"]["status"] == "processing"


CANCELLED = '{"order_id": "A", "status": "cancelled"}'


@pytest.mark.parametrize(
    ("items", "status"),
    [
        ([call("cancel_order"), output(CANCELLED)], "cancelled"),
        ([call("cancel_order")], "processing"),
        ([call("look_up_order"), output(CANCELLED)], "processing"),
        ([output(CANCELLED)], "processing"),
        ([call("cancel_order"), output("<html>")], "processing"),
        ([call("cancel_order"), output("[1]")], "processing"),
        ([call("cancel_order"), output([{"type": "input_text", "text": CANCELLED}])], "processing"),
        ([call("cancel_order"), output('{"order_id": "Z", "status": "cancelled"}')], "processing"),
        ([call("look_up_order"), output("{}"), call("cancel_order"), output(CANCELLED)], "cancelled"),
        ([call("cancel_order", "x"), call("look_up_order", "y"), output("{}", "y"), output(CANCELLED, "x")], "cancelled"),
    ],
)
def test_the_statuses_after_a_conversation(items: list[dict[str, Any]], status: str) -> None:
    assert statuses({"A": "processing"}, items) == {"A": status}
