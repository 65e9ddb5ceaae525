"""A vLLM look-alike, and the server in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest
from aiohttp import web

Json = dict[str, Any]
Make = Callable[..., httpx.AsyncClient]

BASICS: Json = {"api_key": "vllm-test-key-0123456789", "model": "up", "return_token_id_information": False, "uses_reasoning_parser": True}


@dataclass
class VLLM:
    """Answers ``answers[path]``, 404 for other paths; ``asked`` are path and body of each request."""

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, Json]] = field(default_factory=list)

    def chat(self, message: Json, finish: str = "stop", **choice: Any) -> None:
        body = {"id": "c", "object": "chat.completion", "created": 7, "model": "served"}
        body |= {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **choice}]}
        self.answers["/v1/chat/completions"] = (200, body)

    @property
    def body(self) -> Json:
        """What the last request said."""
        return self.asked[-1][1]

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, await request.json()))
        status, body = self.answers.get(request.path, (404, {"error": "no such path"}))
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


@pytest.fixture
async def vllm() -> AsyncIterator[VLLM]:
    made = VLLM()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    made.chat({"content": "hi"})
    yield made
    await runner.cleanup()


@pytest.fixture
def model(serve: Any, vllm: VLLM) -> Make:
    """``model(field=value)``: a client of a server whose block has these fields."""

    def make(**block: Any) -> httpx.AsyncClient:
        client: httpx.AsyncClient = serve(
            "responses_api_models/vllm_model", "VLLMModel", {"base_url": vllm.url, **BASICS, **block}, instance="policy_model"
        )
        return client

    return make
