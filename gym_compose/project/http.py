"""The head server over HTTP, from outside. The one module with httpx (its pool is quadratic: field-notes), so control calls only."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from gym_compose.wire.head import DeploymentIdentity, HealthReport, InstanceRecord
from gym_compose.wire.settings import Settings

_INSTANCES = TypeAdapter(tuple[InstanceRecord, ...])


class HeadClient:
    """Asks one head server. A context manager; every request is bounded by ``settings.control_seconds``.

    No answer is None, not an exception: for whoever waits, a refused connection is a fact like another. ``last_error`` says why.
    Proxies of the environment are not used: the head is on this host or named by the user.
    """

    def __init__(self, url: str, settings: Settings, *, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self.last_error: str | None = None
        self._client = httpx.Client(
            base_url=self.url,
            timeout=settings.control_seconds,
            limits=httpx.Limits(max_connections=settings.control_pool),
            trust_env=False,
            transport=transport,
        )

    def __enter__(self) -> HeadClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def health(self) -> HealthReport | None:
        """``GET /health``: the report in a 200 or a 503. A peer's head answers ``{"status": …}`` only; the rest is filled in."""
        response = self._get("/health")
        if response is None:
            return None
        try:
            body = response.json()
            status = body["status"]
        except (ValueError, KeyError, TypeError):
            self.last_error = f"HTTP {response.status_code} without a health report"
            return None
        try:
            return HealthReport.model_validate(body)
        except ValidationError:
            phase = "ready" if status == "ok" else "servers"
            return HealthReport(status=str(status), phase=phase, elapsed_seconds=0.0)

    def instances(self) -> tuple[InstanceRecord, ...] | None:
        """``GET /server_instances``."""
        response = self._get("/server_instances")
        if response is None:
            return None
        try:
            return _INSTANCES.validate_python(response.json())
        except (ValueError, ValidationError):
            self.last_error = f"HTTP {response.status_code} without a list of server instances"
            return None

    def identity(self) -> DeploymentIdentity | None:
        """``GET /gym_compose``: whose deployment this is; None for a peer's own head as for no answer (``last_error`` tells them apart)."""
        response = self._get("/gym_compose")
        if response is None:
            return None
        try:
            return DeploymentIdentity.model_validate(response.json())
        except (ValueError, ValidationError):
            return None

    def config_text(self) -> str | None:
        """``GET /global_config_dict_yaml``: the merged config as YAML text (the body is a JSON string; contract-config 3.1)."""
        response = self._get("/global_config_dict_yaml")
        if response is None:
            return None
        try:
            text: Any = json.loads(response.content)
        except ValueError:
            text = None
        if not isinstance(text, str):
            self.last_error = f"HTTP {response.status_code} without a config"
            return None
        return text

    def answers(self) -> bool:
        """Whether anything that speaks HTTP is there."""
        return self._get("/livez") is not None

    def _get(self, path: str) -> httpx.Response | None:
        try:
            response = self._client.get(path)
        except httpx.HTTPError as error:
            self.last_error = str(error) or type(error).__name__
            return None
        self.last_error = None
        return response
