"""The redactor of a deployment, and of a project directory when another command wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from gym_compose.compiler.deployment import Deployment
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.slice import SecretValue


def deployment_redactor(deployment: Deployment) -> Redactor:
    """Knows every secret of the deployment's slices and of its head."""
    values: list[str] = []
    for service in deployment.services:
        if service.secret is not None:
            values.extend(_strings([value.value for value in service.secret.values]))
            values.extend(service.secret.environment.values())
            if service.secret.session_key:
                values.append(service.secret.session_key)
    values.extend(_secret_strings(deployment.head_secret.values))
    return Redactor(values)


def directory_redactor(directory: Path | None) -> Redactor:
    """Knows every secret that the directory's secret files hold.

    A file of another user is left out: who cannot read it cannot have printed it, and a server masks its own output at the source.
    """
    values: list[str] = []
    if directory is not None:
        for file in (*sorted((directory / "slices").glob("*/secret.json")), directory / "head" / "secret.json"):
            try:
                document = orjson.loads(file.read_bytes())
            except (OSError, orjson.JSONDecodeError):
                continue
            if isinstance(document, dict):
                entries = document.get("values")
                for entry in entries if isinstance(entries, list) else ():
                    values.extend(_strings(entry.get("value") if isinstance(entry, dict) else None))
                values.extend(_strings(document.get("environment")))
                values.extend(_strings(document.get("session_key")))
    return Redactor(values)


def _secret_strings(values: tuple[SecretValue, ...]) -> Iterator[str]:
    for value in values:
        yield from _strings(value.value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)  # a key of digits only is a number to YAML
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
