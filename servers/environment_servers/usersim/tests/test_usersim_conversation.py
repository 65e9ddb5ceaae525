from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usersim_conversation import Conversation, Rules, StopReason
from usersim_input import ConversationPlan

from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

RULES = Rules(max_turns=3, user_stop_words=("STOP", "###"), assistant_stop_words=("BYE",), end_tools=("hand_over",))


def begin(rules: Rules = RULES, **user: Any) -> Conversation:
    params = ResponsesCreateParams.model_validate({"input": [{"role": "system", "content": "help"}], "temperature": 0.1})
    plan = ConversationPlan.model_validate({"user": {"instructions": "be Ann", **user}})
    return Conversation(params, plan, rules, "begin")


def answer(text: str | None = None, *calls: str, tokens: int = 5) -> ResponsesObject:
    output: list[dict[str, Any]] = []
    for number, name in enumerate(calls):
        output.append({"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": "{}"})
        output.append({"type": "function_call_output", "call_id": f"c{number}", "output": "{}"})
    if text is not None:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        output.append({"type": "message", "id": "m", "role": "assistant", "content": content})
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    body = {"id": "r", "created_at": 1, "model": "m", "object": "response", "output": output, "usage": usage, "status": "completed"}
    return ResponsesObject.model_validate({**body, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})


def seen(params: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(item.get("role") or item["type"], item.get("content")) for item in params["input"]]


def test_roles_are_swapped_for_the_user_and_tools_stay_with_the_assistant() -> None:
    talk = begin()
    assert seen(talk.user_params()) == [("system", "be Ann"), ("user", "begin")]
    talk.say_as_user(" Hello ")
    talk.say_as_assistant(answer("Hi Ann", "look_up"))
    assert seen(talk.user_params()) == [("system", "be Ann"), ("user", "begin"), ("assistant", "Hello"), ("user", "Hi Ann")]
    assert [role for role, _ in seen(talk.assistant_params())] == [
        "system",
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert talk.assistant_params()["temperature"] == 0.1


def test_a_fixed_opening_replaces_the_prompt_that_makes_the_user_begin() -> None:
    talk = begin(opening="Hello")
    talk.say_as_user("Hello")
    talk.say_as_assistant(answer("Hi"))
    assert seen(talk.user_params()) == [("system", "be Ann"), ("assistant", "Hello"), ("user", "Hi")]


@pytest.mark.parametrize(("text", "said"), [("STOP", []), ("thanks STOP more", ["thanks"]), ("a ### b STOP", ["a"]), (" \n STOP", [])])
def test_what_stands_before_a_stop_word_of_the_user_is_said(text: str, said: list[str]) -> None:
    talk = begin()
    talk.say_as_user(text)
    assert talk.stop == "user_stop"
    assert [item["content"] for item in talk.items] == said


@pytest.mark.parametrize(
    ("said", "calls", "stop"),
    [
        ("go on", (), None),
        ("BYE", (), "assistant_stop"),
        ("go on", ("look_up",), None),
        ("go on", ("look_up", "hand_over"), "end_tool"),
        (None, ("hand_over",), "end_tool"),
        (None, ("look_up",), "assistant_error"),
        ("  ", (), "assistant_error"),
        (None, (), "assistant_error"),
    ],
)
def test_what_an_answer_does_to_the_conversation(said: str | None, calls: tuple[str, ...], stop: StopReason | None) -> None:
    talk = begin()
    talk.say_as_user("hello")
    talk.say_as_assistant(answer(said, *calls))
    assert talk.stop == stop
    assert (talk.error is not None) == (stop == "assistant_error")


def test_an_end_in_the_last_turn_is_that_end_and_not_the_limit() -> None:
    talk = begin(Rules(max_turns=1, user_stop_words=(), assistant_stop_words=("BYE",)))
    talk.say_as_user("hello")
    talk.say_as_assistant(answer("BYE"))
    assert talk.stop == "assistant_stop"


def test_the_whole_is_one_response_with_both_sides_and_the_sum_of_its_tokens() -> None:
    talk = begin()
    talk.say_as_user("one")
    talk.say_as_assistant(answer("two", tokens=3))
    talk.say_as_user("three")
    talk.say_as_assistant(answer("four BYE", tokens=9))
    whole = ResponsesObject.model_validate(talk.response("0-0"))
    assert [item["role"] for item in whole.output] == ["user", "assistant", "user", "assistant"]
    assert whole.usage is not None
    assert whole.usage["total_tokens"] == 14
    assert whole.metadata == {"usersim_stop": "assistant_stop"}


def test_a_fault_is_told_within_the_bounds_of_metadata() -> None:
    talk = begin()
    talk.say_as_user("hello")
    talk.fail("x" * 5000)
    whole = ResponsesObject.model_validate(talk.response("7-1"))
    assert (whole.id, whole.status) == ("usersim-7-1", "failed")
    assert whole.metadata == {"usersim_stop": "assistant_error", "usersim_error": "x" * 512}


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=1, max_size=6))
def test_a_conversation_never_takes_more_turns_than_it_may(said: list[tuple[str, str]]) -> None:
    talk = begin()
    for user, assistant in said:
        if talk.stop is None:
            talk.say_as_user(user)
        if talk.stop is None:
            talk.say_as_assistant(answer(assistant))
    assert talk.turns <= RULES.max_turns
    assert talk.stop is not None or talk.turns == len(said) < RULES.max_turns
    ResponsesObject.model_validate(talk.response("0-0"))
