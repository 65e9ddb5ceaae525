from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_answers import Answers, AnswersConfig
from scripted_dialogues import Dialogues
from scripted_prompt import canonical, content_text, fingerprint, has_tool_output, last_user_text, model_turns, opening, quote
from scripted_rules import (
    AnswersRule,
    ConstantRule,
    DialoguesRule,
    EchoRule,
    FirstToolCallRule,
    ScriptedCall,
    ScriptedReply,
    ScriptedRequest,
    TurnsRule,
    UnscriptedRequestError,
    draw,
    example_value,
    wrong_answer,
)

from gym_compose.wire.errors import InvalidInputError

USER = {"role": "user", "content": "2 + 2?"}
ASSISTANT = {"role": "assistant", "type": "message", "id": "m", "content": [{"type": "output_text", "text": "four", "annotations": []}]}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "4"}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": []}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("2 + 2?", [USER]),
        ([USER], [{"role": "user", "type": "message", "content": [{"type": "input_text", "text": "2 + 2?"}]}]),
        ([USER], [{"role": "user", "content": [{"type": "input_text", "text": "2 + "}, {"type": "input_text", "text": "2?"}]}]),
        ([{"role": "developer", "content": "short"}, USER], [{"role": "system", "content": "short"}, USER]),
        ([USER], [USER, CALL, OUTPUT]),
        ([USER], [USER, REASONING, ASSISTANT]),
    ],
)
def test_equal_questions_have_one_canonical_form(left: object, right: object) -> None:
    assert canonical(left) == canonical(right)


@pytest.mark.parametrize(
    "other", ["2 + 2", "2 + 2? ", [{"role": "system", "content": "2 + 2?"}], [USER, USER], [{"role": "system", "content": ""}, USER]]
)
def test_different_questions_differ(other: object) -> None:
    assert canonical("2 + 2?") != canonical(other)


def test_instructions_are_a_first_system_message() -> None:
    assert canonical([USER], "short") == canonical([{"role": "system", "content": "short"}, USER])


@given(st.lists(st.tuples(st.sampled_from(["user", "system"]), st.text()), max_size=4), st.lists(st.tuples(st.just("user"), st.text())))
def test_fingerprints_are_equal_exactly_for_equal_forms(left: list[tuple[str, str]], right: list[tuple[str, str]]) -> None:
    assert (fingerprint(tuple(left)) == fingerprint(tuple(right))) == (left == right)


def test_an_image_is_part_of_the_question() -> None:
    def ask(url: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]

    assert canonical(ask("a")) != canonical(ask("b"))


def test_content_that_is_no_text_is_empty() -> None:
    assert content_text(None) == ""
    assert content_text(["a", {"text": "b"}]) == "ab"


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ("a string", 0),
        ([USER], 0),
        ([USER, CALL, OUTPUT], 1),
        ([USER, REASONING, CALL, CALL, OUTPUT, OUTPUT], 1),
        ([USER, CALL, OUTPUT, ASSISTANT], 2),
        ([USER, ASSISTANT, USER, CALL, OUTPUT, REASONING, CALL, OUTPUT], 3),
    ],
)
def test_turns_of_the_model_are_runs_of_its_items(items: object, turns: int) -> None:
    assert model_turns(items) == turns


def test_a_long_prompt_is_quoted_in_part() -> None:
    assert len(quote((("user", "x" * 5000),))) == 2001
    assert quote((("user", "hé"),)) == '[{"role":"user","content":"hé"}]'
    assert last_user_text((("system", "s"),)) == ""
    assert has_tool_output([USER, CALL, OUTPUT])
    assert not has_tool_output([USER, CALL])


CONFIG = AnswersConfig(jsonl="answers.jsonl")


def _lines(*rows: object) -> list[bytes]:
    return [orjson.dumps(row) for row in rows]


def test_answers_are_found_by_either_form_of_the_prompt() -> None:
    answers = Answers.parse([*_lines({"prompt": "2 + 2?", "answer": "4"}, {"prompt": [USER], "answer": "4"}), b"\n"], CONFIG)
    assert len(answers) == 1
    assert answers.find(canonical([USER])) == "4"
    assert answers.find(canonical("3 + 3?")) is None


def test_a_dataset_serves_as_answers_by_dotted_keys() -> None:
    row = {"task_input": {"responses_create_params": {"input": [USER]}, "task_data": {"answer": "4"}}}
    config = AnswersConfig(
        jsonl="rows.jsonl", prompt_key="task_input.responses_create_params.input", answer_key="task_input.task_data.answer"
    )
    assert Answers.parse(_lines(row), config).find(canonical("2 + 2?")) == "4"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"{"], "answers.jsonl:1: the line is not JSON"),
        (_lines(1), "answers.jsonl:1: the line has no 'prompt'"),
        (_lines({"prompt": "p"}), "answers.jsonl:1: the line has no 'answer'"),
        (_lines({"prompt": 5, "answer": "a"}), "neither a string nor a list"),
        (_lines({"prompt": "p", "answer": 5}), "'answer' is not a string"),
        (_lines({"prompt": "p", "answer": "a"}, {"prompt": "p", "answer": "b"}), "answers.jsonl:2: the prompt of line 1 comes again"),
        ([], "the answers file holds no answer"),
    ],
)
def test_a_bad_answers_file_is_named_with_its_line(lines: list[bytes], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Answers.parse(lines, CONFIG)
    assert message in str(caught.value)


def test_a_missing_answers_file_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"/nowhere/a\.jsonl: the answers file cannot be read: No such file"):
        Answers.load(AnswersConfig(jsonl="/nowhere/a.jsonl"))


def _rule(accuracy: float, seed: int = 0, count: int = 1) -> AnswersRule:
    return AnswersRule(
        Answers({fingerprint(canonical(f"q{i}")): str(i) for i in range(count)}), accuracy, seed, "<answer>{answer}</answer>"
    )


def test_accuracy_is_met_within_three_sigma() -> None:
    draws, accuracy = 2000, 0.7
    rule = _rule(accuracy, seed=7, count=200)
    right = sum(rule.reply(ScriptedRequest(f"q{number % 200}", sample=str(number // 200))).outcome == "right" for number in range(draws))
    assert abs(right - accuracy * draws) <= 3 * math.sqrt(draws * accuracy * (1 - accuracy))


def test_a_draw_depends_on_seed_prompt_and_sample_and_on_nothing_else() -> None:
    prompt = canonical("q")
    assert draw(1, prompt, "0-0") == draw(1, canonical([{"role": "user", "content": "q"}]), "0-0")
    assert (
        len({draw(1, prompt, "0-0"), draw(2, prompt, "0-0"), draw(1, canonical("r"), "0-0"), draw(1, prompt, "0-1"), draw(1, prompt, None)})
        == 5
    )


def test_repeats_of_a_prompt_come_out_differently() -> None:
    outcomes = {_rule(0.5).reply(ScriptedRequest("q0", sample=f"0-{repeat}")).outcome for repeat in range(20)}
    assert outcomes == {"right", "wrong"}


def test_accuracy_of_one_and_of_zero_are_exact() -> None:
    for repeat in range(50):
        assert _rule(1.0).reply(ScriptedRequest("q0", sample=str(repeat))) == ScriptedReply("<answer>0</answer>", outcome="right")
        assert _rule(0.0).reply(ScriptedRequest("q0", sample=str(repeat))).text == "<answer>?</answer>"


def test_an_unknown_prompt_is_quoted() -> None:
    with pytest.raises(UnscriptedRequestError, match=r'no answer for \[\{"role":"user","content":"what\?"\}\]'):
        _rule(1.0).reply(ScriptedRequest("what?"))


@given(st.text())
def test_a_wrong_answer_never_holds_the_reference(reference: str) -> None:
    wrong = wrong_answer(reference)
    assert wrong != reference
    assert not reference or reference not in wrong


TOOL = {
    "type": "function",
    "name": "add",
    "strict": True,
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["null", "string"]}}},
}


def test_first_tool_call_calls_once_and_then_talks() -> None:
    rule = FirstToolCallRule("Done.")
    assert rule.reply(ScriptedRequest([USER], tools=[{"type": "web_search"}, TOOL])) == ScriptedReply(
        calls=(ScriptedCall("add", '{"a":1,"b":"x"}'),)
    )
    assert rule.reply(ScriptedRequest([USER, CALL, OUTPUT], tools=[TOOL])) == ScriptedReply("Done.")
    assert rule.reply(ScriptedRequest("hi")) == ScriptedReply("Done.")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 3}, 3),
        ({"enum": ["b", "a"]}, "b"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 1.0),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"type": "array"}, []),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "object", "properties": {"o": {"type": "object", "properties": {"n": {"type": "null"}}}}}, {"o": {"n": None}}),
        ({}, "x"),
    ],
)
def test_example_values_fit_their_schema(schema: dict[str, Any], value: object) -> None:
    assert example_value(schema) == value


def test_constant_and_echo() -> None:
    assert ConstantRule("k").reply(ScriptedRequest("q")).text == "k"
    assert EchoRule().reply(ScriptedRequest([USER, ASSISTANT, {"role": "user", "content": "again"}])).text == "again"


def test_scripted_turns_follow_the_conversation_and_end() -> None:
    rule = TurnsRule((ScriptedReply(calls=(ScriptedCall("add", "{}"),)), ScriptedReply("four")))
    assert rule.reply(ScriptedRequest([USER])).calls
    assert rule.reply(ScriptedRequest([USER, CALL, OUTPUT])).text == "four"
    with pytest.raises(UnscriptedRequestError, match="2 turns and the conversation asks for turn 3"):
        rule.reply(ScriptedRequest([USER, CALL, OUTPUT, ASSISTANT, USER]))


SYSTEM = {"role": "system", "content": "short"}
SECOND = {"role": "user", "content": "and 3 + 3?"}
DIALOGUES = _lines(
    {"prompt": [SYSTEM, USER], "turns": [{"calls": [{"name": "add", "arguments": {"a": 2}}]}, {"text": "four"}, {"text": "six"}]},
    {"prompt": "2 + 2?", "turns": [{"text": "4"}]},
)


def test_a_conversation_is_found_by_how_it_begins_and_follows_its_own_script() -> None:
    rule = DialoguesRule(Dialogues.parse([*DIALOGUES, b"\n"], "d.jsonl"))
    assert rule.reply(ScriptedRequest([USER])).text == "4"
    assert rule.reply(ScriptedRequest([SYSTEM, USER])).calls == (ScriptedCall("add", '{"a":2}'),)
    assert rule.reply(ScriptedRequest([USER, CALL, OUTPUT], instructions="short")).text == "four"
    assert rule.reply(ScriptedRequest([SYSTEM, USER, CALL, OUTPUT, ASSISTANT, SECOND])).text == "six"
    with pytest.raises(UnscriptedRequestError, match="has 1 turns and the conversation asks for turn 2"):
        rule.reply(ScriptedRequest([USER, ASSISTANT, SECOND]))
    with pytest.raises(UnscriptedRequestError, match=r'\(2 conversations\) has none that begins with \[\{"role":"user","content":"and'):
        rule.reply(ScriptedRequest([SECOND, ASSISTANT, USER]))


def test_a_prompt_without_a_user_is_its_own_opening() -> None:
    assert opening(canonical([SYSTEM, USER, SECOND])) == canonical([SYSTEM, USER])
    assert opening(canonical([SYSTEM])) == canonical([SYSTEM])
    assert opening(()) == ()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"{"], "d.jsonl:1: the line is no script"),
        (_lines({"prompt": "p"}), "d.jsonl:1: the line is no script: turns"),
        (_lines({"prompt": "p", "turns": []}), "turns"),
        (_lines({"prompt": "p", "turns": [{"txt": "x"}]}), "turns.0.txt"),
        ([*DIALOGUES, *_lines({"prompt": [USER, SECOND], "turns": [{"text": "x"}]})], "d.jsonl:3: the conversation of line 2 begins"),
        ([], "d.jsonl: the dialogues file holds no script"),
    ],
)
def test_a_bad_dialogues_file_is_named_with_its_line(lines: list[bytes], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Dialogues.parse(lines, "d.jsonl")
    assert message in str(caught.value)
