"""A rollout told in order; odd ones shown as they are, long ones cut."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.rollouts.conversation import STEP_LIMIT, TEXT_LIMIT, conversation
from tests.unit.rollouts.conftest import record

KEYS = st.sampled_from(["type", "role", "content", "text", "output", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def kinds(told: Any) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in told.steps]


def test_messages_tools_and_reasoning_in_order() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "output": "r"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"type": "mcp_call", "name": "m"},
    ]
    params = {"instructions": "i", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:xyz"}]}]}
    told = conversation(record(1, 2, 0.5, responses_create_params=params, response={"output": output}, note="n"))
    assert kinds(told)[0] == ("system", "i")
    assert re.fullmatch(r"\[input_image, \d+ characters\]", told.steps[1].text)
    assert kinds(told)[2:6] == [("reasoning", "hm"), ("tool call", "{}"), ("tool result", "r"), ("assistant", "a\nb")]
    assert (told.steps[6].kind, told.steps[6].title) == ("other", "mcp_call")
    assert (told.task, told.rollout, told.reward) == (1, 2, 0.5)
    assert '"note": "n"' in told.fields


def test_a_failure_shows_its_message_and_the_part_that_there_is() -> None:
    partial = {"output": [{"role": "assistant", "content": "half"}]}
    failed = {**record(0, 0), "_ng_failure_class": "c", "_ng_failure_message": "m", "_ng_failure_partial_response": partial}
    told = conversation(failed)
    assert (told.failure, told.message, kinds(told)) == ("c", "m", [("assistant", "half")])


def test_an_input_that_is_one_text() -> None:
    assert kinds(conversation(record(0, 0, responses_create_params={"input": "q"}))) == [("user", "q")]


def test_long_texts_and_many_items_are_cut_and_say_so() -> None:
    output = [
        {"type": "message", "role": "assistant", "content": "x" * (TEXT_LIMIT + 7)},
        *({"role": "user", "content": "y"} for _ in range(STEP_LIMIT + 9)),
    ]
    told = conversation(record(0, 0, response={"output": output}))
    assert told.steps[0].text.endswith("[7 more characters are in the file]")
    assert told.steps[-1].text == "10 more items are in the file."
    assert len(told.steps) == STEP_LIMIT + 1


@given(params=JSON, response=JSON)
def test_no_record_is_too_odd(params: Any, response: Any) -> None:
    conversation(record(0, 0, responses_create_params=params, response=response))


@pytest.mark.parametrize("content", [None, 5, {"a": 1}])
def test_content_of_another_kind(content: Any) -> None:
    conversation(record(0, 0, response={"output": [{"role": "user", "content": content}]}))


def test_what_is_nested_too_deep_to_be_written_is_said_to_be() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    told = conversation(record(0, 0, response={"output": [{"type": "function_call_output", "call_id": "c", "output": {"x": deep}}]}))
    assert "nested too deep" in str(told)
