"""A crowd of episodes under admission limits, over real processes: none lost, none over the limit, every session closed. What the bench
measures with 1,000 episodes, with 200."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.episodes import AGENT, RESOURCES, Stack, crowd, crowd_without_agent

EPISODES = 200
LIMIT = 16
LIMITS = {"max_concurrent_episodes": LIMIT, "queue_timeout_seconds": 60.0, "default_episode_timeout_seconds": 60.0}

pytestmark = pytest.mark.slow


def test_a_crowd_is_served_within_the_limit_and_leaves_nothing_open(tmp_path: Path) -> None:
    with Stack(tmp_path, "single_agent_turn", LIMITS, turn_seconds=0.02) as stack:
        sent, waited = crowd(stack, EPISODES)
        agents, resources, said = stack.counts(AGENT), stack.counts(RESOURCES), stack.episodes()
    assert sent.outcomes == {"result": EPISODES}
    assert 1 < agents.most_agents_open <= LIMIT
    assert len(waited) == EPISODES
    assert waited[int(0.99 * EPISODES)] <= LIMITS["queue_timeout_seconds"]
    assert (resources.resources_opened, resources.resources_closed) == (EPISODES, EPISODES)
    assert (agents.agents_opened, agents.agents_closed) == (EPISODES, EPISODES)
    assert (said["results"], said["running"], said["waiting"]) == (EPISODES, 0, 0)
    assert said["cleanups_registered"] == said["cleanups_done"] == 2 * EPISODES


def test_who_waits_too_long_is_told_so_and_has_begun_nothing(tmp_path: Path) -> None:
    limits = {**LIMITS, "max_concurrent_episodes": 1, "queue_timeout_seconds": 0.3}
    with Stack(tmp_path, "single_agent_turn", limits, turn_seconds=0.2) as stack:
        sent, _ = crowd(stack, 20)
        agents, resources, said = stack.counts(AGENT), stack.counts(RESOURCES), stack.episodes()
    assert set(sent.outcomes) == {"result", "admission"}
    assert agents.most_agents_open == 1
    assert resources.resources_opened == resources.resources_closed == sent.outcomes["result"]
    assert said["not_admitted"] == sent.outcomes["admission"]


def test_every_cleanup_runs_when_the_agent_dies_in_mid_episode(tmp_path: Path) -> None:
    with Stack(tmp_path, "single_agent_turn", LIMITS, turn_seconds=0.1) as stack:
        sent = crowd_without_agent(stack, EPISODES, turns=EPISODES // 4, away=0.5)
        resources, said = stack.counts(RESOURCES), stack.episodes()
    assert sent.outcomes["lost"] == 0
    assert sent.outcomes.total() == EPISODES
    assert 0 < sent.outcomes["agent"] + sent.outcomes["cleanup"] < EPISODES
    assert (resources.resources_opened, resources.resources_closed) == (EPISODES, EPISODES)
    assert (said["running"], said["cleanups_left_open"]) == (0, 0)
    failed = [answer["failure"] for answer in sent.answers.values() if answer["failure"]]
    assert not any(failure["terminal"] for failure in failed)
