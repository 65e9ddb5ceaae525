"""``rollout_collection_driver: module.path:function``: a run's own way of collecting (contract-data 1.1), called on this host."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field

from gym_compose.project.errors import DriverHookError
from gym_compose.project.runs import RunOptions
from gym_compose.wire.references import server_blocks
from gym_compose.wire.settings import Settings

HOOK_KEY = "rollout_collection_driver"


class RolloutCollectionConfig(RunOptions):
    """What a hook gets first: the fields of contract-data 1.2, with ``head_url`` for our own calls. Further keys are attributes too."""

    model_config = ConfigDict(extra="allow", frozen=True)

    prompt_config: str | None = None
    skills: dict[str, Any] | None = None
    require_complete: bool = False
    upload_rollouts: bool = True
    disable_health_check: bool = True
    health_check_workers: int | None = None
    health_check_ignored_checks: list[str] = Field(default_factory=list)
    rollout_collection_driver: str | None = None


Hook = Callable[[RolloutCollectionConfig, dict[str, Any]], Awaitable[object]]


def load_hook(path: str, directory: Path) -> Hook:
    """The function that ``path`` names; its module is looked for where Python looks, and in ``directory`` last.

    Raises DriverHookError when it has another form, cannot be imported, or is nothing that can be called.
    """
    module_name, colon, function_name = path.partition(":")
    if not (module_name and colon and function_name):
        raise DriverHookError(f"{path!r} is not of the form module.path:function", where=HOOK_KEY)
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise DriverHookError(f"module {module_name!r} cannot be imported: {error}", where=HOOK_KEY) from error
    hook = getattr(module, function_name, None)
    if not callable(hook):
        what = "no" if hook is None else "nothing to call as"
        raise DriverHookError(f"module {module_name!r} has {what} {function_name!r}", where=HOOK_KEY)
    return hook  # type: ignore[no-any-return]  # found by name


def run_hook(hook: Hook, options: RunOptions, config: Mapping[str, Any], *, run_id: str, head_url: str, settings: Settings) -> None:
    """Await the hook with its two arguments. The second is the resolved ``config``, with the addresses that work from this host.

    Raises HeadError, and whatever the hook raises.
    """
    fields = RolloutCollectionConfig.model_fields.keys() - RunOptions.model_fields.keys()
    further = {key: config[key] for key in fields if config.get(key) is not None}
    given = RolloutCollectionConfig.model_validate({**options.model_dump(), **further, "run_id": run_id, "head_url": head_url})

    async def call() -> None:
        from gym_compose.driver.head import ask_head
        from gym_compose.serving.client import HttpClient

        async with HttpClient() as http:
            head = await ask_head(http, head_url, settings)
        await hook(given, addressed(config, head.config, head_url))

    asyncio.run(call())


def addressed(config: Mapping[str, Any], seen: Mapping[str, Any], head_url: str) -> dict[str, Any]:
    """A copy of ``config`` whose servers are where the head server's own ``seen`` config says; one without an address there has none."""
    plain: dict[str, Any] = deepcopy(dict(config))
    there = {block.instance: block.fields for block in server_blocks(seen)}
    for block in server_blocks(plain):
        found = there.get(block.instance, {})
        fields = plain[block.instance][block.server_type][block.implementation]
        fields["host"], fields["port"] = found.get("host"), found.get("port")
    url = urlsplit(head_url)
    head = plain.get("head_server")
    plain["head_server"] = {**(head if isinstance(head, Mapping) else {}), "host": url.hostname, "port": url.port}
    return plain
