"""Model servers: strict bodies, which dialects exist, what an answer must be (contract-servers 4.1, 8.33, 8.34)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.serving import Call, HTTPError, ModelServer, ModelServerConfig
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams

ANSWER = {
    "id": "r",
    "created_at": 1,
    "model": "m",
    "object": "response",
    "output": [{"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}],
    "extra": 1,
}


class Model(ModelServer):
    config: ModelServerConfig

    def setup(self) -> None:
        self.calls: list[Any] = []
        self.answer: Any = ANSWER

    async def responses(self, params: ResponsesCreateParams, call: Call) -> dict[str, Any]:
        self.calls.append(params.given_fields())
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer)


class Chat(ModelServer):
    config: ModelServerConfig

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> dict[str, Any]:
        return {"given": params.given_fields(), "rollout": call.rollout}


FUNCTION = {"type": "function", "name": "f", "parameters": {}, "strict": True}


@pytest.mark.parametrize(
    "body",
    [
        {"input": "x", "unknown": 1},
        {},
        {"input": "x", "stream": True},
        {"input": "x", "stream": "true"},
        {"input": "x", "tools": [{key: value for key, value in FUNCTION.items() if key != "strict"}]},
        {"input": "x", "tools": [{key: value for key, value in FUNCTION.items() if key != "parameters"}]},
        {"input": [{"type": "no_such_item"}]},
        {"input": "x", "temperature": "warm"},
    ],
)
async def test_what_does_not_fit_is_422_with_a_page_and_calls_nothing(deploy: Any, body: dict[str, Any]) -> None:
    servers = await deploy(model=("ms", Model, {}))
    answer = await servers.post("model", "/v1/responses", body)
    assert answer.status_code == 422
    assert all(entry["url"].startswith("https://") for entry in answer.json()["detail"] if entry["type"] != "value_error")
    assert servers["model"].calls == []


async def test_a_good_body_is_passed_on_and_the_answer_completed(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    body = {"input": "x", "tools": [FUNCTION]}
    answer = await servers.post("model", "/ng-rollout/0-0/v1/responses", body)
    assert answer.status_code == 200
    assert servers["model"].calls == [{"input": "x", "tools": [{"name": "f", "parameters": {}, "strict": True, "type": "function"}]}]
    got = answer.json()
    assert list(got)[:4] == ["id", "created_at", "error", "incomplete_details"]
    assert got["output"][0] == {
        "arguments": "{}",
        "call_id": "c",
        "name": "f",
        "type": "function_call",
        "id": None,
        "status": None,
        "namespace": None,
    }
    assert got["tools"][0]["description"] is None
    assert (got["usage"], got["extra"], list(got)[-1]) == (None, 1, "extra")


async def test_an_answer_that_is_none_says_which_field(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    servers["model"].answer = {"id": "r"}
    answer = await servers.post("model", "/v1/responses", {"input": "x"})
    assert answer.status_code == 500
    assert "created_at: Field required" in answer.json()


async def test_an_upstreams_status_can_be_passed_on(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    servers["model"].answer = HTTPError(429, {"error": "slow down"}, headers={"Retry-After": "3"})
    answer = await servers.post("model", "/v1/responses", {"input": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert "Model___model" in answer.headers["set-cookie"]


async def test_only_the_dialects_of_a_server_have_a_route(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}), chat=("ms", Chat, {}))
    assert (await servers.post("model", "/v1/chat/completions", {})).status_code == 404
    assert (await servers.post("model", "/v1/messages", {})).status_code == 404
    assert (await servers.post("chat", "/v1/responses", {})).status_code == 404
    assert (await servers.get("chat", "/v1/models")).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, 200),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "thinking": {"type": "adaptive"}}, 200),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, 200),
        ({"messages": [{"role": "tool", "content": "x"}]}, 422),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422),
        ({"messages": [{"role": "user", "content": None}]}, 422),
        ({"messages": [], "functions": []}, 422),
        ({"messages": [], "stream": "true"}, 422),
        ({"messages": ["x"]}, 422),
        ({"messages": [{"role": [], "content": "x"}]}, 422),
        ({}, 422),
    ],
)
async def test_chat_bodies(deploy: Any, body: dict[str, Any], status: int) -> None:
    servers = await deploy(chat=("ms", Chat, {}))
    answer = await servers.post("chat", "/ng-rollout/1-2/v1/chat/completions", body)
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == {"given": body, "rollout": "1-2"}
