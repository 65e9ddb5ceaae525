from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usersim_checks import components, mentioned, reward
from usersim_transcript import Message, Transcript


@pytest.fixture
def expected(load_app: Callable[[str], ModuleType]) -> Callable[..., Any]:
    return lambda **fields: load_app("resources_servers/usersim").Expected.model_validate(fields)


def talk(*said: str, stop: str = "user_stop", output: tuple[dict[str, Any], ...] = ()) -> Transcript:
    messages = [Message(turn, "assistant", text) for turn, text in enumerate(said, start=1)]
    return Transcript((Message(1, "user", "forty-two roses, please"), *messages), stop, None, output)


@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("14 March", "It comes on 14  march.", True),
        ("14 March", "It comes on 114 March.", False),
        ("four", "fourteen", False),
        ("four", "for four, then", True),
        ("19:00", "at 19:00.", True),
        ("C++", "we like C++!", True),
        ("a.b", "axb", False),
        ("５", "5 eggs", True),
        ("STRASSE", "in der Straße", True),
        ("cannot\nbe", "it cannot be", True),
    ],
)
def test_a_phrase_stands_as_whole_words_whatever_its_form(phrase: str, text: str, found: bool) -> None:
    assert mentioned(phrase, text) is found


@given(st.text(), st.text(), st.text(min_size=1).filter(str.strip))
def test_a_phrase_between_blanks_is_always_found(before: str, after: str, phrase: str) -> None:
    assert mentioned(phrase, f"{before} {phrase} {after}")


def test_what_the_task_does_not_expect_is_no_part_of_the_reward(expected: Any) -> None:
    assert components(expected(), {}, talk("hello")) == {"finished": 1.0}


@pytest.mark.parametrize(
    ("fields", "transcript", "name", "value"),
    [
        ({"facts": ["Monday", ["7 pm", "19:00"]]}, talk("On Monday", "at 19:00"), "facts", 1.0),
        ({"facts": ["Monday", "19:00"]}, talk("On Monday"), "facts", 0.5),
        ({"facts": ["roses"]}, talk("what would you like?"), "facts", 0.0),
        ({"forbidden": ["refund"]}, talk("no refunds"), "forbidden", 1.0),
        ({"forbidden": ["x", "refund"]}, talk("fine", "a Refund it is"), "forbidden", 0.0),
        ({"max_turns": 2}, talk("a", "b"), "turns", 1.0),
        ({"max_turns": 1}, talk("a", "b"), "turns", 0.0),
        ({}, talk("a", stop="max_turns"), "finished", 0.0),
        ({}, talk("a", stop="assistant_error"), "finished", 0.0),
        ({}, talk("a", stop="unknown"), "finished", 0.0),
        ({"stop": ["end_tool"]}, talk("a"), "finished", 0.0),
        ({"stop": ["max_turns"]}, talk("a", stop="max_turns"), "finished", 1.0),
    ],
)
def test_each_part(expected: Any, fields: dict[str, Any], transcript: Transcript, name: str, value: float) -> None:
    assert components(expected(**fields), {}, transcript)[name] == value


def test_orders_are_judged_as_the_tools_left_them(expected: Any) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "cancel_order", "arguments": '{"order_id": "A"}'}
    done = {"type": "function_call_output", "call_id": "c", "output": '{"order_id": "A", "status": "cancelled"}'}
    task = expected(order_status={"A": "cancelled"})
    before = {"A": "processing", "B": "shipped"}
    assert components(task, before, talk("done", output=(call, done)))["orders"] == 1.0
    assert components(task, before, talk("I cancelled it"))["orders"] == 0.0
    assert components(expected(order_status={"B": "shipped"}), before, talk("a"))["orders"] == 1.0


def test_the_reward_is_the_product() -> None:
    assert reward({"finished": 1.0, "facts": 0.5, "forbidden": 1.0}) == 0.5
    assert reward({"finished": 0.0, "facts": 1.0}) == 0.0
