"""The shipped configs by the command line: both tasksets collated, run and verified again, on scripts and on an endpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from gym_compose.driver.errors import RoutingError
from gym_compose.driver.routing import Router
from gym_compose.rollouts.conversation import conversation
from gym_compose.tasks.agents import resolve_dataset_agent

ROOT = Path(__file__).resolve().parents[4]
Gym = Callable[..., None]


@pytest.fixture
def gym(tmp_path: Path) -> Gym:
    """``gym("eval", "run", …)`` in an empty directory; its exit code has to be 0."""

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "gym_compose.cli.main", *words]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def records(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.slow
def test_both_tasksets_from_their_files_to_records_and_verified_again(gym: Gym, tmp_path: Path) -> None:
    gym("eval", "run", "--resources-server", "usersim/usersim_scripted", "--split", "validation", "--engine", "process", "-o", "out.jsonl")
    made = records(tmp_path / "out.jsonl")
    assert Counter(record["_ng_task_id"]["taskset"] for record in made) == {"usersim:orders": 3, "usersim:bookings": 3}
    assert {(record["_ng_environment_server"], record["_ng_result_type"]) for record in made} == {("usersim_environment", "usersim")}
    assert not [record for record in made if "agent_ref" in record or "ng_trajectory" in record]
    rewards = {record["_ng_task_id"]["task_id"]: record["reward"] for record in made}
    assert sorted(rewards.values()) == [0.0, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert (rewards["peanuts"], rewards["closed-on-monday"]) == (0.8, 0.0)
    lamp = next(record for record in made if record["_ng_task_id"]["task_id"] == "late-lamp")
    shown = [step.kind for step in conversation(lamp).steps]
    assert shown == ["system", "user", "assistant", "user", "tool call", "tool result", "assistant", "user"]
    again = ("--inputs", "out_materialized_inputs.jsonl", "--rollouts", "out.jsonl", "--output", "again.jsonl")
    gym("eval", "reverify", "--resources-server", "usersim/usersim_scripted", "--engine", "process", *again)
    verified = {(record["_ng_task_index"], record["reward"], record["stop_reason"]) for record in records(tmp_path / "again.jsonl")}
    assert verified == {(record["_ng_task_index"], record["reward"], record["stop_reason"]) for record in made}


@pytest.mark.slow
def test_an_openai_compatible_endpoint_plays_both_under_two_names(gym: Gym, tmp_path: Path, mock_endpoint: str) -> None:
    model = ("--model-type", "openai_model", "--model-url", mock_endpoint, "--model-api-key", "none", "--model", "assistant-1")
    run = ("eval", "run", "--resources-server", "usersim", "--split", "validation", "--engine", "process", "-o", "out.jsonl")
    limit = "++usersim_environment.environment_servers.usersim.max_turns=2"
    gym(*run, *model, "+user_model_name=user-1", limit)
    made = records(tmp_path / "out.jsonl")
    assert len(made) == 6
    for record in made:
        # The endpoint says the same to everybody and never stops: no task is solved, and every conversation is whole.
        assert (record["reward"], record["stop_reason"], record["turns"]) == (0.0, "max_turns", 2)
        assert {(call["role"], call["model"]) for call in record["invocations"]} == {("user", "user-1"), ("assistant", "assistant-1")}
        called = [message.get("tools") for message in record["conversation"] if message["role"] == "assistant"]
        assert called[0] == (["look_up_order"] if record["_ng_task_id"]["taskset"] == "usersim:orders" else None)


def addressed(example: Any) -> dict[str, Any]:
    blocks: dict[str, Any] = example.blocks()
    blocks["usersim_environment"]["environment_servers"]["usersim"] |= {"host": "h", "port": 1}
    routes = {f"usersim:{name}": "usersim_environment" for name in ("orders", "bookings")}
    return {**blocks, "environment_server_routes": routes}


def test_two_agents_are_fronted_and_none_is_attributed(example: Any) -> None:
    config = addressed(example)
    (server,) = Router(config).servers.values()
    assert (server.agents, server.agent) == (("usersim_user", "usersim_assistant"), None)
    for taskset in ("usersim:orders", "usersim:bookings"):
        assert resolve_dataset_agent(config, "usersim", taskset=taskset) is None


def test_a_row_may_name_either_agent_and_no_other(example: Any) -> None:
    def place(agent: str) -> None:
        router = Router(addressed(example))
        row = {"responses_create_params": {"input": "x"}, "agent_ref": {"name": agent}, "_ng_environment_server": "usersim_environment"}
        router.place(row, 1)
        router.raise_problems()

    place("usersim_user")
    place("usersim_assistant")
    with pytest.raises(RoutingError, match="usersim_user, usersim_assistant"):
        place("policy_model")


def test_one_agent_may_play_both(example: Any) -> None:
    config = addressed(example)
    block = config["usersim_environment"]["environment_servers"]["usersim"]
    block["user_agent"] = block["assistant_agent"]
    (server,) = Router(config).servers.values()
    assert (server.agents, server.agent) == (("usersim_assistant",), None)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"user_stop_words": [""]}, "not blank"),
        ({"max_turns": 0}, "max_turns"),
        ({"actor_call_timeout_seconds": 0}, "actor_call_timeout_seconds"),
        ({"agent_server": {"type": "responses_api_agents", "name": "usersim_user"}}, "agent_server"),
        ({"user_agent": {"type": "responses_api_models", "name": "user_model"}}, "user_agent"),
        ({"max_concurrent_episodes": 1}, "queue_timeout_seconds"),
    ],
)
def test_a_block_that_cannot_work_is_refused(
    example: Any, load_app: Callable[[str], ModuleType], fields: dict[str, Any], text: str
) -> None:
    block = example.blocks()["usersim_environment"]["environment_servers"]["usersim"]
    config_class = load_app("environment_servers/usersim").UserSimConfig
    fitting = {**block, "name": "usersim_environment", "host": "h", "port": 1}
    config_class.model_validate(fitting)
    with pytest.raises(ValueError, match=text):
        config_class.model_validate({**fitting, **fields})
