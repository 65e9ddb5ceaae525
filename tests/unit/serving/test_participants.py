"""Sessions of an episode with a resources server and any number of agents (contract-data 2.4, 2.5, 2.8, 2.9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gym_compose.serving import (
    AgentServerReference,
    EnvironmentServer,
    EnvironmentServerConfig,
    Episode,
    HandledEpisodeError,
    ParticipantError,
    ResourcesServerReference,
)
from gym_compose.serving.client import PeerTimeout
from gym_compose.serving.participants import captures_tokens, is_retryable
from gym_compose.testing import AgentPeer, PeerAnswer, ResourcesPeer, Served, episode
from gym_compose.wire.deadline import Deadline


class DuetConfig(EnvironmentServerConfig):
    resources_server: ResourcesServerReference
    user_agent: AgentServerReference
    assistant_agent: AgentServerReference


class Duet(EnvironmentServer):
    """Two agents, one turn each. ``task_input`` says what is special: ``lenient`` makes a terminal failure of the assistant another."""

    config: DuetConfig

    async def run(self, episode: Episode[dict[str, Any]]) -> dict[str, Any]:
        wanted = episode.task_input
        resources = self.resources_session(episode, self.config.resources_server)
        user = self.agent_session(episode, self.config.user_agent, alias="user", resources=resources, cookie_required=True)
        assistant = self.agent_session(episode, self.config.assistant_agent, alias="assistant", resources=resources)
        seed = await resources.open({"row": 1})
        await user.open()
        await assistant.open(resources.grants(seed, ("direct_http",)))
        asked = await user.respond({"input": "begin"})
        try:
            answered = await assistant.respond({"input": asked["output"]}, deadline=Deadline.after(wanted.get("seconds")))
        except ParticipantError as error:
            if wanted.get("lenient"):
                raise HandledEpisodeError(error.failure.model_copy(update={"terminal": False})) from error
            raise
        await assistant.close()
        await user.close()
        result = await resources.verify({"dialogue": [asked["output"], answered["output"]]})
        if wanted.get("close"):
            await resources.close()
        else:
            resources.close_with_retry()
        return result


BLOCK = {
    "cleanup_timeout_seconds": 5,
    "resources_server": {"type": "resources_servers", "name": "rs"},
    "user_agent": {"type": "responses_api_agents", "name": "user"},
    "assistant_agent": {"type": "responses_api_agents", "name": "assistant"},
}


def peers() -> dict[str, Any]:
    return {"rs": ResourcesPeer({"reward": 0.5}), "user": AgentPeer("how are you?"), "assistant": AgentPeer("well")}


def run(played: dict[str, Any], block: Any = (), config: Any = None, **task_input: Any) -> Any:
    with Served(Duet, {**BLOCK, **dict(block)}, instance="env", peers=played, config=config) as served:
        answer = served.post("/run", episode(task_input)).json()
        return answer, served.get("/episodes").json()


def test_two_agents_have_a_session_each_and_all_are_closed() -> None:
    played = peers()
    answer, counts = run(played)
    assert (answer["result"], answer["failure"]) == ({"reward": 0.5}, None)
    rs, user, assistant = played["rs"], played["user"], played["assistant"]
    assert rs.paths() == ["/seed_session", "/verify", "/close_session"]
    assert user.paths() == assistant.paths() == ["/v1/agent_sessions", "/v1/responses", "/v1/agent_sessions/close"]
    first, second = (agent.calls[0].body["agent_session_id"] for agent in (user, assistant))
    assert first.startswith("agent-session-user-")
    assert second.startswith("agent-session-assistant-")
    assert user.calls[0].body["tool_accesses"] == []
    assert assistant.calls[0].body["tool_accesses"][0]["cookies"] == rs.calls[1].cookies
    assert [call.cookies for call in user.calls] == [{}, {"agent_session": first}, {"agent_session": first}]
    assert [call.cookies for call in assistant.calls[1:]] == [{"agent_session": second}] * 2
    assert {call.rollout_prefix for call in (user.calls[1], assistant.calls[1])} == {"/ng-rollout/0-0"}
    assert (counts["results"], counts["running"]) == (1, 0)
    assert counts["cleanups_registered"] == counts["cleanups_done"] == 3


def test_the_same_agent_twice_is_two_sessions() -> None:
    """Case 46: one server that fronts one agent under two fields."""
    played = peers()
    answer, _ = run(played, block={"assistant_agent": BLOCK["user_agent"]})
    assert answer["failure"] is None
    agent = played["user"]
    assert (agent.opened, agent.closed) == (2, 2)
    sessions = [call.cookies["agent_session"] for call in agent.calls if call.path == "/v1/responses"]
    assert len(set(sessions)) == 2


def test_cookies_of_a_receipt_replace_those_of_the_resources_session() -> None:
    played = peers()
    played["assistant"].answers["/v1/agent_sessions/close"] = lambda body: {
        "agent_session_id": body["agent_session_id"],
        "resources_cookies": {"moved": "1"},
    }
    run(played)
    assert [call.cookies for call in played["rs"].calls[1:]] == [{"moved": "1"}, {"moved": "1"}]


@pytest.mark.parametrize(
    ("peer", "path", "answer", "stage", "terminal"),
    [
        ("rs", "/seed_session", PeerAnswer({}, 500), "seed", False),
        ("user", "/v1/agent_sessions", lambda body: {"agent_session_id": body["agent_session_id"]}, "agent", True),
        ("assistant", "/v1/agent_sessions", PeerAnswer({}, 409), "agent", True),
        ("assistant", "/v1/responses", PeerAnswer({}, 429), "agent", False),
        ("user", "/v1/agent_sessions/close", PeerAnswer({}, 503), "cleanup", False),
        ("rs", "/verify", {"reward": "much"}, "verification", True),
    ],
)
def test_each_call_fails_with_its_stage_and_every_session_is_closed(peer: str, path: str, answer: Any, stage: str, terminal: bool) -> None:
    played = peers()
    played[peer].answers[path] = answer
    got, counts = run(played)
    assert got["result"] is None
    assert (got["failure"]["stage"], got["failure"]["terminal"]) == (stage, terminal)
    assert counts["failures"] == 1
    for name, close in (("rs", "/close_session"), ("user", "/v1/agent_sessions/close"), ("assistant", "/v1/agent_sessions/close")):
        began = any(call.path in ("/seed_session", "/v1/agent_sessions") for call in played[name].calls)
        assert (close in played[name].paths()) == began


def test_a_failure_can_be_made_another() -> None:
    played = peers()
    played["assistant"].answers["/v1/responses"] = PeerAnswer({"detail": "no"}, 404)
    assert run(played)[0]["failure"]["terminal"] is True
    assert run(played, lenient=True)[0]["failure"]["terminal"] is False


def test_a_close_that_must_succeed_loses_the_verdict_when_it_does_not() -> None:
    played = peers()
    played["rs"].answers["/close_session"] = PeerAnswer("stuck", 500)
    answer, counts = run(played, close=True)
    assert (answer["result"], answer["failure"]["stage"]) == (None, "cleanup")
    assert played["rs"].paths().count("/close_session") == 2  # now, and once more in the cleanup
    assert counts["cleanups_failed"] == 1
    assert counts["cleanups_registered"] - counts["cleanups_done"] == 1


def test_a_close_that_may_fail_keeps_the_verdict_and_is_tried_twice() -> None:
    """Case 68."""
    played = peers()
    attempts = iter([PeerAnswer("stuck", 500), {"resources_session_id": "s"}])
    played["rs"].answers["/close_session"] = lambda _: next(attempts)
    answer, counts = run(played)
    assert answer["result"] == {"reward": 0.5}
    assert (counts["cleanups_failed"], counts["cleanups_done"], counts["cleanups_registered"]) == (1, 3, 3)


@pytest.mark.parametrize(("enabled", "prefix"), [(True, "/ng-rollout/0-0"), (False, ""), (None, "")])
def test_resources_calls_name_their_rollout_when_the_config_observes(enabled: bool | None, prefix: str) -> None:
    """All calls of an episode, its cleanup's too, run in the context of its rollout (contract-data 1.15, 2.4)."""
    played = peers()
    run(played, config={} if enabled is None else {"observability_enabled": enabled})
    assert [call.rollout_prefix for call in played["rs"].calls] == [prefix] * 3


def test_calls_that_were_open_when_the_time_was_over_are_late_answers() -> None:
    played = peers()

    async def late(_: Any) -> Any:
        await asyncio.sleep(30)

    played["assistant"].answers["/v1/responses"] = late
    answer, counts = run(played, block={"default_episode_timeout_seconds": 0.1})
    assert answer["failure"] == {"failure_reason": "Episode timed out", "terminal": False}
    assert (counts["timed_out"], counts["late_answers"], counts["results"], counts["failures"]) == (1, 1, 0, 0)
    assert played["user"].closed == played["assistant"].closed == played["rs"].closed == 1


def test_closing_what_was_not_opened_is_a_fault_of_the_environment() -> None:
    class Hasty(EnvironmentServer):
        config: DuetConfig

        async def run(self, episode: Episode[Any]) -> dict[str, Any]:
            await self.agent_session(episode, self.config.user_agent).close()
            return {}

    with Served(Hasty, BLOCK, peers=peers()) as served:
        failure = served.post("/run", episode({})).json()["failure"]
    assert failure["terminal"] is True
    assert "was not opened" in failure["failure_reason"]


def test_what_may_fare_better_another_time() -> None:
    assert is_retryable(PeerTimeout("x", method="POST", url="u"))
    assert is_retryable(TimeoutError())
    assert not is_retryable(ValueError("x"))


@pytest.mark.parametrize(
    ("capture", "block", "expected"),
    [
        (None, {"token_id_capture": True}, False),
        ({"enabled": True}, {}, False),
        ({"enabled": True}, {"token_id_capture": True}, True),
        ({"enabled": True, "all_agents": True}, {}, True),
        ({"enabled": False, "all_agents": True}, {"token_id_capture": True}, False),
    ],
)
def test_which_agents_are_captured(capture: Any, block: dict[str, Any], expected: bool) -> None:
    assert captures_tokens({"token_id_capture": capture, "ag": {"responses_api_agents": {"a": block}}}, "ag") is expected
