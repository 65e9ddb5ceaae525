from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest
from aiohttp import web

DIRECTORY = "responses_api_models/openai_model"
KEY = "app-test-key-0123456789"
RESPONSE = {
    "id": "resp_1",
    "created_at": 1,
    "model": "up",
    "object": "response",
    "output": [{"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
COMPLETION = {
    "id": "c",
    "created": 1,
    "model": "up",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
}


@dataclass
class Endpoint:
    """An OpenAI look-alike; ``paths`` are the dialects that it speaks, everything else is a 404."""

    url: str = ""
    paths: dict[str, tuple[int, Any]] = field(default_factory=lambda: {"responses": (200, RESPONSE), "chat/completions": (200, COMPLETION)})
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/v1/")
        self.asked.append((path, await request.json()))
        status, body = self.paths.get(path, (404, {"error": "no such path"}))
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    await runner.cleanup()


Make = Callable[..., httpx.AsyncClient]


@pytest.fixture
def model(serve: Any, endpoint: Endpoint) -> Make:
    def make(**block: Any) -> httpx.AsyncClient:
        basics = {"openai_base_url": endpoint.url, "openai_api_key": KEY, "openai_model": "up"}
        client: httpx.AsyncClient = serve(DIRECTORY, "SimpleModelServer", {**basics, **block}, instance="policy_model")
        return client

    return make


async def test_a_request_passes_with_its_own_fields_and_the_models_name(model: Make, endpoint: Endpoint) -> None:
    answer = await model(extra_body={"temperature": 1.0, "user": "u"}).post(
        "/v1/responses", json={"input": "q", "temperature": 0.0, "model": "x"}
    )
    assert answer.status_code == 200
    assert answer.json()["output"][0]["content"][0]["text"] == "hi"
    assert endpoint.asked == [("responses", {"input": "q", "temperature": 0.0, "model": "up", "user": "u"})]
    assert list(answer.cookies) == ["SimpleModelServer___policy_model"]


async def test_chat_passes_through(model: Make, endpoint: Endpoint) -> None:
    answer = await model().post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "q"}]})
    assert answer.json() == COMPLETION
    assert endpoint.asked == [("chat/completions", {"messages": [{"role": "user", "content": "q"}], "model": "up"})]


async def test_auto_learns_once_that_the_endpoint_has_chat_only(model: Make, endpoint: Endpoint) -> None:
    del endpoint.paths["responses"]
    client = model()
    for _ in range(2):
        answer = await client.post("/v1/responses", json={"input": "q"})
        assert answer.status_code == 200
        assert answer.json()["output"][0]["content"][0]["text"] == "hi"
    assert [path for path, _ in endpoint.asked] == ["responses", "chat/completions", "chat/completions"]


async def test_auto_stays_with_responses_once_they_worked(model: Make, endpoint: Endpoint) -> None:
    client = model()
    await client.post("/v1/responses", json={"input": "q"})
    del endpoint.paths["responses"]
    assert (await client.post("/v1/responses", json={"input": "q"})).status_code == 404
    assert [path for path, _ in endpoint.asked] == ["responses"] * 4


async def test_auto_with_neither_path_makes_the_usual_attempts(model: Make, endpoint: Endpoint) -> None:
    endpoint.paths.clear()
    answer = await model().post("/v1/responses", json={"input": "q"})
    assert (answer.status_code, answer.json()) == (404, {"error": "no such path"})
    assert [path for path, _ in endpoint.asked] == ["responses", "chat/completions", "responses", "responses", "responses"]


async def test_a_404_for_the_models_name_is_no_missing_path(model: Make, endpoint: Endpoint) -> None:
    endpoint.paths["responses"] = (404, {"error": {"code": "model_not_found"}})
    assert (await model().post("/v1/responses", json={"input": "q"})).status_code == 404
    assert [path for path, _ in endpoint.asked] == ["responses"] * 3


async def test_a_fixed_dialect_asks_no_other(model: Make, endpoint: Endpoint) -> None:
    await model(upstream_api="chat_completions").post("/v1/responses", json={"input": "q"})
    assert [path for path, _ in endpoint.asked] == ["chat/completions"]
    del endpoint.paths["responses"]
    await model(upstream_api="responses", max_http_attempts=1).post("/v1/responses", json={"input": "q"})
    assert [path for path, _ in endpoint.asked][1:] == ["responses"]


async def test_what_chat_cannot_say_is_a_500_that_names_it(model: Make) -> None:
    answer = await model(upstream_api="chat_completions").post("/v1/responses", json={"input": "q", "truncation": "auto"})
    assert answer.status_code == 500
    assert "truncation" in answer.json()


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500])
async def test_an_endpoints_status_is_passed_on_without_the_key(model: Make, endpoint: Endpoint, status: int) -> None:
    endpoint.paths["responses"] = (status, {"error": {"message": f"bad thing with {KEY}", "code": "model_not_found"}})
    answer = await model().post("/v1/responses", json={"input": "q"})
    assert (answer.status_code, answer.json()) == (status, {"error": {"message": "bad thing with ****", "code": "model_not_found"}})
    assert len(endpoint.asked) == (1 if status in (400, 401, 422) else 3)


async def test_a_dead_key_keeps_its_status_and_says_that_nothing_is_sent_any_more(model: Make, endpoint: Endpoint) -> None:
    endpoint.paths["responses"] = (401, {"error": {"code": "invalid_api_key", "message": "no"}})
    client = model()
    for _ in range(2):
        answer = await client.post("/v1/responses", json={"input": "q"})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert "until this server restarts" in answer.json()["error"]["message"]
    assert len(endpoint.asked) == 1


async def test_all_dialects_are_served_streaming_included(model: Make, endpoint: Endpoint) -> None:
    client = model()
    messages = {"model": "c", "max_tokens": 5, "messages": [{"role": "user", "content": "q"}]}
    assert (await client.post("/v1/messages", json=messages)).json()["content"] == [{"text": "hi", "type": "text"}]
    assert "message_stop" in (await client.post("/v1/messages", json={**messages, "stream": True})).text
    assert "response.completed" in (await client.post("/v1/responses", json={"input": "q", "stream": True})).text
    chat = {"messages": messages["messages"], "stream": True}
    assert (await client.post("/v1/chat/completions", json=chat)).text.endswith("data: [DONE]\n\n")
    assert all("stream" not in body for _, body in endpoint.asked)


@pytest.mark.parametrize("extra", ["{", "[]"])
async def test_an_extra_body_that_is_no_object_is_refused(model: Make, extra: str) -> None:
    answer = await model(upstream_api="chat_completions").post("/v1/responses", json={"input": "q", "metadata": {"extra_body": extra}})
    assert answer.status_code == 500
    assert "metadata.extra_body is not" in answer.json()


async def test_the_seed_of_a_row_reaches_the_chat(model: Make, endpoint: Endpoint) -> None:
    client = model(upstream_api="chat_completions")
    await client.post("/v1/responses", json={"input": [{"role": "user", "content": "q"}], "metadata": {"extra_body": '{"seed": 3}'}})
    assert endpoint.asked == [("chat/completions", {"messages": [{"role": "user", "content": "q"}], "seed": 3, "model": "up"})]


async def test_reasoning_is_dropped_when_asked_and_nulls_always(model: Make, endpoint: Endpoint) -> None:
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": None},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": None, "namespace": None},
    ]
    await model().post("/v1/responses", json={"input": items})
    await model(drop_input_reasoning_items=True).post("/v1/responses", json={"input": items})
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    assert endpoint.asked[0][1]["input"] == [items[0], {"type": "reasoning", "id": "r", "summary": []}, call]
    assert endpoint.asked[1][1]["input"] == [items[0], call]


async def test_an_unknown_field_reaches_no_endpoint(model: Make, endpoint: Endpoint) -> None:
    assert (await model().post("/v1/responses", json={"input": "q", "unknown": 1})).status_code == 422
    assert endpoint.asked == []


async def test_the_rollout_prefix_is_not_passed_on(model: Make, endpoint: Endpoint) -> None:
    assert (await model().post("/ng-rollout/0-0/v1/responses", json={"input": "q"})).status_code == 200
    assert endpoint.asked[0][0] == "responses"
