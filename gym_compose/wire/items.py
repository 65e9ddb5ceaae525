"""Items and tools of the Responses API as plain mappings: what is checked, what is filled in (contract-servers 2.7, contract-data 1.10).

Items stay the mappings they came as: a rollout passes each of them through five servers, and a union of thirty models would be built and
taken apart in each. ``check_input_item`` refuses or returns its argument unchanged, so that a body is sent on as it came; ``complete_*``
give the form that records hold: every field of the item, in the field's order, unset ones null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

JsonObject = dict[str, Any]

STATUSES: Final = frozenset({"in_progress", "completed", "incomplete"})
PHASES: Final = frozenset({"commentary", "final_answer"})
ROLES: Final = frozenset({"user", "assistant", "system", "developer"})

# Hosted and client-executed item types that are passed on without a look inside.
OPAQUE_TYPES: Final = frozenset(
    {
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "file_search_call",
        "web_search_call",
        "computer_call",
        "computer_call_output",
        "image_generation_call",
        "code_interpreter_call",
        "local_shell_call",
        "local_shell_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "compaction",
        "compaction_trigger",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "additional_tools",
    }
)
UNTYPED: Final = "untyped"
"""What ``input_type`` says of an item without a type whose form nobody can tell: it passes as it came, as in the peer, whose
chat-shaped turns (``{"role": "tool", …}``) come this way."""
INPUT_PARTS: Final = frozenset({"input_text", "input_image", "input_file", "input_audio", "input_video"})
OUTPUT_PARTS: Final = frozenset({"output_text", "refusal"})

TOOL_TYPES: Final = frozenset(
    {
        "function",
        "file_search",
        "computer",
        "computer_use_preview",
        "web_search",
        "web_search_2025_08_26",
        "mcp",
        "code_interpreter",
        "image_generation",
        "local_shell",
        "shell",
        "custom",
        "namespace",
        "tool_search",
        "web_search_preview",
        "web_search_preview_2025_03_11",
        "apply_patch",
    }
)

# Token metadata is all or nothing (contract-servers 2.7, 4.5).
TOKEN_FIELDS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
TOKEN_EXTRA: Final = "routed_experts"


def _required(item: Mapping[str, Any], key: str, kind: type | tuple[type, ...], what: str) -> Any:
    if key not in item:
        raise ValueError(f"{what}: field {key!r} is missing")
    value = item[key]
    if not isinstance(value, kind):
        raise ValueError(f"{what}: field {key!r} has the wrong type ({type(value).__name__})")
    return value


def _among(value: Any, allowed: frozenset[str]) -> bool:
    return isinstance(value, str) and value in allowed


def _one_of(item: Mapping[str, Any], key: str, allowed: frozenset[str], what: str) -> None:
    value = item.get(key)
    if value is not None and not _among(value, allowed):
        raise ValueError(f"{what}: {key} must be one of {', '.join(sorted(allowed))}")


def check_tokens(item: Mapping[str, Any]) -> None:
    """Raises ValueError when an item or message has a part of the token metadata only."""
    if not any(field in item for field in (*TOKEN_FIELDS, TOKEN_EXTRA)):
        return
    missing = [field for field in TOKEN_FIELDS if field not in item]
    if missing:
        raise ValueError(f"token metadata is all or nothing: {', '.join(missing)} missing")
    for field in TOKEN_FIELDS:
        if not isinstance(item[field], list):
            raise ValueError(f"token metadata: {field} must be a list")


def _check_part(part: Any, allowed: frozenset[str], what: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not _among(kind, allowed):
        raise ValueError(f"{what}: a content part needs a type of {', '.join(sorted(allowed))}")
    if kind == "refusal":
        _required(part, "refusal", str, "refusal part")
    elif kind in ("input_text", "output_text"):
        _required(part, "text", str, f"{kind} part")
        if kind == "output_text":
            _required(part, "annotations", list, "output_text part")
    elif kind == "input_video":
        _check_video(part)


def _check_video(part: Mapping[str, Any]) -> None:
    given = [part[key] for key in ("video_url", "video") if key in part]
    url = given[0].get("url") if len(given) == 1 and isinstance(given[0], dict) else given[0] if len(given) == 1 else None
    if not isinstance(url, str) or not url.strip():
        raise ValueError("input_video part: exactly one of video_url and video must hold a URL")


def _shape(item: Mapping[str, Any]) -> str:
    """Which of the three message forms an item of type message has."""
    content = item.get("content")
    if item.get("role") in ("user", "system", "developer"):
        return "input_message" if isinstance(content, list) and _among(item.get("status"), STATUSES) else "easy_message"
    if isinstance(content, list):
        first = content[0] if content else None
        if isinstance(first, dict) and (_among(first.get("type"), OUTPUT_PARTS) or ("type" not in first and "refusal" in first)):
            return "output_message"
        if not content and isinstance(item.get("id"), str):
            return "output_message"
    return "easy_message"


def _check_message(item: Mapping[str, Any]) -> None:
    if _shape(item) == "output_message":
        _required(item, "id", str, "output message")
        _one_of(item, "role", frozenset({"assistant"}), "output message")
        _one_of(item, "status", STATUSES, "output message")
        for part in _required(item, "content", list, "output message"):
            _check_part(part, OUTPUT_PARTS, "output message")
    else:
        if not _among(item.get("role"), ROLES):
            raise ValueError(f"message: role must be one of {', '.join(sorted(ROLES))}")
        content = _required(item, "content", (str, list), "message")
        if isinstance(content, list):
            for part in content:
                _check_part(part, INPUT_PARTS, "message")
    _one_of(item, "phase", PHASES, "message")


def _check_function_call(item: Mapping[str, Any]) -> None:
    for key in ("arguments", "call_id", "name"):
        _required(item, key, str, "function_call")
    _one_of(item, "status", STATUSES, "function_call")


def _check_function_call_output(item: Mapping[str, Any]) -> None:
    _required(item, "call_id", str, "function_call_output")
    _required(item, "output", (str, list), "function_call_output")
    _one_of(item, "status", STATUSES, "function_call_output")


def _check_reasoning(item: Mapping[str, Any]) -> None:
    _required(item, "id", str, "reasoning")
    for entry in _required(item, "summary", list, "reasoning"):
        if not isinstance(entry, dict):
            raise ValueError("reasoning: a summary entry must be an object")
        _required(entry, "text", str, "reasoning summary")


_CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], None]]] = {
    "message": _check_message,
    "function_call": _check_function_call,
    "function_call_output": _check_function_call_output,
    "reasoning": _check_reasoning,
}


def input_type(item: Mapping[str, Any]) -> str:
    """The type of an input item; of one without ``type`` what its fields tell, in the peer's order, or ``UNTYPED``."""
    if "type" in item:
        kind = item["type"]
        return kind if isinstance(kind, str) else repr(kind)
    content = item.get("content")
    spoken = _first_part_type(content)
    if _among(item.get("role"), ROLES) and isinstance(content, str | list):
        if _shape(item) == "output_message":
            return "message" if isinstance(item.get("id"), str) else UNTYPED
        return UNTYPED if _among(spoken, OUTPUT_PARTS) else "message"
    if (
        "role" not in item
        and isinstance(item.get("id"), str)
        and isinstance(content, list)
        and (not content or _among(spoken, OUTPUT_PARTS))
    ):
        return "message"
    if "arguments" in item and "name" in item:
        return "function_call" if "call_id" in item else "mcp_call"
    if isinstance(item.get("call_id"), str) and "output" in item:
        return "function_call_output"
    if isinstance(item.get("id"), str) and isinstance(item.get("summary"), list):
        return "reasoning"
    return UNTYPED


def _first_part_type(content: Any) -> Any:
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return None
    return first.get("type") or ("refusal" if "refusal" in first else None)


def check_input_item(item: Any) -> JsonObject:
    """``item``, unchanged but for what an endpoint writes into its answers and takes in no request (contract-servers 4.1).

    Raises ValueError when it is no item that a request may hold.
    """
    if not isinstance(item, dict):
        raise ValueError("an input item must be an object")
    kind = input_type(item)
    check = _CHECKS.get(kind)
    if check is not None:
        check(item)
    elif kind not in OPAQUE_TYPES and kind != UNTYPED:
        raise ValueError(f"unknown input item type {kind!r}")
    check_tokens(item)
    if kind == "additional_tools" and item.get("role") != "developer":
        return {**item, "role": "developer"}
    if kind == "computer_call_output" and item.get("status") == "failed":
        return {name: value for name, value in item.items() if name != "status"}
    return item


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    done = []
    for part in content:
        kind = part.get("type")
        if kind == "output_text":
            done.append({"annotations": part["annotations"], "text": part["text"], "type": kind, "logprobs": part.get("logprobs")})
        elif kind == "input_text":
            done.append({"text": part["text"], "type": kind})
        elif kind == "refusal":
            done.append({"refusal": part["refusal"], "type": kind})
        else:
            done.append(part)
    return done


def _complete_message(item: Mapping[str, Any]) -> JsonObject:
    form = _shape(item)
    if form == "easy_message":
        return {"content": _parts(item["content"]), "role": item["role"], "type": "message", "phase": item.get("phase")}
    if form == "input_message":
        return {"content": _parts(item["content"]), "role": item["role"], "status": item["status"], "type": "message"}
    return {
        "id": item["id"],
        "content": _parts(item["content"]),
        "role": "assistant",
        "status": item.get("status") or "completed",
        "type": "message",
        "phase": item.get("phase"),
    }


def _complete(item: Mapping[str, Any], kind: str) -> JsonObject:
    if kind == "message":
        done = _complete_message(item)
    elif kind == "function_call":
        done = {
            "arguments": item["arguments"],
            "call_id": item["call_id"],
            "name": item["name"],
            "type": kind,
            "id": item.get("id"),
            "status": item.get("status"),
            "namespace": item.get("namespace"),
        }
    elif kind == "function_call_output":
        done = {
            "call_id": item["call_id"],
            "output": item["output"],
            "type": kind,
            "id": item.get("id"),
            "status": item.get("status"),
        }
    elif kind == "reasoning":
        done = {
            "id": item["id"],
            "summary": item["summary"],
            "type": kind,
            "encrypted_content": item.get("encrypted_content"),
            "content": item.get("content"),
        }
    else:
        return dict(item)
    if TOKEN_FIELDS[0] in item and kind != "function_call_output":
        return {field: item.get(field) for field in (*TOKEN_FIELDS, TOKEN_EXTRA)} | done
    return done


def complete_input_item(item: JsonObject) -> JsonObject:
    """A checked input item with every field of its form."""
    return _complete(item, input_type(item))


def complete_output_item(item: Any) -> JsonObject:
    """An item of an answer, checked and with every field of its form. Types that are not known pass as they are.

    Raises ValueError when it has no ``type`` or lacks a field of its type.
    """
    if not isinstance(item, dict):
        raise ValueError("an output item must be an object")
    kind = item.get("type")
    if not isinstance(kind, str):
        raise ValueError("an output item needs a type")
    check = _CHECKS.get(kind)
    if check is not None:
        check(item)
    check_tokens(item)
    return _complete(item, kind)


def _check_function_tool(tool: Mapping[str, Any]) -> None:
    _required(tool, "name", str, "function tool")
    for key, kind in (("parameters", dict), ("strict", bool)):
        if key not in tool:
            raise ValueError(f"function tool {tool['name']!r}: field {key!r} is missing")
        if tool[key] is not None and not isinstance(tool[key], kind):
            raise ValueError(f"function tool {tool['name']!r}: field {key!r} has the wrong type")


def check_tool(tool: Any) -> JsonObject:
    """A tool of a request: fields of a function tool in the field's order, others as they came.

    ``parameters`` and ``strict`` of a function tool may be null but must stand there. A null ``defer_loading``, as answers hold it,
    becomes false, the only form that a request may send again.
    """
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise ValueError("a tool must be an object with a type")
    if tool["type"] not in TOOL_TYPES:
        raise ValueError(f"unknown tool type {tool['type']!r}")
    if tool["type"] != "function":
        return tool
    _check_function_tool(tool)
    done = {"name": tool["name"], "parameters": tool["parameters"], "strict": tool["strict"], "type": "function"}
    if "defer_loading" in tool:
        done["defer_loading"] = tool["defer_loading"] or False
    if "description" in tool:
        done["description"] = tool["description"]
    return done


def complete_tool(tool: Any) -> JsonObject:
    """A tool of an answer. Raises ValueError as ``check_tool``."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise ValueError("a tool must be an object with a type")
    if tool["type"] != "function":
        return tool
    _check_function_tool(tool)
    return {
        "name": tool["name"],
        "parameters": tool["parameters"],
        "strict": tool["strict"],
        "type": "function",
        "defer_loading": tool.get("defer_loading"),
        "description": tool.get("description"),
    }
