"""The API's description, made by FastAPI from the endpoints when it is asked for (see ``routes.openapi_routes``)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html

from gym_compose.serving.endpoint import Endpoint


def describe_endpoints(title: str, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of the documented endpoints."""
    app = FastAPI(title=title)
    for endpoint in endpoints:
        if endpoint.documented:
            app.add_api_route(
                endpoint.path,
                _signature(endpoint),
                methods=[endpoint.method],
                name=getattr(endpoint.handler, "__name__", "endpoint"),
                description=inspect.getdoc(endpoint.handler) or "",
                response_model=None,
            )
    document: dict[str, Any] = app.openapi()
    return document


def _signature(endpoint: Endpoint) -> Any:
    """A function that FastAPI reads body and path parameters from."""

    async def described() -> None:
        raise NotImplementedError

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword, annotation=str) for name in endpoint.path_parameters]
    if endpoint.body_type is not None:
        kind = endpoint.describes or (dict[str, Any] if endpoint.body_type is bytes else endpoint.body_type)
        parameters.append(inspect.Parameter("body", keyword, annotation=kind))
    described.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return described


def docs_page(title: str) -> str:
    """The page of ``/docs``."""
    return bytes(get_swagger_ui_html(openapi_url="/openapi.json", title=title).body).decode()
