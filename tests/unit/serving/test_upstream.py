from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web

from gym_compose.serving.client import HttpClient, PeerDropped, PeerUnreachable, PoolOptions
from gym_compose.serving.upstream import (
    MissingPathError,
    PermanentUpstreamError,
    Upstream,
    UpstreamError,
    address,
    error_codes,
    is_dead_key,
    is_missing_path,
)

KEY = "very-secret-key-1"


@dataclass
class Endpoint:
    """An endpoint that answers from a script and keeps what it was sent."""

    url: str = ""
    script: list[tuple[int, Any]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    active: int = 0
    peak: int = 0
    hold: float = 0.0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, {k.lower(): v for k, v in request.headers.items()}, await request.json()))
        self.active += 1
        self.peak = max(self.peak, self.active)
        await asyncio.sleep(self.hold)
        self.active -= 1
        status, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if status == 0:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(
            status=status or 200, body=body if isinstance(body, bytes) else orjson.dumps(body), content_type="application/json"
        )


@pytest.fixture
async def upstream() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    await runner.cleanup()


@pytest.fixture
async def endpoint_of(upstream: Endpoint) -> AsyncIterator[Callable[..., Upstream]]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with HttpClient() as http:
        yield lambda **options: Upstream(http, upstream.url, KEY, sleep=sleep, **options)


async def test_a_call_carries_key_headers_and_body(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(200, {"id": "x"})]
    endpoint = endpoint_of(headers={"X-Team": "blue", "Authorization": "Bearer other"})
    assert await endpoint.post("/responses", {"input": "q"}) == {"id": "x"}
    path, headers, body = upstream.requests[0]
    assert (path, body) == ("/v1/responses", {"input": "q"})
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-team"] == "blue"


@pytest.mark.parametrize("status", [404, 408, 429, 500, 502, 503, 504, 520])
async def test_a_status_that_may_pass_is_tried_three_times(status: int, upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(status, {"error": {"message": "later"}})]
    with pytest.raises(UpstreamError, match=f"answered {status}"):
        await endpoint_of().post("/responses", {})
    assert len(upstream.requests) == 3


async def test_a_later_attempt_may_succeed(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(503, {}), (200, {"id": "x"})]
    assert await endpoint_of().post("/responses", {}) == {"id": "x"}


@pytest.mark.parametrize("status", [400, 401, 403, 422])
async def test_a_refusal_is_tried_once(status: int, upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(status, {"error": {"message": "no"}})]
    endpoint = endpoint_of()
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await endpoint.post("/responses", {})
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error": {"code": "invalid_api_key"}}),
        (403, {"error": {"type": "authentication_error"}}),
        (401, {"message": "Incorrect API key provided"}),
        (429, {"error": {"code": "insufficient_quota"}}),
        (429, {"error": {"type": "budget_exceeded"}}),
    ],
)
async def test_a_dead_key_ends_all_calls(status: int, body: Any, upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(status, body)]
    endpoint = endpoint_of()
    for _ in range(3):
        with pytest.raises(PermanentUpstreamError, match="until this server restarts"):
            await endpoint.post("/responses", {})
    assert len(upstream.requests) == 1


async def test_the_key_stands_in_no_error_and_no_log_line(
    upstream: Endpoint, endpoint_of: Callable[..., Upstream], caplog: pytest.LogCaptureFixture
) -> None:
    upstream.script = [(500, {"error": f"you sent {KEY}"}), (401, {"error": {"code": "invalid_api_key", "message": f"{KEY} is no key"}})]
    endpoint = endpoint_of(headers={"X-Other": "second-secret"})
    with caplog.at_level(logging.DEBUG), pytest.raises(PermanentUpstreamError) as caught:
        await endpoint.post("/responses", {})
    for text in (str(caught.value), caplog.text, repr(endpoint)):
        assert KEY not in text
        assert "second-secret" not in text
    assert "you sent ****" in caplog.text


async def test_a_connection_that_breaks_is_not_tried_again(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(0, {})]
    with pytest.raises(PeerDropped):
        await endpoint_of().post("/responses", {})
    assert len(upstream.requests) == 1


async def test_a_missing_path_is_final_when_asked(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(404, b"Not Found")]
    with pytest.raises(MissingPathError):
        await endpoint_of().post("/responses", {}, missing_path_is_final=True)
    assert len(upstream.requests) == 1


async def test_concurrent_requests_are_bounded(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script, upstream.hold = [(200, {})], 0.02
    endpoint = endpoint_of(max_concurrent=2)
    await asyncio.gather(*(endpoint.post("/responses", {}) for _ in range(8)))
    assert upstream.peak == 2


@pytest.mark.parametrize("body", [b"<html>", b"[1]"])
async def test_an_answer_that_is_no_object_is_an_error(body: bytes, upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(200, body)]
    with pytest.raises(UpstreamError, match="the answer is not"):
        await endpoint_of().post("/responses", {})


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (b'{"error":{"code":"A","type":"b"}}', {"a", "b"}),
        (b'{"error":"Spent"}', {"spent"}),
        (b'{"error":null}', set()),
        (b"[]", set()),
        (b"x", set()),
    ],
)
def test_error_codes(body: bytes, codes: set[str]) -> None:
    assert error_codes(body) == codes


def test_verdicts_on_statuses() -> None:
    assert not is_dead_key(429, b'{"error":{"code":"rate_limit_exceeded"}}')
    assert not is_dead_key(401, b'{"error":{"code":"expired"}}')
    assert not is_missing_path(404, b'{"error":{"code":"model_not_found"}}')
    assert is_missing_path(405, b"")


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("http://host/v1", "http://host/v1/responses"),
        ("http://host:8000/v1/", "http://host:8000/v1/responses"),
        ("https://host", "https://host/responses"),
        ("https://host/v1?api-key=k&v=2", "https://host/v1/responses?api-key=k&v=2"),
        ("https://user:p@ss@host:1/v1", "https://host:1/v1/responses"),
    ],
)
def test_the_path_stands_below_the_base_url_and_before_its_query(base_url: str, expected: str) -> None:
    assert address(base_url, "/responses") == expected


async def test_an_error_has_status_and_masked_body(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(400, {"error": {"message": f"no {KEY}"}})]
    with pytest.raises(UpstreamError) as caught:
        await endpoint_of().post("/responses", {})
    assert caught.value.status == 400
    assert orjson.loads(caught.value.body) == {"error": {"message": "no ****"}}


async def test_tokenize_stands_beside_v1(upstream: Endpoint, endpoint_of: Callable[..., Upstream]) -> None:
    upstream.script = [(200, {"tokens": [1]})]
    assert await endpoint_of().tokenize({"prompt": "x"}) == {"tokens": [1]}
    assert upstream.requests[0][0] == "/tokenize"


async def test_a_refused_connection_can_be_bounded(unused_tcp_port: int) -> None:
    async with HttpClient(PoolOptions(connect_retry_seconds=0.001)) as http:
        upstream = Upstream(http, f"http://127.0.0.1:{unused_tcp_port}/v1", KEY, connect_retries=3)
        with pytest.raises(PeerUnreachable):
            await upstream.post("/responses", {})
