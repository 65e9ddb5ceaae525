"""What ends a run, and what is sent twice."""

from __future__ import annotations

import pytest

from gym_compose.driver.errors import RolloutFailedError, TooManyFailuresError
from gym_compose.driver.policy import FailurePolicy, RetryPolicy, most_failures
from gym_compose.driver.progress import Tally
from gym_compose.driver.record import Fault, Outcome
from gym_compose.driver.routing import EnvironmentServer
from gym_compose.serving.client import PeerDropped, PeerError, PeerTimeout, PeerUnreachable, Reply
from gym_compose.wire.settings import Settings

SETTINGS = Settings(run_retries=2, run_retry_seconds=1.0, run_retry_share=0.5, connect_retry_seconds=0.25)


def server(*, idempotent: bool) -> EnvironmentServer:
    return EnvironmentServer("e", "impl", "http://h", (), None, None, idempotent)


def reply(status: int) -> Reply:
    return Reply(status, (), b"", "POST", "u")


DROPPED = PeerDropped("broke", method="POST", url="u")


@pytest.mark.parametrize(
    ("given", "requested", "most"),
    [(None, 100, None), (0, 100, 0), (5, 100, 5), (0.1, 100, 10), (0.05, 30, 1), (0.0, 100, 0), (1.0, 100, 1), (7.0, 100, 7)],
)
def test_max_failures_is_a_number_or_below_one_a_share(given: int | float | None, requested: int, most: int | None) -> None:
    assert most_failures(given, requested) == most


def test_one_failure_more_than_allowed_ends_the_run_and_says_of_what_class() -> None:
    tally = Tally(10, lambda: 0.0)
    policy = FailurePolicy(most=2)
    for _ in range(2):
        tally.began()
        tally.ended(Outcome("failed", {"_ng_environment_server": "e"}, "agent_run_error"))
        policy.check_tally(tally)
    tally.began()
    tally.ended(Outcome("failed", {"_ng_environment_server": "e"}, "judge_failed"))
    with pytest.raises(TooManyFailuresError, match=r"3 of 10 rollouts failed \(2 agent_run_error, 1 judge_failed\), more than the 2"):
        policy.check_tally(tally)


@pytest.mark.parametrize(
    ("strict", "to_sidecar", "fault", "ends"),
    [
        (False, False, "request", False),
        (False, False, "reply", False),
        (True, False, "request", True),
        (True, True, "request", False),
        (True, True, "reply", True),
        (True, False, None, False),
    ],
)
def test_under_strict_compatibility_a_failed_request_ends_the_run(strict: bool, to_sidecar: bool, fault: Fault | None, ends: bool) -> None:
    record = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_failure_message": "boom"}
    outcome = Outcome("failed", record, "agent_run_error", fault)
    policy = FailurePolicy(None, strict, to_sidecar)
    if not ends:
        policy.check_outcome(outcome)
        return
    with pytest.raises(RolloutFailedError, match="task 3, rollout 1: agent_run_error: boom"):
        policy.check_outcome(outcome)


@pytest.mark.parametrize(
    ("came", "again"),
    [
        (DROPPED, True),
        (PeerTimeout("late", method="POST", url="u"), False),
        (PeerUnreachable("gone", method="POST", url="u"), False),
        (reply(429), True),
        (reply(502), True),
        (reply(503), True),
        (reply(504), True),
        (reply(500), False),
        (reply(422), False),
    ],
)
def test_only_idempotent_episodes_are_sent_again_and_only_where_nothing_came_of_them(came: PeerError | Reply, again: bool) -> None:
    policy = RetryPolicy(SETTINGS, strict=False)
    assert (policy.pause(server(idempotent=True), 0, came) is not None) == again
    assert policy.pause(server(idempotent=False), 0, came) is None


def test_the_pause_doubles_and_ends() -> None:
    policy = RetryPolicy(SETTINGS, strict=False)
    assert [policy.pause(server(idempotent=True), retried, DROPPED) for retried in range(3)] == [1.0, 2.0, None]


def test_a_run_has_ten_retries_and_a_share_of_its_rows() -> None:
    policy = RetryPolicy(SETTINGS, strict=False)
    spent = [policy.pause(server(idempotent=True), 0, DROPPED) for _ in range(11)]
    assert spent == [1.0] * 10 + [None]
    for _ in range(2):
        policy.row()
    assert policy.pause(server(idempotent=True), 0, DROPPED) == 1.0
    assert policy.pause(server(idempotent=True), 0, DROPPED) is None


def test_strict_compatibility_sends_again_for_ever_as_nemo_gym_does() -> None:
    policy = RetryPolicy(SETTINGS, strict=True)
    assert [policy.pause(server(idempotent=False), retried, DROPPED) for retried in range(50)] == [0.25] * 50
    assert policy.pause(server(idempotent=False), 0, reply(503)) is None
