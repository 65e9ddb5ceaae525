"""The opaque relay of ``legacy_agent``: bytes in, bytes out, nothing read (contract-config 5.7, contract-data 2.7)."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from gym_compose.serving.call import Call
from gym_compose.serving.client import Reference, ServerClient
from gym_compose.wire.deadline import Deadline

# Headers of one hop: they describe this connection or this framing. Cookies travel apart, so that they are not sent twice.
HOP_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "cookie", "host", "keep-alive", "transfer-encoding", "upgrade"}
)


async def relay(client: ServerClient, server: Reference | str, path: str, call: Call, deadline: Deadline = Deadline(None)) -> Response:  # noqa: B008
    """Hand a request on to ``POST path`` of another server and its answer back: status, body, headers (each ``Set-Cookie`` kept).

    An error status is an answer like any other. Raises PeerError when there was no answer.
    """
    headers = {name: value for name, value in call.headers.items() if name.lower() not in HOP_HEADERS}
    reply = await client.post(server, path, data=call.body, headers=headers, cookies=call.cookies, deadline=deadline)
    response = Response(reply.body, status_code=reply.status)
    response.raw_headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers if name.lower() not in HOP_HEADERS
    ]
    response.raw_headers.append((b"content-length", str(len(reply.body)).encode()))
    return response
