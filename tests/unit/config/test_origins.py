"""``--explain KEY``: who set a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config import explain
from gym_compose.config.errors import ConfigPathNotFoundError
from gym_compose.config.origins import Explanation, key_path

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


def why(world: World, key: str, *overrides: str, **options: Any) -> Explanation:
    return explain(overrides, key, cwd=world.cwd, environ=world.environ, **options)


def chain(explanation: Explanation) -> list[tuple[str, Any]]:
    return [
        (setting.source.rpartition("/")[2] if setting.source.startswith("/") else setting.source, setting.value)
        for setting in explanation.settings
    ]


def test_the_chain_of_files_env_yaml_and_overrides_in_merge_order(world: World) -> None:
    world.write({"a.yaml": "config_paths: [b.yaml]\nx:\n  y: a\n", "b.yaml": "x: {y: b, z: 1}\n", "env.yaml": "x:\n  y: env\n"})
    found = why(world, "x.y", "+config_paths=[a.yaml]", "+x.y=1", "++x.y=2", "+other=3")
    assert chain(found) == [("b.yaml", "b"), ("a.yaml", "a"), ("env.yaml", "env"), ("+x.y=1", 1), ("++x.y=2", 2)]
    assert [setting.line for setting in found.settings] == [1, 3, 2, None, None]
    assert [setting.last for setting in found.settings] == [False] * 4 + [True]
    assert (found.present, found.value) == (True, 2)
    assert str(found.settings[1]) == f"  {world.cwd / 'a.yaml'}:3: 'a'"
    assert str(found.settings[4]).startswith("* ++x.y=2: 2")


def test_a_silent_change_of_order_is_seen(world: World) -> None:
    world.write({"a.yaml": {"config_paths": ["b.yaml"], "x": "a"}, "b.yaml": {"x": "b"}})
    first = why(world, "x", "+config_paths=[a.yaml]").last
    second = why(world, "x", "+config_paths=[a.yaml,b.yaml]").last
    assert first is not None
    assert second is not None
    assert (first.value, second.value) == ("a", "b")


def test_what_a_block_inherits_comes_before_what_it_says(world: World) -> None:
    world.write({"a.yaml": {"base": {"k": {"x": 1, "y": 2}}, "heir": {"_inherit_from": "base", "k": {"x": 9}}}})
    found = why(world, "heir.k.x", "+config_paths=[a.yaml]")
    assert chain(found) == [("a.yaml", 1), ("a.yaml", 9)]
    assert found.settings[0].note == "_inherit_from: base"
    found = why(world, "heir.k.y", "+config_paths=[a.yaml]")
    assert (found.value, found.settings[-1].last) == (2, True)
    assert why(world, "base.k.x", "+config_paths=[a.yaml]").present is False


def test_open_values_never_win(world: World) -> None:
    world.write({"a.yaml": {"x": "a"}})
    found = why(world, "x", "+config_paths=[a.yaml]", "+x='???'")
    assert [setting.effective for setting in found.settings] == [True, False]
    assert found.settings[0].last
    assert "never overwrites" in found.settings[1].note


def test_a_value_above_the_key_replaces_it(world: World) -> None:
    world.write({"a.yaml": {"x": {"y": 1}}, "b.yaml": {"x": None}})
    found = why(world, "x.y", "+config_paths=[a.yaml,b.yaml]")
    assert found.settings[-1].note == "replaces 'x' as a whole"
    assert found.present is False


@pytest.mark.parametrize(("key", "value"), [("pm.responses_api_models.openai_model.port", -1), ("dry_run", False)])
def test_what_nobody_set_is_booked_on_the_parser(world: World, key: str, value: Any) -> None:
    world.write({"a.yaml": world.MODEL})
    found = why(world, key, "+config_paths=[a.yaml]")
    assert found.value == value
    assert found.last is not None
    assert (found.last.source, found.last.note) == ("gym-compose", "default")


def test_a_value_that_the_parser_changed(world: World) -> None:
    found = why(world, "cache_dir", "+cache_dir=c")
    assert [setting.last for setting in found.settings] == [False, True]
    assert found.value == str(world.cwd / "c")


def test_lists_mappings_and_unknown_keys(world: World) -> None:
    world.write({"a.yaml": "l:\n- {x: 1}\n- {x: 2}\n"})
    found = why(world, "l[1].x", "+config_paths=[a.yaml]")
    assert (found.value, found.settings[0].line) == (2, 3)
    assert why(world, "l[7]", "+config_paths=[a.yaml]").settings == ()
    nothing = why(world, "nope")
    assert (nothing.present, nothing.settings, nothing.last) == (False, (), None)
    mapping = explain({"a": {"b": 1}}, "a.b", cwd=world.cwd, environ={}, initial={"a": {"b": 0}})
    assert chain(mapping) == [("initial config", 0), ("command line", 1)]


def test_a_config_that_does_not_merge_is_explained_as_far_as_it_goes(world: World) -> None:
    world.write({"a.yaml": {"x": 1, "y": "???"}})
    found = why(world, "x", "+config_paths=[a.yaml]")
    assert type(found.error).__name__ == "ConfigMissingValuesError"
    assert chain(found) == [("a.yaml", 1)]
    with pytest.raises(ConfigPathNotFoundError):
        why(world, "x", "+config_paths=[zz.yaml]")


def test_paths_of_keys() -> None:
    assert key_path("a.b[0].c") == ("a", "b", 0, "c")


def test_a_composed_agent_leads_back_to_the_agents_it_was_made_of(world: World) -> None:
    world.write(
        {
            "rs.yaml": {**world.RESOURCES, **world.MODEL, **world.agent("math_simple_agent", steps=3), "x": 1},
            "hermes.yaml": world.unbound(turns=1),
        }
    )
    files = "+config_paths=[rs.yaml,hermes.yaml]"
    block = "math_hermes_agent.responses_api_agents.hermes_agent"
    found = why(world, f"{block}.resources_server.name", files)
    assert chain(found) == [("hermes.yaml", "???"), ("rs.yaml", "rs")]
    assert [setting.note.partition(";")[0] for setting in found.settings] == [
        "composition: the standalone agent 'hermes_agent'",
        "composition: kept of 'math_simple_agent'",
    ]
    assert found.last is not None
    assert found.last.value == found.value == "rs"
    override = f"++{block}.turns=5"
    assert chain(why(world, f"{block}.turns", files, override)) == [("hermes.yaml", 1), (override, 5)]
    assert chain(why(world, f"{block}.steps", files)) == []
    assert not why(world, f"{block}.steps", files).present
    [made] = why(world, "agent_map", files).settings
    assert (made.source, made.note) == ("gym-compose", "composition")
    assert chain(why(world, "math_simple_agent", files))[0][0] == "rs.yaml"
    assert not why(world, "math_simple_agent", files).present
