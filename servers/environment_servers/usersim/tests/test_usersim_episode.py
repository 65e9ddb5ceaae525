"""Whole episodes: two agents, two models, tools and verdict, with a fault of any kind at each place (contract-data 2.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import orjson
import pytest

from gym_compose.serving import Call, Endpoint, HTTPError, Server, ServerConfig

DATA = Path(__file__).resolve().parents[3] / "resources_servers" / "usersim" / "data"
SESSION = "/v1/agent_sessions"
CLOSE = "/v1/agent_sessions/close"
RESPONSES = "/ng-rollout/0-0/v1/responses"


def rows(name: str) -> dict[str, dict[str, Any]]:
    found = [orjson.loads(line) for line in (DATA / f"example_{name}.jsonl").read_bytes().splitlines()]
    return {row["task_id"]: row for row in found}


ORDERS, BOOKINGS = rows("orders"), rows("bookings")
LAMP = ORDERS["late-lamp"]

# What the scripts of the examples come to. Two are meant to fail: an allergy that is not repeated, a user who is not helped.
EXPECTED = {
    "late-lamp": (1.0, "user_stop", 2),
    "cancel-kettle": (1.0, "user_stop", 2),
    "too-late": (1.0, "end_tool", 2),
    "four-on-friday": (1.0, "user_stop", 3),
    "peanuts": (0.8, "user_stop", 3),
    "closed-on-monday": (0.0, "max_turns", 3),
}


class StubAgent(Server):
    """An agent whose turns are scripted by the test: a text, a status, an exception to answer with, or a wait without end."""

    sessions: ClassVar[bool] = False
    config: ServerConfig
    turns: ClassVar[list[Any]]
    close_status: ClassVar[int] = 200
    cookie: ClassVar[bool] = True

    def setup(self) -> None:
        self.left = list(self.turns)
        self.asked: list[dict[str, Any]] = []
        self.hung_up = 0

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", SESSION, self.begin),
            Endpoint("POST", CLOSE, self.close),
            Endpoint("POST", "/ng-rollout/{rollout}/v1/responses", self.answer),
        ]

    async def begin(self, body: dict[str, Any], call: Call) -> dict[str, Any]:
        if self.cookie:
            call.set_cookie("A", body["agent_session_id"])
        return {"agent_session_id": body["agent_session_id"]}

    async def close(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.close_status != 200:
            raise HTTPError(self.close_status, "cannot close")
        return {"agent_session_id": body["agent_session_id"], "agent_observations": {"seen": len(self.asked)}}

    async def answer(self, body: dict[str, Any], rollout: str) -> dict[str, Any]:  # noqa: ARG002 - a part of the path
        self.asked.append(body)
        turn = self.left.pop(0)
        if turn is None:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                self.hung_up += 1
                raise
        if isinstance(turn, int):
            raise HTTPError(turn, "no")
        content = [{"type": "output_text", "text": turn, "annotations": []}]
        output = [{"type": "message", "role": "assistant", "id": "m", "content": content, "status": "completed"}] if turn else []
        return {
            "id": f"r{len(self.asked)}",
            "created_at": 0,
            "model": "stub",
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "completed",
        }


def agent(*turns: Any, **fields: Any) -> type[StubAgent]:
    return type("Stub", (StubAgent,), {"turns": list(turns), **fields})


def counts(chain: Any, instance: str) -> dict[str, int]:
    paths = chain.paths(instance)
    return {path: paths.count(path) for path in dict.fromkeys(paths)}


def assert_released(chain: Any) -> None:
    """Both agents and the resources server were closed, and none holds a session."""
    for instance in ("usersim_user", "usersim_assistant"):
        assert chain.paths(instance).count(CLOSE) >= 1, chain.calls
        records = getattr(chain.servers[instance], "_records", {})
        assert [record for record in records.values() if record.session is not None] == []
    assert chain.paths("usersim").count("/close_session") == 1
    assert chain.servers["usersim"]._bound == {}
    assert chain.servers["usersim"]._books == {}


@pytest.mark.parametrize(("name", "row"), [*ORDERS.items(), *BOOKINGS.items()])
async def test_an_example_task_comes_to_its_end(chain: Any, name: str, row: dict[str, Any]) -> None:
    made = await chain()
    result = (await made.run(row))["result"]
    reward, stop, turns = EXPECTED[name]
    assert (result["reward"], result["stop_reason"], result["turns"]) == (reward, stop, turns), result["reward_components"]
    assert (result["mask_sample"], result["failure_kind"], result["failure_reason"]) == (False, None, None)
    assert "agent_ref" not in result
    assert_released(made)


async def test_the_calls_and_their_order(chain: Any) -> None:
    made = await chain()
    await made.run(LAMP)
    order = [(name, path) for name, path in made.calls if name.startswith("usersim") and name != "usersim_environment"]
    assert order == [
        ("usersim", "/seed_session"),
        ("usersim_user", SESSION),
        ("usersim_assistant", SESSION),
        ("usersim_user", RESPONSES),
        ("usersim_assistant", RESPONSES),
        ("usersim_user", RESPONSES),
        ("usersim_assistant", RESPONSES),
        ("usersim", "/look_up_order"),
        ("usersim_user", RESPONSES),
        ("usersim_assistant", CLOSE),
        ("usersim_user", CLOSE),
        ("usersim", "/verify"),
        ("usersim", "/close_session"),
    ]


async def test_the_record_tells_the_conversation_and_who_was_asked(chain: Any) -> None:
    result = (await (await chain()).run(LAMP))["result"]
    assert result["conversation"] == [
        {"turn": 1, "role": "user", "text": "Hello, when will my lamp arrive, and who brings it?"},
        {"turn": 1, "role": "assistant", "text": "Happy to look. What is your order number?"},
        {"turn": 2, "role": "user", "text": "It is A-1001."},
        {
            "turn": 2,
            "role": "assistant",
            "text": "Your reading lamp comes with Parcelino on 14 March.",
            "tools": ["look_up_order"],
        },
        {"turn": 3, "role": "user", "text": "Thank you!"},
    ]
    assert result["reward_components"] == {"finished": 1.0, "facts": 1.0, "orders": 1.0, "turns": 1.0}
    made = [(call["role"], call["turn"]) for call in result["invocations"]]
    assert made == [("user", 1), ("assistant", 1), ("user", 2), ("assistant", 2), ("user", 3)]
    response = result["response"]
    assert [(item["type"], item.get("role")) for item in response["output"]] == [
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
        ("function_call", None),
        ("function_call_output", None),
        ("message", "assistant"),
        ("message", "user"),
    ]
    assert response["metadata"]["usersim_stop"] == "user_stop"
    assistant = [call["usage"]["total_tokens"] for call in result["invocations"] if call["role"] == "assistant"]
    assert response["usage"]["total_tokens"] == sum(assistant) > 0


async def test_each_sees_the_other_as_its_user_and_gets_its_own_params(chain: Any) -> None:
    made = await chain(
        usersim_user=agent("How are you?", "Fine too. ###STOP###"),
        usersim_assistant=agent("Fine, and you?"),
    )
    row = {**LAMP, "role_request_params": {"user": {"temperature": 0.9}, "assistant": {"max_output_tokens": 7}}}
    assert (await made.run(row))["failure"] is None
    first, second = made.servers["usersim_user"].asked
    system = {"type": "message", "role": "system", "content": row["user"]["instructions"]}
    opening = made.servers["usersim_environment"].config.opening_prompt
    assert first == {"temperature": 0.9, "input": [system, {"type": "message", "role": "user", "content": opening}]}
    assert second["input"][2:] == [
        {"type": "message", "role": "assistant", "content": "How are you?"},
        {"type": "message", "role": "user", "content": "Fine, and you?"},
    ]
    (asked,) = made.servers["usersim_assistant"].asked
    params = LAMP["responses_create_params"]
    assert asked["input"] == [*params["input"], {"type": "message", "role": "user", "content": "How are you?"}]
    assert (asked["max_output_tokens"], [tool["name"] for tool in asked["tools"]]) == (7, [tool["name"] for tool in params["tools"]])


@pytest.mark.parametrize(("own", "of_task", "expected"), [(2, None, 2), (10, 1, 1), (1, 5, 1)])
async def test_the_lower_of_both_turn_limits_ends_it(chain: Any, own: int, of_task: int | None, expected: int) -> None:
    made = await chain(usersim_environment={"max_turns": own}, usersim_user=agent(*["more"] * 9), usersim_assistant=agent(*["no"] * 9))
    row = LAMP if of_task is None else {**LAMP, "max_turns": of_task}
    result = (await made.run(row))["result"]
    assert (result["turns"], result["stop_reason"], result["reward"]) == (expected, "max_turns", 0.0)
    assert len(made.servers["usersim_user"].asked) == len(made.servers["usersim_assistant"].asked) == expected


async def test_a_stop_word_of_the_assistant_ends_it(chain: Any) -> None:
    made = await chain(usersim_user=agent("hello"), usersim_assistant=agent("Parcelino, 14 March. GOODBYE"))
    result = (await made.run({**LAMP, "assistant_stop_words": ["GOODBYE"]}))["result"]
    assert (result["stop_reason"], result["turns"], result["reward"]) == ("assistant_stop", 1, 1.0)


@pytest.mark.parametrize(("turn", "text"), [(400, "answered 400"), (422, "answered 422"), ("", "said nothing in turn 2")])
async def test_a_fault_of_the_assistant_is_judged_as_its_own(chain: Any, turn: Any, text: str) -> None:
    made = await chain(usersim_user=agent("a", "b"), usersim_assistant=agent("14 March with Parcelino", turn))
    result = (await made.run(LAMP))["result"]
    assert (result["reward"], result["mask_sample"], result["stop_reason"]) == (0.0, False, "assistant_error")
    assert result["failure_kind"] == "agent_run_error"
    assert text in result["failure_reason"]
    assert result["reward_components"]["facts"] == 1.0
    assert_released(made)


async def test_an_assistant_that_never_answers_a_question_has_a_record_too(chain: Any) -> None:
    made = await chain(usersim_user=agent("a"), usersim_assistant=agent(422))
    result = (await made.run(LAMP))["result"]
    assert (result["reward"], result["turns"], result["response"]["id"]) == (0.0, 0, "usersim-0-0")
    assert result["conversation"] == [{"turn": 1, "role": "user", "text": "a"}]


@pytest.mark.parametrize(
    ("who", "turn", "terminal", "kind"),
    [
        ("assistant", 500, False, None),
        ("assistant", 429, False, None),
        ("assistant", 409, False, "session_lost"),
        ("assistant", 404, False, "session_lost"),
        ("user", 500, False, None),
        ("user", 404, False, "session_lost"),
        ("user", 422, True, None),
        ("user", "", False, "agent_run_error"),
        ("user", "###STOP###", False, "agent_run_error"),
    ],
)
async def test_a_fault_of_the_way_or_of_the_user_is_a_failure(chain: Any, who: str, turn: Any, terminal: bool, kind: str | None) -> None:
    changes = {"usersim_user": agent("a", "b"), "usersim_assistant": agent("c", "d"), f"usersim_{who}": agent(turn)}
    made = await chain(**changes)
    failure = (await made.run(LAMP))["failure"]
    assert (failure["stage"], failure["terminal"], failure.get("failure_kind")) == ("agent", terminal, kind)
    assert "/verify" not in made.paths("usersim")
    assert_released(made)


async def test_an_actor_that_takes_too_long_is_given_up_and_hears_of_it(chain: Any) -> None:
    made = await chain(usersim_environment={"actor_call_timeout_seconds": 0.2}, usersim_user=agent("a"), usersim_assistant=agent(None))
    failure = (await made.run(LAMP))["failure"]
    assert (failure["stage"], failure["terminal"]) == ("agent", False)
    async with asyncio.timeout(5):
        while not made.servers["usersim_assistant"].hung_up:
            await asyncio.sleep(0.01)
    assert_released(made)


async def test_the_episodes_own_timeout_ends_a_conversation_and_everybody_is_released(chain: Any) -> None:
    made = await chain(usersim_environment={"default_episode_timeout_seconds": 0.3}, usersim_user=agent("a"), usersim_assistant=agent(None))
    failure = (await made.run(LAMP))["failure"]
    assert failure == {"failure_reason": "Episode timed out", "terminal": False}
    assert_released(made)


async def test_an_agent_that_breaks_in_the_middle_leaves_nothing_open(chain: Any) -> None:
    class Dies(StubAgent):
        """Answers once; then it has lost everything."""

        turns: ClassVar[list[Any]] = ["first"]

        async def answer(self, body: dict[str, Any], rollout: str) -> dict[str, Any]:
            if self.left:
                return await super().answer(body, rollout)
            raise HTTPError(503, "gone")

        async def close(self, body: dict[str, Any]) -> dict[str, Any]:
            raise HTTPError(503, f"gone, {body['agent_session_id']} with it")

    made = await chain(usersim_assistant=Dies, usersim_user=agent("a", "b"))
    failure = (await made.run(LAMP))["failure"]
    assert (failure["stage"], failure["terminal"]) == ("agent", False)
    # Its close was tried, and that it failed kept nobody else open.
    assert counts(made, "usersim_assistant") == {SESSION: 1, RESPONSES: 2, CLOSE: 1}
    assert counts(made, "usersim_user") == {SESSION: 1, RESPONSES: 2, CLOSE: 1}
    assert counts(made, "usersim") == {"/seed_session": 1, "/close_session": 1}
    assert made.servers["usersim"]._books == {}


@pytest.mark.parametrize("who", ["user", "assistant"])
async def test_a_session_that_cannot_be_closed_ends_the_episode(chain: Any, who: str) -> None:
    changes = {"usersim_user": agent("a"), "usersim_assistant": agent("b"), "usersim_environment": {"max_turns": 1}}
    changes[f"usersim_{who}"] = agent("x", close_status=500)
    made = await chain(**changes)
    failure = (await made.run(LAMP))["failure"]
    assert (failure["stage"], failure["terminal"], failure["failure_kind"]) == ("cleanup", True, "session_release_failed")
    assert counts(made, f"usersim_{who}")[CLOSE] == 2
    assert "/verify" not in made.paths("usersim")
    assert made.servers["usersim"]._books == {}


async def test_a_resources_server_that_cannot_be_closed_costs_the_verdict(chain: Any, load_app: Callable[[str], ModuleType]) -> None:
    base: Any = load_app("resources_servers/usersim").UserSimResourcesServer

    class Stuck(base):  # type: ignore[misc] # the base is loaded at run time
        async def release(self, session_id: str) -> None:
            raise RuntimeError(f"{session_id} is stuck")

    made = await chain(usersim=Stuck)
    failure = (await made.run(LAMP))["failure"]
    assert (failure["stage"], failure["terminal"], failure["failure_kind"]) == ("cleanup", True, "session_release_failed")
    assert counts(made, "usersim")["/verify"] == 1
    assert counts(made, "usersim")["/close_session"] == 2


async def test_an_agent_without_a_session_cookie_is_a_failure(chain: Any) -> None:
    made = await chain(usersim_user=agent(cookie=False))
    failure = (await made.run(LAMP))["failure"]
    assert failure["stage"] == "agent"
    assert "cookie" in failure["failure_reason"]
    assert made.paths("usersim_assistant") == []


async def test_a_task_that_the_resources_server_refuses_is_a_seed_failure(chain: Any) -> None:
    made = await chain()
    failure = (await made.run({**LAMP, "orders": {"A-1001": {"status": "lost", "item": "lamp"}}}))["failure"]
    assert (failure["stage"], failure["terminal"]) == ("seed", True)
    assert "status" in failure["failure_reason"]
    assert made.paths("usersim_user") == []


async def test_without_a_grant_the_verdict_still_finds_its_session(chain: Any) -> None:
    made = await chain(usersim_environment={"resources_tool_transports": []})
    assert (await made.run(BOOKINGS["four-on-friday"]))["result"]["reward"] == 1.0
    assert_released(made)


async def test_observations_of_the_assistant_are_the_episodes(chain: Any) -> None:
    made = await chain(usersim_user=agent("a"), usersim_assistant=agent("b"), usersim_environment={"max_turns": 1})
    assert (await made.run(LAMP))["result"]["ng_agent_observations"] == {"seen": 1}


async def test_many_episodes_at_once_are_told_apart(chain: Any) -> None:
    made = await chain()
    todo = [*ORDERS.values(), *BOOKINGS.values()] * 10
    answers = await asyncio.gather(*(made.run(row, f"{number}-0") for number, row in enumerate(todo)))
    assert [answer["result"]["reward"] for answer in answers] == [EXPECTED[row["task_id"]][0] for row in todo]
    assert made.servers["usersim"]._books == {}
    assert made.paths("usersim").count("/close_session") == len(todo)
    assert made.paths("usersim_user").count(CLOSE) == made.paths("usersim_assistant").count(CLOSE) == len(todo)


async def test_metrics_are_the_resources_servers(chain: Any) -> None:
    made = await chain()
    records = [{"reward": 1.0, "turns": 2, "_ng_task_index": 0, "_ng_rollout_index": 0}]
    url = made.urls["usersim_environment"] + "/aggregate_metrics"
    metrics = (await made.http.post(url, json={"verify_responses": records})).json()
    assert metrics["agent_metrics"]["mean/reward"] == 1.0
    assert metrics["agent_metrics"]["mean/turns"] == 2.0
