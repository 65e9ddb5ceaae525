"""The head server's endpoints (contract-config 3.1), one application for each listener, and the loop that serves them."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import orjson
from aiohttp import web

from gym_compose.controller.api import API_PATHS, openapi_document, page
from gym_compose.controller.probe import HttpProber
from gym_compose.controller.readiness import Readiness
from gym_compose.controller.views import InnerView, PublishedView, View
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.head import DeploymentIdentity, HeadDocument, HeadSecret, Listen
from gym_compose.wire.settings import Settings

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ALIVE = b'{"status":"ok"}'


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


@web.middleware
async def _json_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Unknown paths and methods answer as the peer's head does: a JSON object with ``detail``."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _json(orjson.dumps({"detail": error.reason}), error.status)


def make_app(view: View, readiness: Readiness, identity: DeploymentIdentity) -> web.Application:
    """The application of one listener."""

    async def alive(_request: web.Request) -> web.Response:
        return _json(_ALIVE)

    async def health(_request: web.Request) -> web.Response:
        return _json(orjson.dumps(readiness.report().model_dump()), 200 if readiness.ready else 503)

    async def config(request: web.Request) -> web.Response:
        return _json(view.config(request.headers.get("Host")))

    async def instances(_request: web.Request) -> web.Response:
        return _json(view.instances(readiness.unreachable()))

    async def whose(_request: web.Request) -> web.Response:
        return _json(orjson.dumps(identity.model_dump()))

    async def schema(_request: web.Request) -> web.Response:
        return _json(orjson.dumps(openapi_document(identity.gym_compose)))

    async def docs(_request: web.Request) -> web.Response:
        return web.Response(text=page(identity.project), content_type="text/html")

    handlers = {
        "/": alive,
        "/livez": alive,
        "/readyz": health,
        "/healthz": health,
        "/health": health,
        "/global_config_dict_yaml": config,
        "/server_instances": instances,
        "/gym_compose": whose,
    }
    app = web.Application(middlewares=[_json_errors])
    for path in API_PATHS:
        app.router.add_get(path, handlers[path])
    app.router.add_get("/openapi.json", schema)
    app.router.add_get("/docs", docs)
    app.router.add_get("/redoc", docs)
    return app


@dataclass(frozen=True)
class Listening:
    """Where the head answers: ``host:port`` of each listener."""

    inside: str
    published: str | None


async def serve(
    document: HeadDocument,
    secret: HeadSecret,
    settings: Settings,
    stop: asyncio.Event,
    *,
    log: Callable[[str], None] = print,
    on_listening: Callable[[Listening], None] | None = None,
) -> None:
    """Serve both listeners and probe until ``stop`` is set.

    Raises PrerequisiteError when an address cannot be bound.
    """
    started = time.time()
    identity = DeploymentIdentity(gym_compose=document.gym_compose, project=document.project, engine=document.engine)
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(HttpProber(settings.probe_parallel))
        readiness = Readiness(document, prober.probe, settings, log=log)
        inside = await _listen(stack, make_app(InnerView(document, secret, started), readiness, identity), document.listen)
        published = None
        if document.listen_published is not None:
            app = make_app(PublishedView(document, started), readiness, identity)
            published = await _listen(stack, app, document.listen_published)
        if on_listening is not None:
            on_listening(Listening(inside, published))
        log(f"head server of {document.project} answers at http://{inside}" + (f" and http://{published}" if published else ""))
        probing = asyncio.create_task(readiness.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({probing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if probing.done():
                probing.result()  # it runs until cancelled, so this raises what ended it
        finally:
            for task in (probing, stopping):
                task.cancel()
            await asyncio.gather(probing, stopping, return_exceptions=True)


async def _listen(stack: AsyncExitStack, app: web.Application, listen: Listen) -> str:
    # shutdown_timeout: open requests are answered from memory, nothing is worth waiting for.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5, keepalive_timeout=75)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, listen.host, listen.port)
    try:
        await site.start()
    except OSError as error:
        reason = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise PrerequisiteError(
            f"cannot listen: {reason}", where=f"{listen.host}:{listen.port}", hint="Set head_server.port to a free one."
        ) from None
    address = runner.addresses[0]
    return f"{address[0]}:{address[1]}"
