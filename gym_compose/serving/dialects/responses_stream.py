"""Streaming ``/v1/responses``: what clients such as the Codex CLI send made a strict body, the answer replayed (contract-servers 4.1).

Such clients group tools in namespaces, bring tools inside the input and send fields of their own. A rollout must not die of these, so what
no backend here can express is left out with a line in the log, and what it can express under another name is renamed and, in the
answer, named back.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gym_compose.serving.dialects.errors import message_of
from gym_compose.serving.dialects.events import event
from gym_compose.wire.items import check_input_item, check_tool
from gym_compose.wire.responses import ResponsesCreateParams

Json = dict[str, Any]
Namespaces = dict[str, tuple[str, str]]
"""Joined name of a function to its namespace and its name there."""

SEPARATOR: Final = "__"
_FIELDS = frozenset(ResponsesCreateParams.model_fields)
_NESTED: Final[Mapping[str, frozenset[str]]] = {
    "reasoning": frozenset({"effort", "generate_summary", "summary"}),
    "text": frozenset({"format", "verbosity"}),
}
"""Fields below these that backends know; newer clients send more (``reasoning.context``)."""

_log = logging.getLogger(__name__)


def sanitised(body: Mapping[str, Any]) -> tuple[Json, Namespaces]:
    """``body`` as a strict body is written, and how to name calls back. What is malformed beyond that is for the body's check to refuse."""
    clean: Json = {name: value for name, value in body.items() if name in _FIELDS and name not in ("stream", "stream_options")}
    namespaces: Namespaces = {}
    if "tools" in clean:
        clean["tools"] = [tool for tool in _flat(clean["tools"], namespaces) if _fits(tool)]
    for name, known in _NESTED.items():
        if isinstance(clean.get(name), dict):
            clean[name] = {key: value for key, value in clean[name].items() if key in known}
    if isinstance(clean.get("input"), list):
        _sanitise_input(clean, namespaces)
    return clean, namespaces


def _sanitise_input(clean: Json, namespaces: Namespaces) -> None:
    kept: list[Json] = []
    for item in clean["input"]:
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            flat = _flat(item.get("tools"), namespaces)
            brought = [tool for tool in flat if isinstance(tool, dict) and tool.get("type") == "function" and _fits(tool)]
            if brought:
                clean["tools"] = [*(clean.get("tools") or []), *brought]
            continue
        if isinstance(item, dict) and item.get("type") == "function_call" and item.get("namespace"):
            # As the model saw it: the tool stands there under its joined name.
            item = {name: value for name, value in item.items() if name != "namespace"} | {
                "name": f"{item['namespace']}{SEPARATOR}{item.get('name')}"
            }
        try:
            kept.append(check_input_item(item))
        except ValueError as error:
            _log.warning("an input item is left out of a streaming request: %s", error)
    lead = [clean.get("instructions") or ""]
    while kept and kept[0].get("type") in (None, "message") and kept[0].get("role") in ("system", "developer"):
        lead.append(_text(kept.pop(0).get("content")))
    instructions = "\n\n".join(part for part in lead if part)
    if instructions:
        clean["instructions"] = instructions
    clean["input"] = kept


def _flat(tools: Any, namespaces: Namespaces) -> Iterator[Any]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict) or tool.get("type") != "namespace":
            yield tool
            continue
        space = str(tool.get("name") or "")
        for inner in tool.get("tools") or ():
            if isinstance(inner, dict) and inner.get("name"):
                joined = f"{space}{SEPARATOR}{inner['name']}"
                namespaces[joined] = (space, str(inner["name"]))
                yield {**inner, "type": "function", "name": joined}


def _fits(tool: Any) -> bool:
    try:
        check_tool(tool)
    except ValueError as error:
        _log.warning("a tool is left out of a streaming request: %s", error)
        return False
    return True


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or () if part.get("type") in ("input_text", "output_text", "text"))


def named_back(items: list[Json], namespaces: Namespaces) -> list[Json]:
    """``items`` with calls of joined names as the client knows them."""
    done = []
    for item in items:
        if item.get("type") == "function_call" and item.get("name") in namespaces:
            space, name = namespaces[item["name"]]
            item = {**item, "namespace": space, "name": name}
        done.append(item)
    return done


def response_events(response: Json, namespaces: Namespaces) -> Iterator[bytes]:
    """A whole Responses object as the events of its stream."""
    output = named_back(response["output"], namespaces)
    yield _event("response.created", 0, response={**response, "status": "in_progress", "output": []})
    for index, item in enumerate(output):
        yield _event("response.output_item.done", index + 1, output_index=index, item=item)
    yield _event("response.completed", len(output) + 1, response={**response, "output": output})


def failure_events(error: Exception) -> Iterator[bytes]:
    """A backend failure: the client sees a turn that failed, not a stream that broke."""
    response: Json = {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": message_of(error)},
    }
    yield _event("response.created", 0, response={**response, "status": "in_progress"})
    yield _event("response.failed", 1, response=response)


def _event(kind: str, number: int, **fields: Any) -> bytes:
    return event({"type": kind, "sequence_number": number, **fields}, kind)
