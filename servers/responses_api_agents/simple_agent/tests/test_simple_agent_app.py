from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest
from aiohttp import web

DIRECTORY = "responses_api_agents/simple_agent"
RESOURCES = {"type": "resources_servers", "name": "rs"}
MODEL = {"type": "responses_api_models", "name": "ms"}
EPISODE = {"rollout_id": "0-0", "attempt": 0}
TASK = {"taskset": "t", "task_id": "0"}
CLOSE = {"agent_session_id": "a1", "episode_id": EPISODE}
USER = {"role": "user", "content": "q"}


def _object(*output: dict[str, Any]) -> dict[str, Any]:
    basics = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {**basics, "output": list(output)}


def _said(text: str) -> dict[str, Any]:
    return {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def _call(name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments}


@dataclass
class Peers:
    """Model and resources server in one; keeps (path, cookies, body) of every request."""

    url: str = ""
    turns: list[Any] = field(default_factory=list)
    verdict: Any = field(default_factory=lambda: {"reward": 1.0})
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        path, text = request.raw_path, await request.text()
        self.asked.append((path, dict(request.cookies), json.loads(text) if text else None))
        answer: Any = {"tool": path}
        status, cookie = 200, ("RS", f"r{len(self.asked)}")
        if path.endswith("/v1/responses"):
            answer, cookie = self.turns.pop(0), ("MS", "m1")
        elif path == "/verify":
            answer = self.verdict
        elif path == "/missing":
            status, answer = 404, {"detail": "Not Found"}
        response = web.Response(status=status, body=orjson.dumps(answer), content_type="application/json")
        response.set_cookie(*cookie)
        return response

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


Make = Callable[..., httpx.AsyncClient]


@pytest.fixture
def agent(serve: Any, peers: Peers) -> Make:
    def make(**block: Any) -> httpx.AsyncClient:
        block = {"resources_server": RESOURCES, "model_server": MODEL, **block}
        client: httpx.AsyncClient = serve(
            DIRECTORY, "SimpleAgent", block, instance="ag", peers=dict.fromkeys(("rs", "ms", "ag"), peers.url)
        )
        return client

    return make


def _seed(*accesses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "agent_session_id": "a1",
        "episode_id": EPISODE,
        "task_id": TASK,
        "tool_accesses": list(accesses),
        "sandbox_access": None,
        **more,
    }


def _grant(peers: Peers, name: str = "rs.direct_http") -> dict[str, Any]:
    return {
        "kind": "direct_http",
        "name": name,
        "required": True,
        "base_url": f"{peers.url}/granted",
        "cookies": {"RS": "r0"},
        "headers": {"x-h": "1"},
    }


async def test_run_seeds_answers_and_has_it_verified(agent: Make, peers: Peers) -> None:
    peers.turns = [_object(_said("hi"))]
    row = {"responses_create_params": {"input": [USER]}, "answer": "x", "_ng_task_index": 0}
    answer = await agent().post("/run", json=row)
    assert answer.json() == {"reward": 1.0}
    assert peers.paths() == ["/seed_session", "/v1/responses", "/verify"]
    seeded, asked, verified = (body for _, _, body in peers.asked)
    assert len(seeded["responses_create_params"]) == 30
    assert {key: seeded[key] for key in ("answer", "_ng_task_index")} == {"answer": "x", "_ng_task_index": 0}
    assert asked == {"input": [USER]}
    assert verified["response"]["output"][0]["content"][0]["text"] == "hi"
    # The resources session's cookies go to its tools and its verdict, the model's from turn to turn; the model gets no others.
    assert [cookies for _, cookies, _ in peers.asked] == [{}, {}, {"RS": "r1", "MS": "m1"}]


async def test_a_verdict_without_reward_is_an_error(agent: Make, peers: Peers) -> None:
    peers.turns, peers.verdict = [_object()], {"score": 1}
    answer = await agent().post("/run", json={"responses_create_params": {"input": "q"}})
    assert answer.status_code == 500
    assert "without a reward" in answer.json()


async def test_skipped_verification_asks_no_verifier(agent: Make, peers: Peers) -> None:
    peers.turns = [_object(_said("hi"))]
    client = agent(skip_verification=True, skip_verification_reward=0.5)
    record = (await client.post("/run", json={"responses_create_params": {"input": "q"}, "k": 1})).json()
    assert (record["reward"], record["verification_skipped"], record["k"]) == (0.5, True, 1)
    assert "/verify" not in peers.paths()
    metrics = (await client.post("/aggregate_metrics", json={"verify_responses": [{"reward": 1}]})).json()
    assert metrics["agent_metrics"] == {}


async def test_a_legacy_loop_carries_each_servers_cookies_to_itself_alone(agent: Make, peers: Peers) -> None:
    peers.turns = [_object(_call("add", '{"a": 1}')), _object(_call("missing")), _object(_said("done"))]
    answer = await agent().post("/v1/responses", json={"input": [USER]}, headers={"cookie": "RS=r0"})
    output = answer.json()["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call_output"] * 2 + ["message"]
    assert output[3]["output"] == '{"detail":"Not Found"}'
    assert [(path, cookies) for path, cookies, _ in peers.asked] == [
        ("/v1/responses", {}),
        ("/add", {"RS": "r0"}),
        ("/v1/responses", {"MS": "m1"}),
        ("/missing", {"RS": "r2"}),
        ("/v1/responses", {"MS": "m1"}),
    ]
    assert peers.asked[1][2] == {"a": 1}
    assert {name: answer.cookies[name] for name in ("RS", "MS")} == {"RS": "r4", "MS": "m1"}
    assert "SimpleAgent___ag" in answer.cookies


async def test_the_rollout_prefix_goes_on_to_the_model(agent: Make, peers: Peers) -> None:
    for prefix in ("/ng-rollout/7-1", "/ng-rollout/7-1/training-token-capture"):
        peers.turns = [_object(_said("hi"))]
        assert (await agent().post(f"{prefix}/v1/responses", json={"input": "q"})).status_code == 200
        assert peers.paths()[-1] == f"{prefix}/v1/responses"


async def test_a_model_error_ends_the_rollout_and_is_quoted(agent: Make, peers: Peers) -> None:
    peers.turns = [{"no": "response"}]
    answer = await agent().post("/v1/responses", json={"input": "q"})
    assert answer.status_code == 500
    assert "no Responses object" in answer.json()


async def test_odd_tool_names_and_arguments_stay_in_their_place(agent: Make, peers: Peers) -> None:
    peers.turns = [_object(_call("a?b#c", "null"), _call("big", "123456789012345678901234567890")), _object(_said("x"))]
    assert (await agent().post("/v1/responses", json={"input": "q"})).status_code == 200
    assert [(path, body) for path, _, body in peers.asked[1:3]] == [("/a%3Fb%23c", None), ("/big", 123456789012345678901234567890)]


async def test_a_session_calls_tools_by_its_grant_and_hands_the_cookies_back(agent: Make, peers: Peers) -> None:
    client = agent()
    peers.turns = [_object(_call("add")), _object(_said("done"))]
    seeded = await client.post("/v1/agent_sessions", json=_seed(_grant(peers)))
    assert seeded.json() == {"agent_session_id": "a1"}
    answer = await client.post("/ng-rollout/0-0/v1/responses", json={"input": "q"})
    assert peers.paths() == ["/ng-rollout/0-0/v1/responses", "/granted/add", "/ng-rollout/0-0/v1/responses"]
    assert peers.asked[1][1] == {"RS": "r0"}
    assert "RS" not in answer.cookies
    receipt = (await client.post("/v1/agent_sessions/close", json=CLOSE)).json()
    assert receipt == {"agent_session_id": "a1", "agent_observations": None, "resources_cookies": {"RS": "r2"}}
    assert (await client.post("/v1/responses", json={"input": "q"})).status_code == 409


async def test_a_session_without_a_grant_has_no_tools_even_if_the_config_names_a_server(agent: Make, peers: Peers) -> None:
    client = agent()
    peers.turns = [_object(_call("add"))]
    await client.post("/v1/agent_sessions", json=_seed())
    answer = await client.post("/v1/responses", json={"input": "q"})
    assert answer.status_code == 500
    assert "granted no direct HTTP tools" in answer.json()
    assert peers.paths() == ["/v1/responses"]


async def test_a_session_without_a_grant_leaves_the_callers_cookies_alone(agent: Make, peers: Peers) -> None:
    client = agent()
    peers.turns = [_object(_said("done"))]
    await client.post("/v1/agent_sessions", json=_seed())
    await client.post("/v1/responses", json={"input": "q"})
    receipt = (await client.post("/v1/agent_sessions/close", json=CLOSE)).json()
    assert receipt["resources_cookies"] is None


async def test_cookies_of_a_grant_of_the_config_are_not_handed_back(agent: Make, peers: Peers) -> None:
    """They are of a server that the caller has no session at."""
    client = agent(tool_accesses=[_grant(peers)])
    peers.turns = [_object(_call("add")), _object(_said("done"))]
    await client.post("/v1/agent_sessions", json=_seed())
    await client.post("/v1/responses", json={"input": "q"})
    assert peers.paths()[1] == "/granted/add"
    receipt = (await client.post("/v1/agent_sessions/close", json=CLOSE)).json()
    assert receipt["resources_cookies"] is None


MCP = {"kind": "mcp", "name": "m", "required": True, "connection": {"transport": "streamable_http", "url": "http://x/mcp"}}
SANDBOX = {"connection": {"kind": "direct", "provider_config_ref": "p", "descriptor": {}}, "workdir": "/w"}


async def test_grants_that_it_cannot_use_are_refused_at_the_seed(agent: Make, peers: Peers) -> None:
    client = agent()
    for body, text in (
        (_seed(MCP), "cannot use MCP"),
        (_seed(_grant(peers, "a"), _grant(peers, "b")), "one direct HTTP grant, not 2"),
        (_seed(sandbox_access=SANDBOX), "cannot use a sandbox"),
    ):
        answer = await client.post("/v1/agent_sessions", json=body)
        assert answer.status_code == 500
        assert text in answer.json()
    optional = await client.post("/v1/agent_sessions", json=_seed({**MCP, "required": False}))
    assert optional.status_code == 200


async def test_without_tool_execution_only_sessions_are_served(agent: Make, peers: Peers) -> None:
    client = agent(execute_tools=False)
    assert (await client.post("/run", json={"responses_create_params": {"input": "q"}})).status_code == 500
    assert (await client.post("/v1/responses", json={"input": "q"})).status_code == 500
    peers.turns = [_object(_call("add"))]
    await client.post("/v1/agent_sessions", json=_seed(_grant(peers)))
    answer = await client.post("/v1/responses", json={"input": "q"})
    assert [item["type"] for item in answer.json()["output"]] == ["function_call"]
    assert peers.paths() == ["/v1/responses"]


async def test_max_steps_bounds_the_model(agent: Make, peers: Peers) -> None:
    peers.turns = [_object(_call("add")), _object(_call("add"))]
    answer = await agent(max_steps=2).post("/v1/responses", json={"input": "q"})
    assert len(answer.json()["output"]) == 4


async def test_run_needs_a_resources_server(agent: Make) -> None:
    answer = await agent(resources_server=None).post("/run", json={"responses_create_params": {"input": "q"}})
    assert answer.status_code == 500
    assert "resources_server" in answer.json()
