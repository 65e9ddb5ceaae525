"""The six calls of a turn, with an answer of any kind at each (contract-data 2.5, cases 66 to 72; contract-servers 8.44, 8.45)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, ClassVar

import httpx
import pytest
from pydantic import ValidationError
from starlette.responses import Response

from gym_compose.serving import (
    Call,
    Endpoint,
    EnvironmentServer,
    Episode,
    Server,
    ServerConfig,
    SingleAgentTurn,
    SingleAgentTurnConfig,
    TurnInput,
)
from gym_compose.serving.client import PeerTimeout
from gym_compose.testing import AgentPeer, ResourcesPeer, Served

ANSWER = {
    "id": "r",
    "created_at": 1,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
HANG = object()
Seen = list[tuple[str, dict[str, Any], dict[str, str]]]


class Scripted(Server):
    """Records what it is asked and answers by path: a body, or a Response."""

    sessions: ClassVar[bool] = False
    config: ServerConfig

    def setup(self) -> None:
        self.seen: Seen = []
        self.answers: dict[str, Any] = {}
        self.hung_up = 0

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("POST", "/{path:path}", self.any)]

    async def any(self, path: str, body: dict[str, Any], call: Call) -> Any:
        self.seen.append((path, body, call.cookies))
        answer = self.answers[path.rsplit("ng-rollout/", 1)[-1]]
        if answer is HANG:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                self.hung_up += 1
                raise
        if callable(answer) and not isinstance(answer, Response):
            answer = answer(body)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, tuple):
            answer, cookies = answer
            for name, value in cookies.items():
                call.set_cookie(name, value)
        return answer


class Turn(EnvironmentServer):
    config: SingleAgentTurnConfig
    task_input = TurnInput

    def setup(self) -> None:
        self.turn = SingleAgentTurn(self, self.config)

    async def run(self, episode: Episode[Any]) -> dict[str, Any]:
        return await self.turn.run(episode)


RESPONSES = "0-0-a1/v1/responses"


async def stack(deploy: Any, transports: tuple[str, ...] = (), extra: dict[str, Any] | None = None, agent: Any = (), **limits: Any) -> Any:
    block = {
        "cleanup_timeout_seconds": 5,
        "resources_server": {"type": "resources_servers", "name": "rs"},
        "agent_server": {"type": "responses_api_agents", "name": "ag"},
        "resources_tool_transports": list(transports),
        **limits,
    }
    servers = await deploy(extra, rs=("rs", Scripted, {}), ag=("ag", Scripted, dict(agent)), env=("es", Turn, block))
    servers["rs"].answers = {
        "seed_session": lambda body: ({"resources_session_id": body["resources_session_id"]}, {"R": "1"}),
        "verify": {"reward": 1.0, "anything": [1], "mask_sample": False},
        "close_session": lambda body: {"resources_session_id": body["resources_session_id"]},
        "aggregate_metrics": {"agent_metrics": {"mean/reward": 1.0}},
    }
    servers["ag"].answers = {
        "v1/agent_sessions": lambda body: ({"agent_session_id": body["agent_session_id"]}, {"A": "1"}),
        RESPONSES: (ANSWER, {"A": "2", "M": "1"}),
        "v1/agent_sessions/close": lambda body: {"agent_session_id": body["agent_session_id"], "resources_cookies": {"R": "2"}},
    }
    return servers


def request(**task_input: Any) -> dict[str, Any]:
    return {
        "episode_id": {"rollout_id": "0-0", "attempt": 1},
        "task": {
            "task_id": {"taskset": "t", "task_id": "1"},
            "task_input": {"responses_create_params": {"input": "x"}, "task_data": {"k": 1}, **task_input},
        },
    }


def calls(servers: Any) -> list[str]:
    """Paths in the order of the protocol: RS and AG calls are each in order, and the protocol itself fixes how they interleave."""
    return [path for path, _, _ in servers["rs"].seen] + [path for path, _, _ in servers["ag"].seen]


RS_ALL = ["seed_session", "verify", "close_session"]
AG_ALL = ["v1/agent_sessions", "ng-rollout/" + RESPONSES, "v1/agent_sessions/close"]


async def test_the_six_calls(deploy: Any) -> None:
    servers = await stack(deploy, ("direct_http",))
    answer = (await servers.post("env", "/run", request())).json()
    assert answer["failure"] is None
    assert answer["result"] == {"reward": 1.0, "anything": [1], "mask_sample": False, "ng_agent_observations": None}
    assert calls(servers) == RS_ALL + AG_ALL
    (seed, verify, close), (begin, ask, end) = servers["rs"].seen, servers["ag"].seen
    session_id, agent_id = seed[1]["resources_session_id"], begin[1]["agent_session_id"]
    episode = {"rollout_id": "0-0", "attempt": 1}
    task = {"taskset": "t", "task_id": "1"}
    assert session_id.startswith("resources-session-")
    assert agent_id.startswith("agent-session-")
    assert seed[1:] == ({"resources_session_id": session_id, "episode_id": episode, "task_id": task, "task_data": {"k": 1}}, {})
    grant = {
        "kind": "direct_http",
        "name": "rs.direct_http",
        "required": True,
        "base_url": servers.urls["rs"] + "/",
        "cookies": {"R": "1"},
        "headers": {},
    }
    assert begin[1] == {
        "agent_session_id": agent_id,
        "episode_id": episode,
        "task_id": task,
        "tool_accesses": [grant],
        "sandbox_access": None,
    }
    assert begin[2] == {}
    assert ask[1:] == ({"input": "x"}, {"A": "1"})
    assert end[1:] == ({"agent_session_id": agent_id, "episode_id": episode}, {"A": "2", "M": "1"})
    assert verify[2] == {"R": "2"}
    assert {key: verify[1][key] for key in ("k", "responses_create_params")} == {"k": 1, "responses_create_params": {"input": "x"}}
    assert verify[1]["response"]["id"] == "r"
    assert set(verify[1]) == {"k", "responses_create_params", "response"}
    assert close[1:] == ({"resources_session_id": session_id, "episode_id": episode}, {"R": "2"})


def status(code: int, body: bytes = b'{"detail":"why"}') -> Response:
    return Response(body, status_code=code, media_type="application/json")


RS_FAILED_SEED = ["seed_session", "close_session"]


@pytest.mark.parametrize(
    ("server", "path", "answer", "stage", "terminal", "rs", "ag"),
    [
        ("rs", "seed_session", status(422), "seed", True, RS_FAILED_SEED, []),
        ("rs", "seed_session", status(500), "seed", False, RS_FAILED_SEED, []),
        ("rs", "seed_session", ({}, {"R": "1"}), "seed", True, RS_FAILED_SEED, []),
        ("rs", "seed_session", {"resources_session_id": "other"}, "seed", True, RS_FAILED_SEED, []),
        ("rs", "seed_session", ({"resources_session_id": "other"}, {"R": "1"}), "seed", True, RS_FAILED_SEED, []),
        ("ag", "v1/agent_sessions", status(409), "agent", True, RS_FAILED_SEED, [AG_ALL[0], AG_ALL[2]]),
        ("ag", "v1/agent_sessions", {"agent_session_id": "other"}, "agent", True, RS_FAILED_SEED, [AG_ALL[0], AG_ALL[2]]),
        ("ag", RESPONSES, status(500), "agent", False, RS_FAILED_SEED, AG_ALL),
        ("ag", RESPONSES, status(429), "agent", False, RS_FAILED_SEED, AG_ALL),
        ("ag", RESPONSES, {"id": "no response"}, "agent", True, RS_FAILED_SEED, AG_ALL),
        ("ag", RESPONSES, status(200, b"not json"), "agent", True, RS_FAILED_SEED, AG_ALL),
        # Case 67: no verdict, the partial response is kept (asserted below).
        ("ag", "v1/agent_sessions/close", status(503), "cleanup", False, RS_FAILED_SEED, [*AG_ALL, AG_ALL[2]]),
        ("rs", "verify", status(500), "verification", False, RS_ALL, AG_ALL),
        ("rs", "verify", {"no": "reward"}, "verification", True, RS_ALL, AG_ALL),
        ("rs", "verify", {"reward": True}, "verification", True, RS_ALL, AG_ALL),
        ("rs", "verify", status(200, b"[]"), "verification", True, RS_ALL, AG_ALL),
    ],
)
async def test_a_failure_at_each_call(
    deploy: Any, server: str, path: str, answer: Any, stage: str, terminal: bool, rs: list[str], ag: list[str]
) -> None:
    servers = await stack(deploy)
    servers[server].answers[path] = answer
    got = (await servers.post("env", "/run", request())).json()
    assert got["result"] is None
    failure = got["failure"]
    assert (failure["stage"], failure["terminal"]) == (stage, terminal)
    assert failure["failure_reason"]
    assert (failure["partial_response"] is not None) == (stage in ("cleanup", "verification"))
    assert [entry[0] for entry in servers["rs"].seen] == rs
    assert [entry[0] for entry in servers["ag"].seen] == ag


async def test_the_reason_quotes_the_peers_body(deploy: Any) -> None:
    servers = await stack(deploy)
    servers["rs"].answers["seed_session"] = status(422, b'{"detail":[{"msg":"initial_count missing"}]}')
    failure = (await servers.post("env", "/run", request())).json()["failure"]
    assert "answered 422" in failure["failure_reason"]
    assert "initial_count missing" in failure["failure_reason"]


async def test_a_failed_answer_of_the_agent_is_still_verified(deploy: Any) -> None:
    servers = await stack(deploy)
    servers["ag"].answers[RESPONSES] = {**ANSWER, "status": "failed"}
    assert (await servers.post("env", "/run", request())).json()["result"]["reward"] == 1.0


async def test_a_resources_close_that_fails_is_tried_twice_and_the_verdict_stands(deploy: Any) -> None:
    """Case 68."""
    servers = await stack(deploy)
    servers["rs"].answers["close_session"] = lambda body: status(500)
    answer = (await servers.post("env", "/run", request())).json()
    assert answer["result"]["reward"] == 1.0
    assert [path for path, _, _ in servers["rs"].seen] == ["seed_session", "verify", "close_session", "close_session"]


async def test_observations_of_the_close_stand_in_the_result(deploy: Any) -> None:
    servers = await stack(deploy)
    observed = {"source": "x", "records": []}
    servers["ag"].answers["v1/agent_sessions/close"] = lambda body: {
        "agent_session_id": body["agent_session_id"],
        "agent_observations": observed,
    }
    answer = (await servers.post("env", "/run", request())).json()
    assert answer["result"]["ng_agent_observations"] == observed
    assert servers["rs"].seen[1][2] == {"R": "1"}  # no cookies in the receipt: those of the seed stay


MCP = {"server_name": "rs", "url_path": "/mcp", "transport": "http", "headers": {"X-Token": "t"}}


@pytest.mark.parametrize(
    ("tools", "reason"), [(None, "serves no tools over MCP"), ({**MCP, "transport": "stdio"}, "MCP transport 'stdio'"), (MCP, None)]
)
async def test_grants_over_mcp(deploy: Any, tools: dict[str, Any] | None, reason: str | None) -> None:
    servers = await stack(deploy, ("mcp",))
    servers["rs"].answers["seed_session"] = lambda body: (
        {"resources_session_id": body["resources_session_id"], "resources_tools": tools},
        {"R": "1"},
    )
    answer = (await servers.post("env", "/run", request())).json()
    if reason is None:
        connection = {"transport": "streamable_http", "url": servers.urls["rs"] + "/mcp", "headers": {"X-Token": "t"}}
        assert servers["ag"].seen[0][1]["tool_accesses"] == [{"kind": "mcp", "name": "rs", "required": True, "connection": connection}]
    else:
        assert (answer["failure"]["stage"], answer["failure"]["terminal"]) == ("seed", True)
        assert reason in answer["failure"]["failure_reason"]
        assert servers["ag"].seen == []


@pytest.mark.parametrize(
    ("capture", "block", "segment"),
    [
        (None, {}, ""),
        ({"enabled": True}, {}, ""),
        ({"enabled": True}, {"token_id_capture": True}, "/training-token-capture"),
        ({"enabled": True, "all_agents": True}, {}, "/training-token-capture"),
        ({"enabled": False, "all_agents": True}, {"token_id_capture": True}, ""),
    ],
)
async def test_the_capture_segment(deploy: Any, capture: dict[str, Any] | None, block: dict[str, Any], segment: str) -> None:
    servers = await stack(deploy, extra={"token_id_capture": capture}, agent=block)
    servers["ag"].answers[f"0-0-a1{segment}/v1/responses"] = ANSWER
    assert (await servers.post("env", "/run", request())).json()["failure"] is None
    assert servers["ag"].seen[1][0] == f"ng-rollout/0-0-a1{segment}/v1/responses"


async def test_a_deadline_during_the_agents_call_closes_both_sessions(deploy: Any) -> None:
    """Case 70, and an agent that would answer too late: its answer is dropped and counted."""
    servers = await stack(deploy, default_episode_timeout_seconds=0.3)
    servers["ag"].answers[RESPONSES] = HANG
    answer = (await servers.post("env", "/run", request())).json()
    assert answer["failure"] == {"failure_reason": "Episode timed out", "terminal": False}
    assert calls(servers) == RS_FAILED_SEED + AG_ALL
    assert servers["ag"].hung_up == 1  # the agent's handler was cancelled, its model calls with it
    counts = (await servers.get("env", "/episodes")).json()
    assert (counts["timed_out"], counts["late_answers"], counts["cleanups_done"]) == (1, 1, 2)


async def test_a_client_that_is_gone_in_mid_episode_closes_both_sessions(deploy: Any) -> None:
    """Case 70: the cancellation goes on after the cleanup."""
    servers = await stack(deploy)
    servers["ag"].answers[RESPONSES] = HANG
    with contextlib.suppress(httpx.TimeoutException):
        await servers.post("env", "/run", request(), timeout=0.4)
    for _ in range(100):
        if servers["env"].counts.cancelled:
            break
        await asyncio.sleep(0.02)
    assert calls(servers) == RS_FAILED_SEED + AG_ALL
    assert servers["ag"].hung_up == 1
    assert (servers["env"].counts.cancelled, servers["env"].counts.cleanups_done) == (1, 2)


async def test_a_seed_that_takes_too_long_is_closed_all_the_same(deploy: Any) -> None:
    """Case 66 under the episode's deadline: the session may have begun, so it is closed; nothing else is called."""
    servers = await stack(deploy, default_episode_timeout_seconds=0.3)
    servers["rs"].answers["seed_session"] = HANG
    answer = (await servers.post("env", "/run", request())).json()
    assert answer["failure"] == {"failure_reason": "Episode timed out", "terminal": False}
    assert calls(servers) == RS_FAILED_SEED


async def test_a_seed_whose_connection_times_out_is_a_seed_failure() -> None:
    """Case 66."""
    resources = ResourcesPeer({"reward": 1.0})

    def timed_out(_: Any) -> Any:
        raise PeerTimeout("POST http://rs/seed_session: no answer in time", method="POST", url="http://rs/seed_session")

    resources.answers["/seed_session"] = timed_out
    block = {
        "cleanup_timeout_seconds": 5,
        "resources_server": {"type": "resources_servers", "name": "rs"},
        "agent_server": {"type": "responses_api_agents", "name": "ag"},
    }

    def run() -> Any:
        with Served(Turn, block, peers={"rs": resources, "ag": AgentPeer("x")}) as served:
            return served.post("/run", request()).json()["failure"]

    failure = await asyncio.to_thread(run)
    assert (failure["stage"], failure["terminal"]) == ("seed", False)
    assert resources.paths() == ["/seed_session", "/close_session"]


async def test_metrics_are_forwarded_to_the_resources_server(deploy: Any) -> None:
    servers = await stack(deploy)
    answer = await servers.post("env", "/aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})
    assert answer.json() == {"agent_metrics": {"mean/reward": 1.0}}
    assert servers["rs"].seen == [("aggregate_metrics", {"verify_responses": [{"reward": 1.0}]}, {})]


PARAMS = {"responses_create_params": {"input": "x"}}


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({**PARAMS}, {}),
        ({**PARAMS, "task_data": {"k": 1}}, {"k": 1}),
        ({**PARAMS, "k": 1, "m": None}, {"k": 1, "m": None}),
        ({**PARAMS, "task_data": {"k": 1}, "k": 1, "m": 2}, {"k": 1, "m": 2}),
    ],
)
def test_flat_fields_are_folded_into_the_task_data(given: dict[str, Any], data: dict[str, Any]) -> None:
    assert TurnInput.model_validate(given).task_data == data


@pytest.mark.parametrize(
    "given",
    [{**PARAMS, "task_data": {"k": 1}, "k": 2}, {"k": 1}, {**PARAMS, "task_data": 5}, "x", {"responses_create_params": {"inptu": 1}}],
)
def test_task_input_that_does_not_fit(given: Any) -> None:
    """Case 72 is the first."""
    with pytest.raises(ValidationError):
        TurnInput.model_validate(given)
