"""What the driver asks the head server before a run: is it ready, what is its config, whose is it (contract-config 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from gym_compose.driver.errors import HeadError
from gym_compose.serving.client import HttpClient, PeerError, Reply
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.head import DeploymentIdentity
from gym_compose.wire.settings import Settings

_HINT = "Start servers with `gym env start` or `gym compose up`, or name another head with head_server.host and head_server.port."


@dataclass(frozen=True)
class Head:
    """A head server that is ready. ``config`` as it says it; ``identity`` None for a peer's own."""

    url: str
    config: Mapping[str, Any]
    identity: DeploymentIdentity | None


async def ask_head(http: HttpClient, url: str, settings: Settings) -> Head:
    """Ask once; a connection that is refused is tried again for ``run_head_seconds``.

    Raises HeadError that says whether the head is gone, not ready (and who is missing) or not a head at all.
    """
    base = url.rstrip("/")
    deadline = Deadline.after(settings.run_head_seconds, "asking the head server")
    ready = await _get(http, base + "/readyz", base, deadline)
    if ready.status == 503:
        raise HeadError(f"the deployment is not ready{_missing(ready)}", where=base, hint="Wait until `gym env status` or /health says ok.")
    answer = await _get(http, base + "/global_config_dict_yaml", base, deadline)
    config = _config(answer, base)
    identity = None
    whose = await _get(http, base + "/gym_compose", base, deadline)
    if whose.status == 200:
        try:
            identity = DeploymentIdentity.model_validate_json(whose.body)
        except ValidationError:
            raise HeadError("what answers /gym_compose is no head server of ours", where=base) from None
    return Head(base, config, identity)


async def _get(http: HttpClient, url: str, base: str, deadline: Deadline) -> Reply:
    try:
        return await http.request("GET", url, deadline=deadline)
    except PeerError as error:
        raise HeadError("no head server answers", where=base, hint=_HINT, details=(str(error),)) from None
    except ValueError as error:
        raise HeadError(f"not a URL that can be asked: {error}", where=base) from None


def _missing(reply: Reply) -> str:
    """What a head of ours says of it: the error that it gave up with, or who is waited for. A peer's only says ``starting``."""
    try:
        report = reply.json()
        if report.get("error"):
            return f": {report['error']}"
        names = ", ".join(str(item["name"]) for item in report.get("waiting") or [])
    except (ValueError, AttributeError, TypeError, KeyError):
        return ""
    return f": waiting for {names}" if names else ""


def _config(answer: Reply, base: str) -> Mapping[str, Any]:
    if answer.status != 200:
        raise HeadError(f"the head server answers {answer.status} to /global_config_dict_yaml", where=base, hint=_HINT)
    try:
        config = yaml.load(orjson.loads(answer.body), Loader=yaml.CSafeLoader)
    except (ValueError, AttributeError, yaml.YAMLError):
        config = None
    if not isinstance(config, Mapping):
        raise HeadError("what answers /global_config_dict_yaml is no config", where=base, hint=_HINT)
    return config
