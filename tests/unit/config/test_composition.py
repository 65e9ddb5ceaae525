"""Agent composition and what may be put together: contract-config 1.9, 1.13, E60 to E65."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config.errors import (
    AgentCompositionError,
    ConfigError,
    ConfigInterpolationError,
    ConfigMissingValuesError,
    OverrideError,
    UnsupportedAgentOverrideError,
    UnsupportedAgentPairingError,
    UnsupportedModelPairingError,
)

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


@pytest.fixture
def base(world: World) -> dict[str, Any]:
    """A resources server, a model, an agent with an environment server of its own, and a standalone agent."""
    return {
        **world.RESOURCES,
        **world.MODEL,
        **world.agent("math_simple_agent", datasets=[{"name": "d", "type": "example", "jsonl_fpath": "d.jsonl"}], max_steps=3),
        **world.front("math_environment_server", agent_server="math_simple_agent"),
        **world.unbound(max_turns=1, model_server={"type": "responses_api_models", "name": "???"}),
    }


def write(world: World, tree: dict[str, Any]) -> list[str]:
    world.write({"base.yaml": tree})
    return ["+config_paths=[base.yaml]"]


def test_the_unbound_agent_takes_the_place_of_the_others(world: World, base: dict[str, Any]) -> None:  # E60
    merged = world.load(write(world, base)).merged
    assert list(merged)[:6] == ["rs", "pm", "math_environment_server", "config_paths", "math_hermes_agent", "agent_map"]
    block = merged["math_hermes_agent"]["responses_api_agents"]
    assert list(block) == ["hermes_agent"]
    assert block["hermes_agent"] == {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "rs"},
        "model_server": {"type": "responses_api_models", "name": "pm"},
        "max_turns": 1,
        "datasets": [{"name": "d", "type": "example", "jsonl_fpath": "d.jsonl"}],
        "host": "127.0.0.1",
        "port": -1,
    }
    assert merged["agent_map"] == {"math_simple_agent": "math_hermes_agent"}
    assert merged["math_environment_server"]["environment_servers"]["legacy_agent"]["agent_server"]["name"] == "math_hermes_agent"


def test_an_open_binding_is_carried_over_open(world: World, base: dict[str, Any]) -> None:
    base["math_simple_agent"]["responses_api_agents"]["simple_agent"]["model_server"] = "???"
    with pytest.raises(ConfigMissingValuesError, match=r"math_hermes_agent\.responses_api_agents\.hermes_agent\.model_server"):
        world.load(base)


def test_an_interpolated_binding_is_carried_over_resolved(world: World, base: dict[str, Any]) -> None:
    block = base["math_simple_agent"]["responses_api_agents"]["simple_agent"]
    reference = block["model_server"]
    block["model_server"] = "${the_model}"
    merged = world.load(base | {"the_model": reference}).merged
    assert merged["math_hermes_agent"]["responses_api_agents"]["hermes_agent"]["model_server"] == reference
    with pytest.raises(ConfigInterpolationError, match="'the_model'"):
        world.load(base)


def test_environment_servers_that_front_several_agents_follow(world: World, base: dict[str, Any]) -> None:
    base |= world.agent("tutor_agent") | world.front("duo", user="tutor_agent", agent_server="math_simple_agent")
    block = world.load(base).merged["duo"]["environment_servers"]["legacy_agent"]
    assert (block["user"]["name"], block["agent_server"]["name"]) == ("tutor_hermes_agent", "math_hermes_agent")


def test_a_self_contained_agent_stays(world: World, base: dict[str, Any]) -> None:
    base |= {"own": {"responses_api_agents": {"harness": {"entrypoint": "app.py"}}}} | world.front("own_front", agent_server="own")
    assert "own" in world.load(base).merged


@pytest.mark.parametrize(
    ("name", "kind", "composed"),
    [
        ("gpqa_mcqa_simple_agent", "simple_agent", "gpqa_mcqa_hermes_agent"),
        ("simple_agent", "simple_agent", "hermes_agent"),
        ("math_agent", "simple_agent", "math_hermes_agent"),
        ("math", "simple_agent", "math_hermes_agent"),
    ],
)
def test_names_of_composed_agents(world: World, name: str, kind: str, composed: str) -> None:
    tree = {**world.RESOURCES, **world.MODEL, **world.agent(name, kind), **world.unbound("source")}
    assert composed in world.load(tree).merged


def test_a_new_name_may_be_the_old_one_of_another_agent(world: World) -> None:
    tree = {
        **world.RESOURCES,
        **world.MODEL,
        **world.agent("math_agent", max_steps=1),
        **world.agent("math_simple_agent", "hermes_agent", max_steps=2),
        **world.front("e", user="math_agent", assistant="math_simple_agent"),
        **world.unbound("free", "simple_agent"),
    }
    merged = world.load(write(world, tree)).merged
    assert merged["agent_map"] == {"math_agent": "math_simple_agent", "math_simple_agent": "math_simple_simple_agent"}
    assert list(merged["math_simple_agent"]["responses_api_agents"]) == ["simple_agent"]
    assert list(merged["math_simple_simple_agent"]["responses_api_agents"]) == ["simple_agent"]
    relay = merged["e"]["environment_servers"]["legacy_agent"]
    assert [relay[field]["name"] for field in ("user", "assistant")] == ["math_simple_agent", "math_simple_simple_agent"]


@pytest.mark.parametrize("given", [[], ["++ref={type: resources_servers, name: rs}"], ["++ref=5", "++b={_copy: nowhere}"]])
def test_a_binding_that_is_an_interpolation_is_resolved_by_the_files(world: World, given: list[str]) -> None:
    tree = {**world.RESOURCES, **world.MODEL, **world.agent("math_simple_agent", resources_server="${ref}")}
    with pytest.raises(ConfigInterpolationError, match="'ref'"):
        world.load([*write(world, tree), *given])
    assert world.load(write(world, {**tree, "ref": {"type": "resources_servers", "name": "rs"}})).instances


def test_what_cannot_be_composed(world: World, base: dict[str, Any]) -> None:  # E61, E62
    with pytest.raises(AgentCompositionError, match="no other agent"):
        world.load({**world.RESOURCES, **world.MODEL, **world.unbound()})
    with pytest.raises(AgentCompositionError, match="'hermes_agent', 'second'"):
        world.load(base | world.unbound("second"))
    with pytest.raises(AgentCompositionError, match="agent_name names 'math_simple_agent', which is 'math_hermes_agent' now"):
        world.load(base | {"agent_name": "math_simple_agent"})
    with pytest.raises(AgentCompositionError, match=r"agent_map\[x\] names"):
        world.load(base | {"agent_map": {"x": "math_simple_agent"}})
    with pytest.raises(AgentCompositionError, match=r"fan_out\[x\] names"):
        world.load(base | {"fan_out": {"x": ["math_simple_agent"]}})
    with pytest.raises(AgentCompositionError, match="math_simple_agent -> math_hermes_agent"):
        world.load(base | {"math_hermes_agent": 1})
    with pytest.raises(AgentCompositionError, match="same name"):
        world.load(base | world.agent("math_agent"))


def test_the_keys_of_agent_map_may_be_old_and_the_users_win(world: World, base: dict[str, Any]) -> None:
    merged = world.load(base | {"agent_map": {"math_simple_agent": "elsewhere", "x": "y"}}).merged
    assert merged["agent_map"] == {"math_simple_agent": "elsewhere", "x": "y"}


def test_overrides_of_the_composed_agent(world: World, base: dict[str, Any]) -> None:  # E63
    argv = write(world, base)
    new = "math_hermes_agent.responses_api_agents.hermes_agent"
    old = "math_simple_agent.responses_api_agents.simple_agent"
    merged = world.load(
        [*argv, f"++{new}.max_turns=7", f"++{old}.max_steps=9", "++hermes_agent.responses_api_agents.hermes_agent.max_turns=5"]
    ).merged
    block = merged["math_hermes_agent"]["responses_api_agents"]["hermes_agent"]
    assert block["max_turns"] == 7
    assert "max_steps" not in block
    merged = world.load([*argv, "++hermes_agent.responses_api_agents.hermes_agent.max_turns=5"]).merged
    assert merged["math_hermes_agent"]["responses_api_agents"]["hermes_agent"]["max_turns"] == 5
    with pytest.raises(OverrideError, match="no field 'nofield'"):
        world.load([*argv, f"++{new}.nofield=7"])
    assert world.load([*argv, "++nobody.responses_api_agents.hermes_agent.x=1"]).merged["nobody"]


def test_an_override_that_was_held_for_nobody(world: World, base: dict[str, Any]) -> None:
    # Before the directives there are two agents to replace, after them one: the name of the other was reserved for nothing.
    base |= world.agent("extra_agent")
    argv = [
        *write(world, base | {"moved": {"_inherit_from": "extra_agent"}}),
        "++extra_hermes_agent.responses_api_agents.hermes_agent.max_turns=1",
    ]
    with pytest.raises(UnsupportedAgentOverrideError, match="extra_hermes_agent"):
        world.load(argv)


def restrict(world: World, **fields: Any) -> dict[str, Any]:
    return {"rs": {"resources_servers": {"rsi": {**world.RESOURCES["rs"]["resources_servers"]["rsi"], **fields}}}}


def test_the_agent_types_that_a_resources_server_accepts(world: World, base: dict[str, Any]) -> None:  # E64
    strict = base | restrict(world, allowed_agents=["simple_agent", "other"])
    with pytest.raises(UnsupportedAgentPairingError) as caught:
        world.load(strict)
    assert "Choose one of: other, simple_agent." in str(caught.value)
    assert caught.value.details == ("math_simple_agent is bound to rs, which accepts: simple_agent, other",)
    assert world.load(strict | {"allow_unsupported_pairing": True})
    for value, passes in (("1", True), ("yes", True), ("0", False), ("False", False), ("", False)):
        world.environ["NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"] = value
        if passes:
            assert world.load(strict)
        else:
            with pytest.raises(UnsupportedAgentPairingError):
                world.load(strict)
    world.environ.clear()
    assert world.load(base | restrict(world, allowed_agents="hermes_agent"))
    assert world.load(base | restrict(world, allowed_agents=[]))
    with pytest.raises(ConfigError, match=r"rs\.resources_servers\.rsi\.allowed_agents: it has to be a list"):
        world.load(base | restrict(world, allowed_agents=5))


def test_the_model_types_that_a_resources_server_accepts(world: World) -> None:  # E65
    tree = {**world.MODEL, **restrict(world, allowed_model_types=["vllm_model"]), **world.agent("a")}
    with pytest.raises(UnsupportedModelPairingError) as caught:
        world.load(tree)
    for word in ("agent 'a'", "'pm'", "'openai_model'", "only: vllm_model", "--model-type vllm_model"):
        assert word in str(caught.value)
    assert world.load(tree | {"pm": {"responses_api_models": {"dummy_model": {"entrypoint": "app.py"}}}})
    assert world.load(tree | {"pm": {"responses_api_models": {"vllm_model": {"entrypoint": "app.py"}}}})
    assert world.load(tree | {"allow_unsupported_pairing": True})


def test_old_agent_names_are_routed(world: World) -> None:  # 1.13
    new, old = "hermes_reasoning_gym_agent", "reasoning_gym_hermes_agent"
    tree = {**world.MODEL, **world.RESOURCES, **world.agent(new), **world.front("e", agent_server=new)}
    config = world.load(tree | {"agent_name": old, "fan_out": {"x": [old, "y"]}, "agent_map": {"z": old}})
    assert config.merged["agent_name"] == new
    assert config.merged["fan_out"] == {"x": [new, "y"]}
    assert config.merged["agent_map"] == {"z": new, old: new}
    assert any("deprecated" in warning and f"'{old}' -> '{new}'" in warning for warning in config.warnings)
    quiet = world.load(tree)
    assert quiet.merged["agent_map"] == {old: new}
    assert quiet.warnings == ()


def test_old_config_paths_are_followed_where_the_old_file_is_gone(world: World) -> None:  # 1.13
    old, new = "responses_api_agents/tau2/configs/tau2_agent.yaml", "responses_api_agents/tau2/configs/tau2.yaml"
    world.write({new: {"x": "new"}})
    config = world.load({"config_paths": [old]})
    assert config.merged["x"] == "new"
    assert config.merged["config_paths"] == [new]
    assert any("deprecated" in warning for warning in config.warnings)
    world.write({old: {"x": "old"}})
    assert world.load({"config_paths": [old]}).merged["x"] == "old"
