"""A stored rollout as a reader follows it: instructions, messages, tool calls and their results, in order. Texts are cut to a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from gym_compose.wire.run_body import FAILURE_CLASS, FAILURE_MESSAGE, FAILURE_PARTIAL_RESPONSE, ROLLOUT_INDEX, TASK_INDEX

TEXT_LIMIT = 20_000
STEP_LIMIT = 200
_SHOWN_APART = frozenset(("response", "responses_create_params", "ng_trajectory", "ng_model_call_capture", "ng_agent_observations"))

Kind = Literal["system", "developer", "user", "assistant", "reasoning", "tool call", "tool result", "other"]


class Step(BaseModel):
    """One item of a conversation. ``title`` is the tool's name, or an item's type where we know no better."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    title: str = ""
    text: str


class Conversation(BaseModel):
    """One rollout, or one failed attempt. ``fields`` are the record's other fields as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: int
    rollout: int
    reward: float | None = None
    masked: bool = False
    failure: str | None = None
    message: str | None = None
    steps: tuple[Step, ...] = ()
    fields: str = ""


def conversation(record: Mapping[str, Any]) -> Conversation:
    """What a record tells. Anything that is not as it should be is shown as the JSON that it is."""
    steps = list(_cut(_steps(record)))
    reward = record.get("reward")
    failure = record.get(FAILURE_CLASS)
    message = record.get(FAILURE_MESSAGE)
    rest = {name: value for name, value in record.items() if name not in _SHOWN_APART}
    return Conversation(
        task=record[TASK_INDEX],
        rollout=record[ROLLOUT_INDEX],
        reward=float(reward) if isinstance(reward, int | float) else None,
        masked=bool(record.get("mask_sample")),
        failure=None if failure is None else str(failure),
        message=None if message is None else _bounded(str(message)),
        steps=tuple(steps),
        fields=_bounded(_json(rest)),
    )


def _cut(steps: Iterator[Step]) -> Iterator[Step]:
    for number, step in enumerate(steps):
        if number == STEP_LIMIT:
            yield Step(kind="other", title="cut", text=f"{1 + sum(1 for _ in steps)} more items are in the file.")
            return
        yield step


def _steps(record: Mapping[str, Any]) -> Iterator[Step]:
    params = record.get("responses_create_params")
    if isinstance(params, dict):
        if params.get("instructions"):
            yield Step(kind="system", text=_content(params["instructions"]))
        asked = params.get("input")
        if isinstance(asked, str):
            yield Step(kind="user", text=_bounded(asked))
        elif isinstance(asked, list):
            yield from map(_step, asked)
    response = record.get("response") or record.get(FAILURE_PARTIAL_RESPONSE)
    output = response.get("output") if isinstance(response, dict) else None
    if isinstance(output, list):
        yield from map(_step, output)
    elif response is not None:
        yield Step(kind="other", title="response", text=_bounded(_json(response)))


def _step(item: Any) -> Step:
    if not isinstance(item, dict):
        return Step(kind="other", text=_bounded(_json(item)))
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        known: Kind = role if role in ("system", "developer", "user", "assistant") else "other"
        return Step(kind=known, title="" if known != "other" else str(role), text=_content(item.get("content")))
    if kind == "function_call":
        return Step(kind="tool call", title=str(item.get("name", "")), text=_content(item.get("arguments")))
    if kind == "function_call_output":
        return Step(kind="tool result", text=_content(item.get("output")))
    if kind == "reasoning":
        return Step(kind="reasoning", text=_content(item.get("summary") or item.get("content") or ""))
    return Step(kind="other", title=str(kind), text=_bounded(_json(item)))


def _content(content: Any) -> str:
    """Text, a list of text parts, or anything else as JSON; what is no text (images, files) by its type and size."""
    if isinstance(content, str):
        return _bounded(content)
    if not isinstance(content, list):
        return _bounded(_json(content)) if content is not None else ""
    parts = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif isinstance(part, dict) and isinstance(part.get("refusal"), str):
            parts.append(part["refusal"])
        else:
            kind = part.get("type", "part") if isinstance(part, dict) else "part"
            parts.append(f"[{kind}, {len(_json(part))} characters]")
    return _bounded("\n".join(parts))


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        return "(nested too deep to be shown)"  # JSON is read to 1,024 levels and written to 254


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}\n[{len(text) - TEXT_LIMIT} more characters are in the file]"
