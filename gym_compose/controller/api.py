"""What the head server says of its own interface: /openapi.json, and a page for /docs that needs no network."""

from __future__ import annotations

import html
from typing import Any

from pydantic.json_schema import models_json_schema

from gym_compose.wire.head import DeploymentIdentity, HealthReport, InstanceRecord

API_PATHS: dict[str, str] = {
    "/": "Alive.",
    "/livez": "Alive.",
    "/readyz": "Ready: 503 with who is missing, then 200.",
    "/healthz": "Ready: 503 with who is missing, then 200.",
    "/health": "Ready: 503 with who is missing, then 200.",
    "/global_config_dict_yaml": "The merged config: a JSON string that holds YAML.",
    "/server_instances": "The servers of the deployment and their addresses.",
    "/gym_compose": "Whose deployment this is.",
}
_HEALTH = ("/readyz", "/healthz", "/health")


def openapi_document(version: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document of the endpoints."""
    reference = "#/components/schemas/{model}"
    models = [(HealthReport, "serialization"), (InstanceRecord, "serialization"), (DeploymentIdentity, "serialization")]
    names, definitions = models_json_schema(models, ref_template=reference)  # type: ignore[arg-type]  # literals widen in the list
    schemas = {model.__name__: schema for (model, _mode), schema in names.items()}
    answers: dict[str, Any] = {path: {"type": "object"} for path in API_PATHS}
    answers.update(dict.fromkeys(_HEALTH, schemas["HealthReport"]))
    answers["/global_config_dict_yaml"] = {"type": "string"}
    answers["/server_instances"] = {"type": "array", "items": schemas["InstanceRecord"]}
    answers["/gym_compose"] = schemas["DeploymentIdentity"]
    paths = {}
    for path, text in API_PATHS.items():
        answer = {"description": text, "content": {"application/json": {"schema": answers[path]}}}
        responses = {"200": answer, **({"503": answer} if path in _HEALTH else {})}
        paths[path] = {"get": {"summary": text, "responses": responses}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "gym_compose head server", "version": version},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def page(project: str) -> str:
    """A plain page that lists the endpoints."""
    rows = "".join(f'<tr><td><a href="{path}">{path}</a></td><td>{html.escape(text)}</td></tr>' for path, text in API_PATHS.items())
    title = f"Head server of {html.escape(project)}"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
    return f"{head}<body><h1>{title}</h1><table>{rows}</table></body></html>"
