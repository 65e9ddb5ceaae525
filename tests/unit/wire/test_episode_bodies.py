"""Bodies of the episode protocol, failure kinds, ids of run bodies."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gym_compose.wire import failures
from gym_compose.wire.episodes import AgentSeedRequest, EpisodeFailure, EpisodeResponse, SingleAgentTurnFailure, ToolAccess, overlay
from gym_compose.wire.failures import FAILURE_KINDS, check_failure_kind, cut_reason, is_registered
from gym_compose.wire.run_body import rollout_key
from gym_compose.wire.sessions import cookie_name

IDENTITY: dict[str, Any] = {"episode_id": {"rollout_id": "0-0", "attempt": 0}, "task_id": {"taskset": "t", "task_id": "1"}}
FAILURE = {"failure_reason": "why", "terminal": False}


def test_kind_and_stage_are_left_out_when_unset() -> None:
    assert EpisodeFailure.model_validate(FAILURE).model_dump(mode="json") == FAILURE
    full = {**FAILURE, "failure_kind": "session_lost", "stage": "seed"}
    assert EpisodeFailure.model_validate(full).model_dump(mode="json") == full
    turn = SingleAgentTurnFailure.model_validate({**FAILURE, "stage": "cleanup"})
    assert turn.model_dump(mode="json") == {**FAILURE, "stage": "cleanup", "partial_response": None}


@pytest.mark.parametrize("change", [{"terminal": None}, {"stage": "later"}, {"failure_reason": "x" * 2001}, {"extra": 1}])
def test_failures_that_do_not_fit(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EpisodeFailure.model_validate({**FAILURE, **change})


@pytest.mark.parametrize("change", [{}, {"result": None, "failure": None}, {"result": {"reward": 1}, "failure": FAILURE}])
def test_an_answer_has_exactly_one_of_result_and_failure(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        EpisodeResponse.model_validate({**IDENTITY, **change})


def test_answers() -> None:
    assert EpisodeResponse.model_validate({**IDENTITY, "result": {"reward": 1}}).failure is None
    failed = EpisodeResponse.model_validate({**IDENTITY, "failure": {**FAILURE, "partial_response": {"id": "r"}}})
    assert isinstance(failed.failure, SingleAgentTurnFailure)


DIRECT = {"kind": "direct_http", "name": "r.direct_http", "required": True, "base_url": "http://r.gym:8000"}
MCP = {"kind": "mcp", "name": "r", "required": False, "connection": {"transport": "streamable_http", "url": "http://r.gym:8000/mcp"}}
ACCESS: TypeAdapter[Any] = TypeAdapter(ToolAccess)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "grpc"},
        {"name": ""},
        {"name": ".x"},
        {"name": "a b"},
        {"base_url": "/x"},
        {"base_url": "ftp://x"},
        {"extra": 1},
        {"required": None},
    ],
)
def test_tool_accesses_that_do_not_fit(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ACCESS.validate_python({**DIRECT, **change})


def test_a_seeds_grants_replace_the_configs_by_name() -> None:
    own = [ACCESS.validate_python(MCP), ACCESS.validate_python({**DIRECT, "name": "mine"})]
    granted = [ACCESS.validate_python({**MCP, "required": True}), ACCESS.validate_python(DIRECT)]
    merged = overlay(own, granted)
    assert [(access.name, access.required) for access in merged] == [("r", True), ("mine", True), ("r.direct_http", True)]


def test_two_grants_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="same name"):
        AgentSeedRequest.model_validate({**IDENTITY, "agent_session_id": "a", "tool_accesses": [DIRECT, DIRECT]})


def test_there_are_twenty_two_registered_kinds() -> None:
    assert len(FAILURE_KINDS) == 22
    assert all(is_registered(kind) for kind in FAILURE_KINDS)


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("my_server:odd_thing", True),
        ("a:b1", True),
        ("odd", False),
        ("A:b", False),
        ("a:b\n", False),
        ("a:", False),
        ("a:b:c", False),
        ("judge_failed\n", False),
        ("1a:b", False),
    ],
)
def test_extension_kinds(kind: str, known: bool) -> None:
    assert is_registered(kind) is known


def test_an_unknown_kind_passes_with_one_warning_per_process(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_warned", set())
    with caplog.at_level(logging.WARNING):
        assert [check_failure_kind("odd") for _ in range(3)] == ["odd"] * 3
        assert check_failure_kind(None) is None
        assert check_failure_kind("judge_failed") == "judge_failed"
    assert len(caplog.records) == 1


def test_reasons_are_cut() -> None:
    assert len(cut_reason("x" * 5000)) == 2000


def test_cookie_names() -> None:
    assert cookie_name("SimpleAgent", "my_agent") == "SimpleAgent___my_agent"


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({}, None),
        ({"_ng_task_index": 1}, None),
        ({"_ng_task_index": 0, "_ng_rollout_index": 0}, "0-0"),
        ({"_ng_task_index": 2, "_ng_rollout_index": 1, "_ng_attempt_index": 3}, "2-1-a3"),
        ({"_ng_task_index": 2, "_ng_rollout_index": 1, "_ng_attempt_index": 0}, "2-1"),
        ({"_ng_rollout_id": "mine", "_ng_task_index": 2, "_ng_rollout_index": 1}, "mine"),
        ({"_ng_rollout_id": "mine", "_ng_attempt_index": 1}, "mine-a1"),
    ],
)
def test_rollout_keys(body: dict[str, Any], key: str | None) -> None:
    assert rollout_key(body) == key


@given(st.text() | st.integers() | st.booleans())
def test_an_id_is_used_as_it_is_or_refused(value: Any) -> None:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        assert rollout_key({"_ng_rollout_id": value}) == value
    else:
        with pytest.raises(ValueError, match="_ng_rollout_id"):
            rollout_key({"_ng_rollout_id": value})
