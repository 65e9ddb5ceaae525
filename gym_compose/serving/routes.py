"""Routes that every server has: liveness, the API's description, and the shape of 404 and 405 (contract-servers 1.3)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gym_compose.serving.endpoint import Endpoint
from gym_compose.serving.errors import send_json

HEALTH_PATHS = ("/", "/health", "/healthz", "/livez", "/readyz")
_OK = b'{"status":"ok"}'


class _Health:
    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, _OK)


def health_routes() -> list[BaseRoute]:
    """200 as soon as the process listens; nothing is asked of its peers. They stand after a server's own routes."""
    return [Route(path, _Health(), methods=["GET"], include_in_schema=False) for path in HEALTH_PATHS]


async def http_error(_request: Request | None, error: Exception) -> Response:
    """``{"detail": …}`` for an HTTPException."""
    assert isinstance(error, HTTPException)
    return Response(
        orjson.dumps({"detail": error.detail}), status_code=error.status_code, headers=error.headers, media_type="application/json"
    )


def openapi_routes(title: str, endpoints: Sequence[Endpoint]) -> list[BaseRoute]:
    """``/openapi.json`` and ``/docs``. FastAPI draws both, and is imported when somebody asks: it is 12 MB of a server's memory."""

    async def describe(_request: Request) -> Response:
        from gym_compose.serving.openapi import describe_endpoints

        return Response(orjson.dumps(describe_endpoints(title, endpoints)), media_type="application/json")

    async def docs(_request: Request) -> Response:
        from gym_compose.serving.openapi import docs_page

        return HTMLResponse(docs_page(title))

    return [Route("/openapi.json", describe, include_in_schema=False), Route("/docs", docs, include_in_schema=False)]
