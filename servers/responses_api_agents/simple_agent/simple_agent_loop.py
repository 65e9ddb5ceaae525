"""The loop between a model and its tools (contract-servers 3.2). It knows no HTTP: asking and calling are given to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gym_compose.wire.items import JsonObject, complete_output_item
from gym_compose.wire.responses import ResponsesObject, add_usage


class AskModel(Protocol):
    """One turn: the conversation so far in, the model's answer out. Its errors end the loop."""

    async def __call__(self, conversation: list[JsonObject], /) -> ResponsesObject: ...


class CallTool(Protocol):
    """One tool call; what it returns is the tool's output, whatever the status was. Its errors end the loop."""

    async def __call__(self, name: str, arguments: Any, /) -> str: ...


@dataclass(frozen=True)
class Loop:
    """How long it goes on. ``max_steps`` bounds the turns of the model (None or 0: no bound).

    Without ``execute_tools`` the first turn that calls a tool ends the loop, its calls unanswered.
    """

    max_steps: int | None = None
    execute_tools: bool = True

    async def run(self, conversation: Sequence[JsonObject], ask: AskModel, call_tool: CallTool) -> ResponsesObject:
        """The model's last answer with ``output`` (all turns and tool outputs in order) and ``usage`` (summed) of the whole loop."""
        made: list[JsonObject] = []
        usage: JsonObject | None = None
        step = 0
        while True:
            step += 1
            response = await ask([*conversation, *made])
            output = response.output
            made.extend(output)
            usage = add_usage(usage, response.usage)
            if response.incomplete_details:
                break
            calls = response.function_calls()
            if not calls:
                if not response.assistant_messages():
                    _mark_silent(response)
                break
            if not self.execute_tools:
                break
            for call in calls:
                answer = {"type": "function_call_output", "call_id": call["call_id"], "output": await _answer(call, call_tool)}
                made.append(complete_output_item(answer))
            if self.max_steps and step >= self.max_steps:
                break
        response.output = made
        response.usage = usage
        return response


async def _answer(call: Mapping[str, Any], call_tool: CallTool) -> str:
    try:
        arguments = json.loads(call["arguments"])
    except json.JSONDecodeError as error:
        return json.dumps({"error": f"Invalid tool call arguments: {error!r}"})
    return await call_tool(call["name"], arguments)


def _mark_silent(response: ResponsesObject) -> None:
    """A turn that says nothing and calls nothing, though no truncation was reported: a stop token in the wrong place."""
    response.status = "incomplete"
    response.metadata = {
        **(response.metadata or {}),
        "ng_termination_reason": "incomplete_reasoning" if response.output else "empty_output",
        "ng_termination_message": "The model ended its turn without a message and without a tool call, and no truncation was reported.",
    }
