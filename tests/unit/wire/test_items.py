"""Items and tools: what is refused, what is filled in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.wire.items import (
    OPAQUE_TYPES,
    UNTYPED,
    check_input_item,
    check_tool,
    complete_input_item,
    complete_output_item,
    complete_tool,
    input_type,
)

TEXT = {"type": "output_text", "text": "a", "annotations": []}
TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [0.1]}

INPUT = [
    # as sent, as records hold it
    ({"role": "user", "content": "x"}, {"content": "x", "role": "user", "type": "message", "phase": None}),
    (
        {"type": "message", "role": "assistant", "content": "x", "phase": "final_answer"},
        {"content": "x", "role": "assistant", "type": "message", "phase": "final_answer"},
    ),
    (
        {"role": "user", "content": [{"type": "input_text", "text": "x", "cache": 1}]},
        {"content": [{"text": "x", "type": "input_text"}], "role": "user", "type": "message", "phase": None},
    ),
    (
        {"role": "user", "status": "completed", "content": [{"type": "input_image", "image_url": "data:"}]},
        {"content": [{"type": "input_image", "image_url": "data:"}], "role": "user", "status": "completed", "type": "message"},
    ),
    (
        {"type": "message", "id": "m", "role": "assistant", "content": [TEXT, {"type": "refusal", "refusal": "no", "x": 1}]},
        {
            "id": "m",
            "content": [{"annotations": [], "text": "a", "type": "output_text", "logprobs": None}, {"refusal": "no", "type": "refusal"}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        },
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"arguments": "{}", "call_id": "c", "name": "f", "type": "function_call", "id": None, "status": None, "namespace": None},
    ),
    (
        {"call_id": "c", "output": "o"},
        {"call_id": "c", "output": "o", "type": "function_call_output", "id": None, "status": None},
    ),
    (
        {"id": "r", "summary": [{"type": "summary_text", "text": "s"}], "status": "completed"},
        {"id": "r", "summary": [{"type": "summary_text", "text": "s"}], "type": "reasoning", "encrypted_content": None, "content": None},
    ),
    ({"type": "web_search_call", "id": "w", "anything": 1}, {"type": "web_search_call", "id": "w", "anything": 1}),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "dropped": 1, **TOKENS, "routed_experts": "x"},
        {
            **TOKENS,
            "routed_experts": "x",
            "arguments": "{}",
            "call_id": "c",
            "name": "f",
            "type": "function_call",
            "id": None,
            "status": None,
            "namespace": None,
        },
    ),
]


@pytest.mark.parametrize(("sent", "full"), INPUT)
def test_input_items_pass_unchanged_and_are_completed_in_the_fields_order(sent: dict[str, Any], full: dict[str, Any]) -> None:
    before = repr(sent)
    assert check_input_item(sent) is sent
    done = complete_input_item(sent)
    assert done == full
    assert list(done) == list(full)
    assert repr(sent) == before
    assert complete_input_item(done) == done


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("x", "must be an object"),
        ({"type": "message", "role": "robot", "content": "x"}, "role must be one of"),
        ({"type": "message"}, "role must be one of"),
        ({"type": "message", "role": []}, "role must be one of"),
        ({"role": "user", "content": "x", "phase": []}, "phase must be one of"),
        ({"type": "message", "role": "user"}, "field 'content' is missing"),
        ({"type": "message", "role": "user", "content": 5}, "field 'content' has the wrong type"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "a content part needs a type of"),
        ({"role": "user", "content": ["x"]}, "a content part needs a type of"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "field 'text' is missing"),
        ({"role": "user", "content": "x", "phase": "late"}, "phase must be one of"),
        ({"type": "message", "role": "assistant", "content": [TEXT]}, "field 'id' is missing"),
        (
            {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            "'annotations' is missing",
        ),
        ({"type": "message", "id": "m", "role": "assistant", "content": [TEXT], "status": "odd"}, "status must be one of"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "field 'arguments' is missing"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "field 'arguments' has the wrong type"),
        ({"type": "function_call_output", "call_id": "c"}, "field 'output' is missing"),
        ({"type": "reasoning", "summary": []}, "field 'id' is missing"),
        ({"type": "reasoning", "id": "r", "summary": ["x"]}, "a summary entry must be an object"),
        ({"type": "no_such_item"}, "unknown input item type 'no_such_item'"),
        ({"type": "item_reference", "id": "x"}, "unknown input item type 'item_reference'"),
        ({"type": 5}, "unknown input item type '5'"),
        ({"type": None, "role": "user", "content": "x"}, "unknown input item type 'None'"),
        ({"role": "user", "content": [{"type": "input_video"}]}, "input_video part"),
        ({"role": "user", "content": [{"type": "input_video", "video": "u", "video_url": "u"}]}, "input_video part"),
        ({"role": "user", "content": "x", "prompt_token_ids": [1]}, "generation_token_ids, generation_log_probs missing"),
        ({"role": "user", "content": "x", **TOKENS, "generation_log_probs": "x"}, "generation_log_probs must be a list"),
        ({"role": "user", "content": "x", "routed_experts": 1}, "all or nothing"),
    ],
)
def test_input_items_that_are_none(item: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_input_item(item)


def test_hosted_items_are_not_looked_into() -> None:
    for kind in OPAQUE_TYPES:
        item = {"type": kind, "role": "developer", "whatever": [1]}
        assert complete_input_item(check_input_item(item)) == item


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "user"},
        {"role": "assistant", "content": [TEXT]},
        {"call_id": "c", "arguments": 5},
        {"server_label": "s"},
    ],
)
def test_an_item_without_type_whose_form_nobody_can_tell_passes_as_it_came(item: dict[str, Any]) -> None:
    assert input_type(item) == UNTYPED
    assert check_input_item(item) is item
    assert complete_input_item(item) == item


@pytest.mark.parametrize(
    ("answered", "sent"),
    [
        ({"type": "additional_tools", "role": "assistant", "tools": []}, {"type": "additional_tools", "role": "developer", "tools": []}),
        ({"type": "computer_call_output", "call_id": "c", "status": "failed"}, {"type": "computer_call_output", "call_id": "c"}),
    ],
)
def test_what_only_answers_may_say_is_taken_out_of_a_replayed_item(answered: dict[str, Any], sent: dict[str, Any]) -> None:
    before = dict(answered)
    assert check_input_item(answered) == sent
    assert answered == before


@pytest.mark.parametrize("item", [{"id": "x"}, {"type": None}, {"type": 5}, "x", None])
def test_an_output_item_needs_a_type(item: Any) -> None:
    with pytest.raises(ValueError):
        complete_output_item(item)


def test_output_items_of_types_not_known_here_pass() -> None:
    assert complete_output_item({"type": "brand_new", "x": 1}) == {"type": "brand_new", "x": 1}


def tool(**changes: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", "parameters": {}, "strict": True, **changes}


@pytest.mark.parametrize(
    ("given", "sent", "full"),
    [
        (tool(), ["name", "parameters", "strict", "type"], None),
        (tool(description="d"), ["name", "parameters", "strict", "type", "description"], "d"),
        (tool(defer_loading=None, description="d"), ["name", "parameters", "strict", "type", "defer_loading", "description"], "d"),
        (tool(parameters=None, strict=None), ["name", "parameters", "strict", "type"], None),
    ],
)
def test_function_tools(given: dict[str, Any], sent: list[str], full: Any) -> None:
    checked = check_tool(given)
    assert list(checked) == sent
    assert checked.get("defer_loading") in (None, False)
    if "defer_loading" in checked:
        assert checked["defer_loading"] is False  # null is what answers hold; a request may not
    assert complete_tool(given)["description"] == full
    assert list(complete_tool(given)) == ["name", "parameters", "strict", "type", "defer_loading", "description"]


@pytest.mark.parametrize(
    "given",
    [
        {key: value for key, value in tool().items() if key != "strict"},
        {key: value for key, value in tool().items() if key != "parameters"},
        {key: value for key, value in tool().items() if key != "name"},
        tool(strict="yes"),
        tool(parameters=[]),
        {"name": "f"},
        "x",
    ],
)
def test_tools_that_do_not_fit(given: Any) -> None:
    for check in (check_tool, complete_tool):
        with pytest.raises(ValueError):
            check(given)


def test_a_tool_of_a_type_that_nobody_knows_is_refused_in_requests_only() -> None:
    with pytest.raises(ValueError, match="unknown tool type 'odd'"):
        check_tool({"type": "odd"})
    assert complete_tool({"type": "odd"}) == {"type": "odd"}


def test_other_tools_pass_as_they_are() -> None:
    given = {"type": "web_search", "filters": None}
    assert check_tool(given) is given
    assert complete_tool(given) is given


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "role", "content", "id", "summary", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(json_values)
def test_anything_is_an_item_or_a_value_error(value: Any) -> None:
    try:
        item = check_input_item(value)
    except ValueError:
        return
    assert complete_input_item(item).get("type") or input_type(item) == UNTYPED
