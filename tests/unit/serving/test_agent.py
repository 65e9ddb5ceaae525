"""Agent servers: routes, agent sessions with their 409 rules and receipts, aggregation (contract-servers 2.2, contract-data 2.9)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.serving import (
    AgentServer,
    AgentServerConfig,
    AgentSession,
    Call,
    ResourcesServer,
    ResourcesServerConfig,
    ResourcesServerReference,
    RunRequest,
    Verdict,
)
from gym_compose.wire.episodes import AgentCloseResponse, AgentSeedRequest
from gym_compose.wire.responses import ResponsesCreateParams

COOKIE = "Echo___agent"


class Config(AgentServerConfig):
    resources_server: ResourcesServerReference | None = None


class Plain(AgentServer):
    """No sessions."""

    config: Config

    async def responses(self, params: ResponsesCreateParams, call: Call) -> dict[str, Any]:
        session = self.agent_session(call)
        call.set_cookie("R___r", "v1.x")
        return {
            "session": None if session is None else session.seed.agent_session_id,
            "prefix": call.rollout_prefix,
            "cookies": sorted(call.cookies),
            "given": params.given_fields(),
        }

    async def run(self, body: RunRequest, call: Call) -> dict[str, Any]:
        return body.row()


class Echo(Plain):
    """With sessions."""

    def setup(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.fail_open = self.fail_close = False
        self.now = 0.0
        self._clock = lambda: self.now

    async def open_session(self, seed: AgentSeedRequest) -> AgentSession:
        if self.fail_open:
            raise ValueError("cannot use this grant")
        self.opened.append(seed.agent_session_id)
        return AgentSession(seed)

    async def close_session(self, session: AgentSession) -> AgentCloseResponse:
        if self.fail_close:
            raise RuntimeError("harness hangs")
        self.closed.append(session.seed.agent_session_id)
        return AgentCloseResponse(agent_session_id=session.seed.agent_session_id, resources_cookies={"R": "2"})


class Judge(ResourcesServer):
    config: ResourcesServerConfig

    async def verify(self, body: Any, call: Call) -> Verdict:
        return Verdict(0.0)


def seed(session: str = "s1", rollout: str = "0-0", **extra: Any) -> dict[str, Any]:
    return {
        "agent_session_id": session,
        "episode_id": {"rollout_id": rollout, "attempt": 0},
        "task_id": {"taskset": "t", "task_id": "1"},
        "tool_accesses": [],
        "sandbox_access": None,
        **extra,
    }


def close(session: str = "s1", rollout: str = "0-0") -> dict[str, Any]:
    return {"agent_session_id": session, "episode_id": {"rollout_id": rollout, "attempt": 0}}


SEED, CLOSE, RESPONSES = "/v1/agent_sessions", "/v1/agent_sessions/close", "/v1/responses"
PARAMS = {"input": "hi", "temperature": 0.5}


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/0-0", "/ng-rollout/0-0-a1/training-token-capture"])
async def test_responses_and_its_twins(deploy: Any, prefix: str) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    answer = await servers.post("agent", prefix + RESPONSES, PARAMS, cookies={"R___r": "old"})
    assert answer.json() == {"session": None, "prefix": prefix, "cookies": ["R___r"], "given": PARAMS}
    assert sorted(header.split("=")[0] for header in answer.headers.get_list("set-cookie")) == [COOKIE, "R___r"]


@pytest.mark.parametrize("path", ["/ng-rollout/0-0/run", "/ng-rollout/a/b/v1/responses", "/ng-rollout/.a/v1/responses"])
async def test_no_other_path_has_a_twin(deploy: Any, path: str) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    assert (await servers.post("agent", path, PARAMS)).status_code == 404


async def test_run_materialises_params_and_keeps_the_rows_fields(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    body = {"responses_create_params": {"input": [{"role": "user", "content": "x"}]}, "_ng_task_index": 3, "answer": {"a": [1]}}
    answer = (await servers.post("agent", "/run", body)).json()
    assert answer["_ng_task_index"] == 3
    assert answer["answer"] == {"a": [1]}
    assert len(answer["responses_create_params"]) == 30
    assert answer["responses_create_params"]["input"] == [{"content": "x", "role": "user", "type": "message", "phase": None}]
    assert (await servers.post("agent", "/run", {"answer": 1})).status_code == 422


async def session(servers: Any, **kwargs: Any) -> dict[str, str]:
    answer = await servers.post("agent", SEED, seed(**kwargs))
    assert answer.status_code == 200, answer.text
    return {COOKIE: answer.cookies[COOKIE]}


async def test_a_session_from_seed_to_receipt(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    cookies = await session(servers)
    assert (await servers.post("agent", RESPONSES, PARAMS, cookies=cookies)).json()["session"] == "s1"
    receipt = {"agent_session_id": "s1", "agent_observations": None, "resources_cookies": {"R": "2"}}
    for _ in range(2):  # the receipt is replayed
        closed = await servers.post("agent", CLOSE, close(), cookies=cookies)
        assert (closed.status_code, closed.json()) == (200, receipt)
    assert servers["agent"].closed == ["s1"]


async def test_the_same_seed_again_is_the_same_session(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    await session(servers)
    await session(servers)
    assert servers["agent"].opened == ["s1"]


def forms() -> list[Any]:
    grant = {"kind": "direct_http", "name": "r", "required": True, "base_url": "http://r.gym:8000"}
    return [seed(rollout="1-1"), seed(task_id={"taskset": "t", "task_id": "2"}), seed(tool_accesses=[grant])]


@pytest.mark.parametrize("body", forms())
async def test_another_body_for_an_open_session_is_409(deploy: Any, body: dict[str, Any]) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    await session(servers)
    answer = await servers.post("agent", SEED, body)
    assert answer.status_code == 409
    assert "another body" in answer.json()["detail"]


async def test_what_comes_after_a_close_is_409(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    cookies = await session(servers)
    await servers.post("agent", CLOSE, close(), cookies=cookies)
    assert (await servers.post("agent", RESPONSES, PARAMS, cookies=cookies)).status_code == 409
    assert (await servers.post("agent", SEED, seed(), cookies=cookies)).status_code == 409
    assert (await servers.post("agent", SEED, seed())).status_code == 409
    assert (await servers.post("agent", CLOSE, close(rollout="9-9"))).status_code == 409


async def test_a_cookie_of_another_session_is_409(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    cookies = await session(servers)
    assert (await servers.post("agent", SEED, seed(session="s2"), cookies=cookies)).status_code == 409
    assert (await servers.post("agent", CLOSE, close(session="s2"), cookies=cookies)).status_code == 409


async def test_closing_an_unknown_session_succeeds_and_blocks_a_late_seed(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    answer = await servers.post("agent", CLOSE, close())
    assert answer.json() == {"agent_session_id": "s1", "agent_observations": None, "resources_cookies": None}
    assert (await servers.post("agent", SEED, seed())).status_code == 409
    assert servers["agent"].opened == []


async def test_a_receipt_is_kept_for_the_retry_window(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {"session_close_retry_window_seconds": 10}))
    cookies = await session(servers)
    await servers.post("agent", CLOSE, close(), cookies=cookies)
    servers["agent"].now = 9.9
    assert (await servers.post("agent", CLOSE, close(), cookies=cookies)).status_code == 200
    servers["agent"].now = 10.0
    expired = await servers.post("agent", CLOSE, close(), cookies=cookies)
    assert (expired.status_code, expired.json()) == (409, {"detail": "the receipt of this session has expired"})
    assert servers["agent"]._records == {}
    assert (await servers.post("agent", SEED, seed(), cookies=cookies)).status_code == 409


async def test_a_seed_that_fails_leaves_nothing(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    servers["agent"].fail_open = True
    assert (await servers.post("agent", SEED, seed())).json() == "ValueError('cannot use this grant')"
    assert servers["agent"]._records == {}
    servers["agent"].fail_open = False
    await session(servers)


async def test_a_close_that_fails_keeps_the_session_for_another_close_and_nothing_else(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    cookies = await session(servers)
    servers["agent"].fail_close = True
    assert (await servers.post("agent", CLOSE, close(), cookies=cookies)).status_code == 500
    assert (await servers.post("agent", RESPONSES, PARAMS, cookies=cookies)).status_code == 409
    assert (await servers.post("agent", SEED, seed())).status_code == 409
    servers["agent"].fail_close = False
    assert (await servers.post("agent", CLOSE, close(), cookies=cookies)).status_code == 200
    assert servers["agent"].closed == ["s1"]


async def test_two_grants_of_one_name_and_unknown_fields_are_422(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Echo, {}))
    grant = {"kind": "direct_http", "name": "r", "required": True, "base_url": "http://r.gym:8000"}
    for body in (seed(tool_accesses=[grant, grant]), seed(extra=1), seed(tool_accesses=[{**grant, "base_url": "/relative"}])):
        assert (await servers.post("agent", SEED, body)).status_code == 422


async def test_an_agent_without_sessions_answers_500(deploy: Any) -> None:
    servers = await deploy(agent=("ag", Plain, {}))
    for path, body in ((SEED, seed()), (CLOSE, close())):
        answer = await servers.post("agent", path, body)
        assert answer.status_code == 500
        assert answer.json().startswith("NotImplementedError(")
    assert (await servers.post("agent", RESPONSES, PARAMS)).status_code == 200


async def test_metrics_are_the_resources_servers_or_its_own(deploy: Any) -> None:
    reference = {"type": "resources_servers", "name": "judge"}
    servers = await deploy(
        judge=("rs", Judge, {}),
        proxy=("ag", Echo, {"resources_server": reference}),
        alone=("ag", Echo, {}),
        unverified=("ag", Echo, {"skip_verification": True, "resources_server": reference}),
    )
    body = {"verify_responses": [{"reward": 1.0}]}
    own = (await servers.post("alone", "/aggregate_metrics", body)).json()
    assert own["key_metrics"] == {"mean/reward": 1.0}
    assert (await servers.post("proxy", "/aggregate_metrics", body)).json() == own
    assert (await servers.post("unverified", "/aggregate_metrics", body)).json()["agent_metrics"] == {}


async def test_an_inner_servers_error_is_quoted_in_a_500(deploy: Any) -> None:
    servers = await deploy(
        judge=("rs", Judge, {}), agent=("ag", Echo, {"resources_server": {"type": "resources_servers", "name": "judge"}})
    )
    answer = await servers.post("agent", "/aggregate_metrics", {"verify_responses": [{"reward": 1.0}, {"reward": 1.0}]})
    assert answer.status_code == 500
    assert answer.json().startswith("Echo___agent failed while calling an inner server: b'")
    assert "two records" in answer.json()
    assert "set-cookie" not in answer.headers
