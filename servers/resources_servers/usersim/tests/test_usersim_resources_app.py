from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import orjson
import pytest
from pydantic import ValidationError

DIRECTORY = "resources_servers/usersim"
DATA = Path(__file__).resolve().parents[1] / "data"
EPISODE = {"rollout_id": "0-0", "attempt": 0}
TASK: dict[str, Any] = {
    "user": {"instructions": "be Ann"},
    "orders": {"A": {"status": "processing", "item": "lamp"}},
    "expected": {"facts": ["lamp"], "order_status": {"A": "cancelled"}},
}


@pytest.fixture
def server(serve: Any) -> httpx.AsyncClient:
    client: httpx.AsyncClient = serve(DIRECTORY, "UserSimResourcesServer", {"domain": "agent"}, instance="usersim")
    return client


@pytest.fixture
def read(load_app: Callable[[str], ModuleType]) -> Callable[[dict[str, Any]], Any]:
    return lambda row: load_app(DIRECTORY).TaskData.model_validate(row)


async def seed(server: httpx.AsyncClient, task: dict[str, Any] = TASK, session: str = "s") -> httpx.Response:
    task_id = {"taskset": "usersim:orders", "task_id": "0"}
    body = {"resources_session_id": session, "episode_id": EPISODE, "task_id": task_id, "task_data": task}
    return await server.post("/seed_session", json=body)


async def ask(server: httpx.AsyncClient, tool: str, **arguments: str) -> Any:
    return (await server.post(f"/{tool}", json=arguments)).json()


async def test_tools_work_on_the_orders_of_their_session(server: httpx.AsyncClient) -> None:
    await seed(server)
    assert await ask(server, "look_up_order", order_id="A") == {"order_id": "A", "status": "processing", "item": "lamp"}
    assert await ask(server, "cancel_order", order_id="A") == {"order_id": "A", "status": "cancelled"}
    assert (await ask(server, "look_up_order", order_id="A"))["status"] == "cancelled"
    assert await ask(server, "hand_over", reason="r") == {"handed_over": True, "reason": "r"}
    server.cookies.clear()
    await seed(server, session="other")
    assert (await ask(server, "look_up_order", order_id="A"))["status"] == "processing"


@pytest.mark.parametrize("tool", ["look_up_order", "cancel_order", "hand_over"])
async def test_a_closed_or_unknown_session_has_no_tools(server: httpx.AsyncClient, tool: str) -> None:
    assert (await server.post(f"/{tool}", json={"order_id": "A"})).status_code == 409
    await seed(server)
    assert (await server.post(f"/{tool}", json={"order_id": "A"})).status_code == 200
    await server.post("/close_session", json={"resources_session_id": "s", "episode_id": EPISODE})
    assert (await server.post(f"/{tool}", json={"order_id": "A"})).status_code == 409


def _verify(stop: str = "user_stop", text: str = "Your lamp.", cancelled: bool = True, **metadata: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "hello"}]
    if cancelled:
        output.append({"type": "function_call", "call_id": "c", "name": "cancel_order", "arguments": '{"order_id": "A"}'})
        output.append({"type": "function_call_output", "call_id": "c", "output": '{"order_id": "A", "status": "cancelled"}'})
    output.append({"type": "message", "role": "assistant", "content": text})
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": output,
        "metadata": {"usersim_stop": stop, **metadata},
    }
    return {**TASK, "responses_create_params": {"input": []}, "response": response}


async def test_the_verdict_needs_no_session(server: httpx.AsyncClient) -> None:
    assert (await server.get("/reverify_mode")).json() == "stateless"
    verdict = (await server.post("/verify", json=_verify())).json()
    assert list(verdict) == [
        "responses_create_params",
        "response",
        "reward",
        "mask_sample",
        "failure_kind",
        "failure_reason",
        "reward_components",
        "stop_reason",
        "turns",
        "conversation",
    ]
    assert (verdict["reward"], verdict["turns"], verdict["stop_reason"]) == (1.0, 1, "user_stop")
    assert verdict["reward_components"] == {"finished": 1.0, "facts": 1.0, "orders": 1.0}
    assert verdict["conversation"][1] == {"turn": 1, "role": "assistant", "text": "Your lamp.", "tools": ["cancel_order"]}


@pytest.mark.parametrize(
    ("changes", "reward"),
    [({"cancelled": False}, 0.0), ({"text": "Done."}, 0.0), ({"stop": "max_turns"}, 0.0), ({"stop": "end_tool"}, 1.0)],
)
async def test_what_takes_the_reward(server: httpx.AsyncClient, changes: dict[str, Any], reward: float) -> None:
    assert (await server.post("/verify", json=_verify(**changes))).json()["reward"] == reward


async def test_a_failed_assistant_is_told_and_not_masked(server: httpx.AsyncClient) -> None:
    verdict = (await server.post("/verify", json=_verify("assistant_error", usersim_error="said nothing"))).json()
    assert (verdict["reward"], verdict["mask_sample"]) == (0.0, False)
    assert (verdict["failure_kind"], verdict["failure_reason"]) == ("agent_run_error", "said nothing")


async def test_a_seed_is_checked_by_the_schema(server: httpx.AsyncClient) -> None:
    answer = await seed(server, {**TASK, "mood": "bad"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][-1] == "mood"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"expected": {"order_status": {"B": "shipped"}}}, "orders that the task does not have: B"),
        ({"expected": {"facts": [[]]}}, "blank"),
        ({"expected": {"forbidden": [" "]}}, "blank"),
        ({"expected": {"stop": []}}, "stop"),
        ({"expected": {"order_status": {"A": "lost"}}}, "order_status"),
        ({"role_request_params": {"judge": {}}}, "judge"),
        ({"user": {"instructions": ""}}, "instructions"),
    ],
)
def test_a_task_that_cannot_be_judged_is_refused(read: Any, change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        read({**TASK, **change})


@pytest.mark.parametrize("name", ["orders", "bookings"])
def test_the_example_rows_fit_the_schema_and_have_ids_of_their_own(read: Any, name: str) -> None:
    rows = [orjson.loads(line) for line in (DATA / f"example_{name}.jsonl").read_bytes().splitlines()]
    for row in rows:
        params = row.pop("responses_create_params")
        assert [item["role"] for item in params["input"]] == ["system"]
        read(row)
    ids = [row["task_id"] for row in rows]
    assert len(set(ids)) == len(ids) == 3
