"""Create params (strict, 30 fields) and Responses objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject, add_usage

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "peer_run" / "example_single_tool_call" / "rollouts.jsonl"
MINIMAL = {
    "id": "r",
    "created_at": 1,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def test_params_have_thirty_fields() -> None:
    full = ResponsesCreateParams.model_validate({"input": "x"}).full()
    assert len(full) == 30
    assert {key: value for key, value in full.items() if value is not None} == {
        "input": "x",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared golden data is not here")
def test_a_record_of_the_peer_is_its_own_full_form() -> None:
    for line in GOLDEN.read_text().splitlines():
        record = json.loads(line)
        params = ResponsesCreateParams.model_validate(record["responses_create_params"])
        response = ResponsesObject.model_validate(record["response"])
        assert json.dumps(params.full()) == json.dumps(record["responses_create_params"])
        assert json.dumps(response.full()) == json.dumps(record["response"])


def test_only_given_fields_are_sent_on_as_they_came() -> None:
    given = {"temperature": 0, "input": [{"role": "user", "content": "x"}], "store": None}
    params = ResponsesCreateParams.model_validate(given)
    assert params.given_fields() == {"input": [{"role": "user", "content": "x"}], "store": None, "temperature": 0.0}
    assert params.full()["input"] == [{"content": "x", "role": "user", "type": "message", "phase": None}]


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"input": None},
        {"input": [{"type": "nope"}]},
        {"stream": True},
        {"stream": "true"},
        {"tool_choice": "sometimes"},
        {"metadata": {"a": 1}},
        {"temperature": "hot"},
        {"truncation": "maybe"},
        {"tools": [{"type": "function", "name": "f"}]},
        {"parallel_tool_calls": None},
    ],
)
def test_params_that_do_not_fit(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ResponsesCreateParams.model_validate({"input": "x", **change})


def test_the_place_of_a_bad_item_is_named() -> None:
    with pytest.raises(ValidationError) as caught:
        ResponsesCreateParams.model_validate({"input": [{"role": "user", "content": "x"}, {"type": "message", "role": "user"}]})
    places = [entry["loc"] for entry in caught.value.errors()]
    assert any(place[0] == "input" and place[-1] == 1 for place in places)


def test_a_string_input_is_one_user_message() -> None:
    assert ResponsesCreateParams.model_validate({"input": "x"}).items() == [{"role": "user", "content": "x"}]
    listed = [{"role": "system", "content": "y"}]
    assert ResponsesCreateParams.model_validate({"input": listed}).items() == listed


@pytest.mark.parametrize("missing", list(MINIMAL))
def test_a_response_needs_its_eight_fields(missing: str) -> None:
    with pytest.raises(ValidationError, match=missing):
        ResponsesObject.model_validate({key: value for key, value in MINIMAL.items() if key != missing})


def test_views_of_a_response() -> None:
    output = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
        {"type": "message", "role": "assistant", "content": "b"},
        {"type": "message", "role": "user", "content": "not the model's"},
        {"type": "message", "id": "n", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]
    response = ResponsesObject.model_validate({**MINIMAL, "output": output, "provider_field": 1})
    assert [call["call_id"] for call in response.function_calls()] == ["c"]
    assert len(response.assistant_messages()) == 3
    assert response.output_text() == "ab"
    assert list(response.full())[-1] == "provider_field"
    assert len(response.full()) == 34


USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        (USAGE, {**USAGE, "input_tokens_details": {"cached_tokens": None}, "output_tokens_details": {"reasoning_tokens": None}}),
        (
            {**USAGE, "input_tokens_details": {"cached_tokens": 4, "x": 1}, "cost": 0.5},
            {
                **USAGE,
                "input_tokens_details": {"cached_tokens": 4, "x": 1},
                "output_tokens_details": {"reasoning_tokens": None},
                "cost": 0.5,
            },
        ),
    ],
)
def test_usage_is_completed(usage: Any, expected: Any) -> None:
    assert ResponsesObject.model_validate({**MINIMAL, "usage": usage}).usage == expected


@pytest.mark.parametrize("usage", [5, {}, {**USAGE, "input_tokens": None}, {**USAGE, "total_tokens": True}])
def test_usage_that_does_not_fit(usage: Any) -> None:
    with pytest.raises(ValidationError, match="usage"):
        ResponsesObject.model_validate({**MINIMAL, "usage": usage})


def counts(cached: int | None, reasoning: int | None) -> dict[str, Any]:
    return {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": 15,
    }


@pytest.mark.parametrize(
    ("left", "right", "cached", "reasoning"), [((1, 2), (3, 4), 4, 6), ((None, 2), (3, 4), None, 6), ((1, 2), (3, None), 4, None)]
)
def test_usage_sums_and_an_unknown_detail_stays_unknown(left: Any, right: Any, cached: int | None, reasoning: int | None) -> None:
    total = add_usage(counts(*left), counts(*right))
    assert total is not None
    assert (total["input_tokens"], total["output_tokens"], total["total_tokens"]) == (20, 10, 30)
    assert total["input_tokens_details"] == {"cached_tokens": cached}
    assert total["output_tokens_details"] == {"reasoning_tokens": reasoning}


def test_usage_of_one_side_only() -> None:
    one = counts(1, 1)
    assert add_usage(None, None) is None
    assert add_usage(one, None) == add_usage(None, one) == one
    assert add_usage(one, None) is not one
