"""Environment servers, the agents that they front, and relays: contract-config 1.10, E50 to E55."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_compose.config import environment_server_agent_names, environment_server_agent_refs, environment_server_attributed_agent
from gym_compose.config.environments import front_agents, relay_name
from gym_compose.config.errors import AgentWithoutEnvironmentServerError
from gym_compose.config.interpolation import Tree, environment

if TYPE_CHECKING:
    from tests.unit.config.conftest import World

AGENT = {"type": "responses_api_agents", "name": "a"}
OTHER = {"type": "responses_api_agents", "name": "b"}
RESOURCES = {"type": "resources_servers", "name": "rs"}


@pytest.mark.parametrize(
    ("block", "names", "attributed"),
    [
        ({"agent_server": AGENT}, ["a"], "a"),
        ({"agent_server": {"name": "a"}}, ["a"], "a"),
        ({"agent_server": {"type": None, "name": "a"}}, ["a"], "a"),
        ({"agent_server": RESOURCES}, [], "rs"),
        ({"user": AGENT, "assistant": OTHER}, ["a", "b"], None),
        ({"user": AGENT, "agent_server": OTHER}, ["a", "b"], "b"),
        ({"user": AGENT}, ["a"], "a"),
        ({"user": {"name": "a"}}, [], None),
        ({"resources_server": RESOURCES, "x": 5, "agents": [AGENT]}, [], None),
        ({"agent_server": {"type": "responses_api_agents"}}, [], None),
        ({"agent_server": "a"}, [], None),
        ({"agent_server": None, "user": AGENT}, ["a"], "a"),
        ({}, [], None),
    ],
)
def test_which_agents_a_block_fronts(block: dict[str, Any], names: list[str], attributed: str | None) -> None:
    assert environment_server_agent_names(block) == names
    assert environment_server_attributed_agent(block) == attributed
    assert [reference.get("name") for reference in environment_server_agent_refs(block) if "name" in reference] == names


@pytest.mark.parametrize(
    ("agents", "kinds", "others", "relays"),
    [
        (
            ["math_agent", "math_simple_agent"],
            ["simple_agent"] * 2,
            {},
            {"math_environment_server": "math_agent", "math_simple_agent_environment_server": "math_simple_agent"},
        ),  # E50
        (["simple_agent"], ["simple_agent"], {}, {"simple_agent_environment_server": "simple_agent"}),  # E51
        (
            ["x_simple_agent", "x_hermes_agent"],
            ["simple_agent", "hermes_agent"],
            {},
            {"x_environment_server": "x_hermes_agent", "x_simple_agent_environment_server": "x_simple_agent"},
        ),  # contract-data, edge case 82: the migration script gives both their full names
        (
            ["math_simple_agent"],
            ["simple_agent"],
            {"math_environment_server": {"a": 1}},
            {"math_simple_agent_environment_server": "math_simple_agent"},
        ),  # E52
        (
            ["math_simple_agent"],
            ["simple_agent"],
            {"math_environment_server": 1, "math_simple_agent_environment_server": 2},
            {"math_simple_agent_environment_server_environment_server": "math_simple_agent"},
        ),
        (["plain"], ["simple_agent"], {}, {"plain_environment_server": "plain"}),
    ],
)
def test_relays_are_named_after_the_environment(
    world: World, agents: list[str], kinds: list[str], others: dict[str, Any], relays: dict[str, str]
) -> None:
    tree = {**world.MODEL, **world.RESOURCES, **others}
    for name, kind in zip(agents, kinds, strict=True):
        tree |= world.agent(name, kind)
    config = world.load(tree)
    made = {name: block for name, block in config.merged.items() if name in relays}
    assert list(made) == sorted(relays, key=lambda relay: relays[relay])
    for relay, name in relays.items():
        block = made[relay]["environment_servers"]["legacy_agent"]
        assert block == {
            "entrypoint": "app.py",
            "agent_server": {"type": "responses_api_agents", "name": name},
            "host": "127.0.0.1",
            "port": -1,
        }
    [warning] = [text for text in config.warnings if "deprecated" in text]
    assert all(f"{relay} for {name}" in warning for relay, name in relays.items())


def test_several_agents_of_one_server_need_no_relay(world: World) -> None:  # E53
    tree = {**world.MODEL, **world.RESOURCES, **world.agent("u"), **world.agent("a"), **world.front("e", user_agent="u", assistant="a")}
    config = world.load(tree)
    assert [instance.name for instance in config.instances] == ["pm", "rs", "u", "a", "e"]
    assert config.warnings == ()


def test_a_reference_without_type_counts_as_fronting_and_is_not_checked(world: World) -> None:  # E54
    tree = {**world.MODEL, **world.RESOURCES, **world.agent("a"), **world.front("e", agent_server={"name": "nope"})}
    config = world.load(tree)
    assert "a_environment_server" in config.merged
    assert any("e: agent_server has no type" in warning for warning in config.warnings)


def test_an_agent_alone_can_be_an_error(world: World) -> None:  # E55
    tree = {**world.MODEL, **world.RESOURCES, **world.agent("b"), **world.agent("a"), "error_on_agent_without_environment_server": True}
    with pytest.raises(AgentWithoutEnvironmentServerError, match="names 'a', 'b', so"):
        world.load(tree)
    assert world.load(tree | world.front("e", agent_server="a", other="b")).warnings == ()


def test_an_agent_block_without_entry_point_gets_no_relay(world: World) -> None:
    config = world.load({**world.MODEL, "a": {"responses_api_agents": {"simple_agent": {"max_steps": 1}}}})
    assert [instance.name for instance in config.instances] == ["pm"]


@pytest.mark.parametrize(
    ("name", "kind", "relay"),
    [
        ("workplace_assistant_simple_agent", "simple_agent", "workplace_assistant"),
        ("simple_agent", "simple_agent", "simple_agent"),
        ("math_agent", "simple_agent", "math"),
        ("math__simple_agent", "simple_agent", "math"),
        ("mathsimple_agent", "simple_agent", "math"),
        ("agent_agent", "agent", "agent"),
        ("_agent", "hermes", "hermes"),
        ("plain", "hermes", "plain"),
    ],
)
def test_names_of_relays(name: str, kind: str, relay: str) -> None:
    assert relay_name(name, kind) == f"{relay}_environment_server"


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "b_agent", "b_simple_agent", "b", "b_environment_server", "simple_agent", "_agent"]), unique=True, max_size=6
    )
)
def test_relays_never_take_a_name_and_front_every_agent(names: list[str]) -> None:
    tree = Tree({name: {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py"}}} for name in names})
    before = {name: id(block) for name, block in tree.data.items()}
    with environment({}):
        front_agents(tree, [])
    assert {name: id(tree.data[name]) for name in names} == before
    relays = [block["environment_servers"]["legacy_agent"] for name, block in tree.data.items() if name not in before]
    assert sorted(relay["agent_server"]["name"] for relay in relays) == sorted(names)
