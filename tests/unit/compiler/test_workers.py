"""num_workers above 1: where it works, and which instance is refused for what."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.compiler import compile
from gym_compose.compiler.errors import SourceError
from gym_compose.compiler.workers import worker_count
from gym_compose.config.model import ClassFlags, NemoGymTree, ServerInstance

SEVERAL = ClassFlags(class_name="S", ray_enabled=False, multi_worker=True)
KEEPS = ClassFlags(class_name="S", ray_enabled=False, multi_worker=True, keeps_sessions=True)
OPENS = ClassFlags(class_name="S", ray_enabled=False, multi_worker=True, opens_agent_sessions=True)


@pytest.fixture
def workers(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    """Compile the four servers, ``number`` workers for ``instance``, with these class flags by implementation."""

    def make(instance: str, number: Any, compose: dict[str, Any] | None = None, **flags: ClassFlags) -> Any:
        _, implementations = next(iter(four[instance].items()))
        next(iter(implementations.values()))["num_workers"] = number
        four["compose"] = compose or {}
        config = make_config(four)
        sources = {name: {"runtime": "nemo-gym", "origin": "wheel", "flags": value} for name, value in flags.items()}
        tree = NemoGymTree("/site", "wheel", "0.7.0", "3.13.14")
        return compile(config, make_sources(config, **sources), make_options(nemo_gym=tree))

    return make


def test_a_class_with_the_branch_for_workers_gets_them(workers: Any) -> None:
    deployment = workers("policy_model", 4, openai_model=SEVERAL)
    block = deployment.service("policy_model").slice.config["policy_model"]["responses_api_models"]["openai_model"]
    assert block["num_workers"] == 4
    assert deployment.service("policy_model").slice.config["uvicorn_timeout_worker_healthcheck"] == 120
    assert "uvicorn_timeout_worker_healthcheck" not in deployment.service("math").slice.config


def test_the_time_that_the_config_gives_a_worker_is_kept(four: Any, workers: Any) -> None:
    four["uvicorn_timeout_worker_healthcheck"] = 7
    config = workers("policy_model", 4, openai_model=SEVERAL).service("policy_model").slice.config
    assert config["uvicorn_timeout_worker_healthcheck"] == 7


@pytest.mark.parametrize("number", [None, 1, "1", 0, True])
def test_one_is_never_refused(workers: Any, number: Any) -> None:
    workers("math", number, math=KEEPS)


@pytest.mark.parametrize("number", [2, "2"])
def test_without_an_app_for_them_they_are_refused(workers: Any, number: Any) -> None:
    with pytest.raises(SourceError, match=r"instance math: num_workers is 2, but resources_servers/math/app\.py exposes no app") as caught:
        workers("math", number, math=ClassFlags(class_name="S"))
    assert "Set num_workers of math to 1" in str(caught.value)


def test_a_resources_server_that_keeps_sessions_is_refused_unless_the_user_knows_better(workers: Any) -> None:
    with pytest.raises(SourceError, match=r"instance math: .* keeps sessions in its process") as caught:
        workers("math", 2, math=KEEPS)
    assert "compose: {servers: {math: {stateless: true}}}" in str(caught.value)
    workers("math", 2, {"servers": {"math": {"stateless": True}}}, math=KEEPS)


def test_an_agent_whose_environment_server_opens_sessions_is_refused(workers: Any) -> None:
    with pytest.raises(SourceError, match=r"instance math_agent: .* math_environment opens agent sessions with it"):
        workers("math_agent", 2, simple_agent=SEVERAL, legacy_agent=OPENS)


def test_behind_a_relay_an_agent_may_have_several(workers: Any) -> None:
    workers("math_agent", 2, simple_agent=KEEPS, legacy_agent=SEVERAL)


def test_the_count_is_read_as_the_peer_reads_it() -> None:
    def count(value: Any) -> int:
        return worker_count(ServerInstance("a", "resources_servers", "a", "app.py", "h", 1, {"num_workers": value}))

    assert [count(value) for value in (None, 3, "3", "x", True, 4.0, 1.5, "²")] == [1, 3, 3, 1, 1, 4, 1, 1]


def test_native_model_and_environment_servers_run_in_one_process_whatever_the_config_asks_for(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["policy_model"]["responses_api_models"]["openai_model"]["num_workers"] = 16
    four["math_environment"]["environment_servers"]["legacy_agent"]["num_workers"] = 4
    config = make_config(four)
    deployment = compile(config, make_sources(config), make_options())
    assert ("policy_model", "num_workers is 16: a native server of this type needs one process, and runs in one") in deployment.notes
    assert ("math_environment", "num_workers is 4: a native server of this type needs one process, and runs in one") in deployment.notes
