"""Model servers: strict bodies, which dialects exist, what an answer must be (contract-servers 4.1, 8.33, 8.34)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from gym_compose.serving import Call, HTTPError, ModelServer, ModelServerConfig
from gym_compose.serving.server import Server
from gym_compose.serving.upstream import UpstreamError
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams
from gym_compose.wire.settings import Settings

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

    def setup(self) -> None:
        self.completion: Any = None
        self.given: Any = None
        self.released = asyncio.Event()
        self.released.set()

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> dict[str, Any]:
        self.given = params.given_fields()
        await self.released.wait()
        if isinstance(self.completion, Exception):
            raise self.completion
        return self.completion or {"given": self.given, "rollout": call.rollout}


COMPLETION = {
    "id": "c",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
MESSAGES = {"model": "c", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
FUNCTION = {"type": "function", "name": "f", "parameters": {}, "strict": True}


@pytest.mark.parametrize(
    "body",
    [
        {"input": "x", "unknown": 1},
        {},
        {"input": 5, "stream": True},
        {"stream": "true", "unknown": 1},
        {"input": "x", "tools": [{"type": "odd"}]},
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


async def test_a_dialect_that_can_be_served_has_a_route(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}), chat=("ms", Chat, {}))
    assert (await servers.post("model", "/v1/chat/completions", {})).status_code == 404
    assert (await servers.post("model", "/v1/messages", MESSAGES)).status_code == 200
    servers["chat"].completion = COMPLETION
    answer = await servers.post("chat", "/v1/responses", {"input": "x"})
    assert answer.json()["output"][0]["content"][0]["text"] == "hi"
    assert (await servers.post("chat", "/v1/messages", MESSAGES)).json()["content"] == [{"text": "hi", "type": "text"}]
    assert (await servers.get("chat", "/v1/models")).status_code == 404


def events(answer: httpx.Response) -> list[tuple[str, Any]]:
    """(event, payload) of a stream, comments left out."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for piece in answer.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in piece.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines.get("event", ""), lines["data"] if lines["data"] == "[DONE]" else orjson.loads(lines["data"])))
    return found


@pytest.mark.parametrize("stream", [True, "true", 1])
async def test_a_streamed_response_is_replayed_and_its_body_sanitised(deploy: Any, stream: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    inner = {"name": "f", "parameters": {}, "strict": False}
    body = {
        "input": [
            {"role": "developer", "content": "be brief"},
            {"type": "odd"},
            {"role": "user", "content": "x"},
            {"type": "additional_tools", "role": "developer", "tools": [{**FUNCTION, "name": "g"}, {"type": "web_search"}]},
        ],
        "instructions": "first",
        "stream": stream,
        "stream_options": {"include_usage": True},
        "client_metadata": {"a": 1},
        "reasoning": {"effort": "low", "context": "odd"},
        "tools": [{"type": "namespace", "name": "ns", "tools": [inner]}, {"type": "odd"}, {"type": "function", "name": "no_schema"}],
    }
    servers["model"].answer = {**ANSWER, "output": [{"type": "function_call", "name": "ns__f", "call_id": "c", "arguments": "{}"}]}
    answer = await servers.post("model", "/ng-rollout/0-0/v1/responses", body)
    (given,) = servers["model"].calls
    assert [tool["name"] for tool in given["tools"]] == ["ns__f", "g"]
    assert given["instructions"] == "first\n\nbe brief"
    assert given["input"] == [{"role": "user", "content": "x"}]
    assert (given["reasoning"], "stream" in given) == ({"effort": "low"}, False)
    (created, done, completed) = events(answer)
    assert (created[0], created[1]["response"]["status"], created[1]["response"]["output"]) == ("response.created", "in_progress", [])
    assert (done[0], done[1]["output_index"]) == ("response.output_item.done", 0)
    assert (done[1]["item"]["namespace"], done[1]["item"]["name"]) == ("ns", "f")
    assert completed[0] == "response.completed"
    assert completed[1]["response"]["output"] == [done[1]["item"]]
    assert "Model___model" in answer.headers["set-cookie"]


@pytest.mark.parametrize("error", [ValueError("broken"), HTTPError(429, "slow down"), UpstreamError("answered 400", 400)])
async def test_a_streamed_turn_that_fails_is_a_failed_response(deploy: Any, error: Exception) -> None:
    servers = await deploy(model=("ms", Model, {}))
    servers["model"].answer = error
    answer = await servers.post("model", "/v1/responses", {"input": "x", "stream": True})
    assert answer.status_code == 200
    (created, failed) = events(answer)
    assert (created[1]["response"]["status"], failed[0]) == ("in_progress", "response.failed")
    assert failed[1]["response"]["error"]["code"] == "server_error"
    assert failed[1]["response"]["error"]["message"] in ("broken", "slow down", "answered 400")


async def test_a_streamed_completion_is_replayed_and_extensions_dropped(deploy: Any) -> None:
    servers = await deploy(chat=("ms", Chat, {}))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": [call]}
    servers["chat"].completion = {**COMPLETION, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "thinking": {}, "odd": 1, "seed": 3}
    for options, usage in (({}, 0), ({"include_usage": True}, 1)):
        found = events(await servers.post("chat", "/v1/chat/completions", {**body, "stream_options": options}))
        assert [payload["choices"][0]["delta"] for _, payload in found[:5]] == [
            {"role": "assistant"},
            {"reasoning_content": "hm"},
            {"content": "hi"},
            {"tool_calls": [{"index": 0, **call}]},
            {},
        ]
        assert found[4][1]["choices"][0]["finish_reason"] == "tool_calls"
        assert len(found) == 6 + usage
        assert found[-1] == ("", "[DONE]")
    assert servers["chat"].given == {"messages": body["messages"], "seed": 3}


async def test_a_long_streamed_completion_is_kept_alive_and_its_failure_told(deploy: Any) -> None:
    servers = await deploy(settings=Settings(stream_keep_alive_seconds=0.01), chat=("ms", Chat, {}))
    servers["chat"].completion = HTTPError(429, "slow down")
    servers["chat"].released.clear()
    lines = []
    async with servers.http.stream("POST", servers.urls["chat"] + "/v1/chat/completions", json={"messages": [], "stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            servers["chat"].released.set()  # not before a sign of life came
            lines.append(line)
    assert lines[0] == ": keep-alive"
    error = {"message": "HTTP 429: slow down", "type": "invalid_request_error", "code": 429}
    told = [line for line in lines if line and not line.startswith(":")]
    assert told == ["event: error", "data: " + orjson.dumps({"error": error}).decode()]


async def test_a_message_is_made_from_what_responses_answers(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    answer = await servers.post("model", "/ng-rollout/0-0/training-token-capture/v1/messages", MESSAGES)
    assert servers["model"].calls == [
        {"input": [{"role": "user", "content": "x", "type": "message"}], "max_output_tokens": 5, "model": "c"}
    ]
    message = answer.json()
    assert (message["id"], message["model"], message["stop_reason"]) == ("r", "c", "tool_use")
    names = [name for name, _ in events(await servers.post("model", "/v1/messages", {**MESSAGES, "stream": True}))]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_a_block_that_cannot_be_expressed_is_a_500(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    image = {"type": "image", "source": {"type": "url", "url": "https://h/i.png"}}
    for block in (image, {"type": "document"}):
        answer = await servers.post("model", "/v1/messages", {"messages": [{"role": "user", "content": [block]}]})
        assert answer.status_code == 500
        assert "ConversionError" in answer.json()


REFUSAL = b'{"error":{"message":"too long","code":"context"}}'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404, 429, 503])
async def test_an_endpoints_status_is_passed_on_in_the_dialects_form(deploy: Any, status: int, stream: bool) -> None:
    servers = await deploy(model=("ms", Model, {}), chat=("ms", Chat, {}))
    error = UpstreamError(f"answered {status}", status, body=REFUSAL, retry_after="3")
    servers["model"].answer = servers["chat"].completion = error
    told = [
        (await servers.post("chat", "/v1/chat/completions", {"messages": [], "stream": stream}), orjson.loads(REFUSAL)),
        *([] if stream else [(await servers.post("model", "/v1/responses", {"input": "x"}), orjson.loads(REFUSAL))]),
    ]
    for answer, body in told:
        assert (answer.status_code, answer.json(), answer.headers["retry-after"]) == (status, body, "3")
        assert "set-cookie" in answer.headers
    message = await servers.post("model", "/v1/messages", {**MESSAGES, "stream": stream})
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    assert message.status_code == status
    assert message.json() == {"type": "error", "error": {"type": kinds.get(status, "overloaded_error"), "message": "too long"}}


async def test_strict_compatibility_makes_every_refusal_a_500(deploy: Any) -> None:
    servers = await deploy(extra={"compose": {"strict": True}}, model=("ms", Model, {}), chat=("ms", Chat, {}))
    servers["model"].answer = servers["chat"].completion = UpstreamError("answered 400", 400, body=REFUSAL)
    for name, path, body in (
        ("model", "/v1/responses", {"input": "x"}),
        ("model", "/v1/messages", MESSAGES),
        ("chat", "/v1/chat/completions", {"messages": [], "stream": True}),
    ):
        answer = await servers.post(name, path, body)
        assert (answer.status_code, answer.json()) == (500, "UpstreamError('answered 400')")
        assert "set-cookie" not in answer.headers


async def test_an_answer_of_an_endpoint_that_is_no_json_stays_a_500(deploy: Any) -> None:
    servers = await deploy(model=("ms", Model, {}))
    servers["model"].answer = UpstreamError("the answer is not JSON", 200)
    assert (await servers.post("model", "/v1/responses", {"input": "x"})).status_code == 500


async def test_the_api_is_described_with_its_bodies(deploy: Any) -> None:
    servers = await deploy(chat=("ms", Chat, {}))
    document = (await servers.get("chat", "/openapi.json")).json()
    schema = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["$ref"].endswith("/ChatCompletionCreateParams")


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
        ({"messages": [], "stream": 1}, 422),
        ({"messages": [], "tools": [{"type": "odd"}]}, 422),
        ({"messages": [], "tools": [{"type": "function", "function": {}}]}, 422),
        ({"messages": [{"role": "assistant", "content": "x", "prompt_token_ids": [1]}]}, 422),
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


def test_workers_that_a_config_asks_for_are_one_process_of_a_model_server() -> None:
    assert ModelServer.one_process
    assert not Server.one_process
