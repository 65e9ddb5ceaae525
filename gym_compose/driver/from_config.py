"""A run as a library call, as NeMo Gym's ``RolloutCollectionHelper.run_from_config`` is one (contract-data 1.7, 1.17)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from gym_compose.driver.errors import CollectionError
from gym_compose.driver.progress import Event, OnEvent
from gym_compose.driver.record import Outcome
from gym_compose.driver.run import collect
from gym_compose.tasks.prompt import load_prompt
from gym_compose.tasks.rows import ROLLOUT_INDEX, TASK_INDEX
from gym_compose.tasks.skills import skills_reference
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.names import HEAD_PORT_INSIDE
from gym_compose.wire.run import RunRequest
from gym_compose.wire.settings import Settings

_LOOPBACK = "127.0.0.1"
_MADE_HERE = frozenset(("format", "run_id", "head_url", "prompt", "skills_ref"))


def _nothing(_: Event) -> None:
    """For who does not want to hear of it."""


async def run_from_config(
    config: RunRequest | Mapping[str, Any], *, head_url: str | None = None, on_event: OnEvent = _nothing, settings: Settings | None = None
) -> list[dict[str, Any]]:
    """Collect the rollouts of ``input_jsonl_fpath`` into ``output_jsonl_fpath``, as ``gym eval run --no-serve`` does, and return them.

    ``config`` has the keys of contract-data 1.2; others are ignored, relative paths are below the working directory. ``head_url`` is the
    config's ``head_server`` unless given. The list holds all that this call brought, failures and rows that its budget left out too, and
    what an earlier run that it goes on with had completed, by task and rollout index; with ``retain_results_in_memory: false`` it is empty.

    Raises the errors of ``collect``, and CollectionError when the run ended with one; its files are written then.
    """
    request = config if isinstance(config, RunRequest) else request_of(config, head_url)
    results: list[dict[str, Any]] = []

    def keep(outcome: Outcome) -> None:
        results.append(outcome.record)

    summary = await collect(request, on_event, settings=settings, on_outcome=keep if request.retain_results_in_memory else None)
    if summary.error is not None:
        raise CollectionError(summary)
    if request.retain_results_in_memory and request.resume_from_cache:
        known = {_key(record) for record in results}
        with Path(request.output_jsonl_fpath).open("rb") as lines:
            results.extend(record for record in map(orjson.loads, lines) if _key(record) not in known)
    return sorted(results, key=_key)


def request_of(config: Mapping[str, Any], head_url: str | None = None) -> RunRequest:
    """The request that a config stands for. Raises InvalidInputError for values that are none, DatasetError for prompt and skills."""
    values = {key: config[key] for key in RunRequest.model_fields.keys() - _MADE_HERE if config.get(key) is not None}
    values |= {"run_id": f"library-{secrets.token_hex(4)}", "head_url": head_url or _head_of(config)}
    if values.get("limit") == 0:
        del values["limit"]  # falsy: no limit (contract-data 1.2)
    if config.get("prompt_config"):
        prompt = load_prompt(Path(str(config["prompt_config"])))
        values["prompt"] = {"user": prompt.user, "system": prompt.system, "path": prompt.path}
    skills = config.get("skills")
    if isinstance(skills, Mapping) and skills.get("path"):
        values["skills_ref"] = skills_reference(Path(str(skills["path"])), str(skills["path"]))
    try:
        return RunRequest.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInputError(first["msg"], where=".".join(map(str, first["loc"]))) from None


def _head_of(config: Mapping[str, Any]) -> str:
    head = config.get("head_server")
    fields = head if isinstance(head, Mapping) else {}
    return f"http://{fields.get('host') or _LOOPBACK}:{fields.get('port') or HEAD_PORT_INSIDE}"


def _key(record: Mapping[str, Any]) -> tuple[int, int]:
    return record[TASK_INDEX], record[ROLLOUT_INDEX]
