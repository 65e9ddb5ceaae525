"""Open values and interpolations: contract-config 1.8, E42 to E44."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf

from gym_compose.config.errors import ConfigInterpolationError, ConfigMissingValuesError, InheritPathNotFoundError
from gym_compose.config.interpolation import Tree, environment

if TYPE_CHECKING:
    from tests.unit.config.conftest import World

MODEL: dict[str, Any] = {"pm": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}}}


def test_every_open_value_is_listed(world: World) -> None:  # E42
    with pytest.raises(ConfigMissingValuesError) as caught:
        world.resolve({"junk": {"a": [1, {"b": "???"}], "c": "???"}, "telemetry": {"x": "???"}})
    assert caught.value.details == ("junk.a[1].b", "junk.c", "telemetry.x")
    assert "++junk.a[1].b=<value>" in str(caught.value)


def test_open_values_in_overwritten_branches_do_not_matter(world: World) -> None:
    assert (
        world.resolve({"a": {"x": "???"}, "b": {"_copy": "a", "x": 1}, "a2": 1, "c": {"_delete_key": "a"}} | {"a": {"x": 2}})["b"]["x"] == 1
    )


def broken(where: str) -> dict[str, Any]:
    block = MODEL["pm"]["responses_api_models"]["openai_model"]
    fields: dict[str, dict[str, Any]] = {"direct": {"k": "${nope}"}, "deep": {"k": {"deep": "${nope}"}}}
    tree: dict[str, Any] = {"pm": {"responses_api_models": {"openai_model": {**block, **fields.get(where, {})}}}}
    beside: dict[str, dict[str, Any]] = {"top": {"s": "${nope}"}, "elsewhere": {"other": {"deep": "${nope}"}}}
    return tree | beside.get(where, {})


@pytest.mark.parametrize("where", ["direct", "deep", "top", "elsewhere"])
def test_a_broken_interpolation_is_rejected_by_resolve(world: World, where: str) -> None:  # E43
    with pytest.raises(ConfigInterpolationError) as caught:
        world.resolve(broken(where))
    assert "'nope'" in str(caught.value)
    assert "++nope=<value>" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("where", ["direct", "deep", "top"])
def test_load_rejects_what_a_server_or_the_parser_reads(world: World, where: str) -> None:
    with pytest.raises(ConfigInterpolationError, match="'nope'"):
        world.load(broken(where))


def test_load_keeps_the_text_of_what_may_never_be_read(world: World) -> None:
    config = world.load(broken("elsewhere") | {"fine": "${policy}", "policy": "p"})
    assert config.resolved["other"] == {"deep": "${nope}"}
    assert config.resolved["fine"] == "p"
    assert any("other.deep" in warning and "keeps its text" in warning for warning in config.warnings)


def test_interpolations_stay_text_in_the_merged_config(world: World) -> None:  # E44
    world.environ["FOO"] = "foo"
    config = world.load({"a": "${oc.env:FOO}", "b": "${oc.env:BAR,false}", "c": "${oc.env:BAR,null}"})
    assert [config.merged[key] for key in "abc"] == ["${oc.env:FOO}", "${oc.env:BAR,false}", "${oc.env:BAR,null}"]
    assert [config.resolved[key] for key in "abc"] == ["foo", "False", None]


def test_only_the_environment_that_was_given_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_HERE", "x")
    with pytest.raises(ConfigInterpolationError, match="'ONLY_HERE' not found"):
        world.resolve({"a": "${oc.env:ONLY_HERE}"})
    assert os.environ["ONLY_HERE"] == "x"
    assert OmegaConf.create({"a": "${oc.env:ONLY_HERE}"}).a == "x", "outside of our calls OmegaConf reads the process"
    assert not OmegaConf.has_resolver("copy"), "NeMo Gym registers it itself and refuses to find it taken"


def test_an_empty_default_is_an_empty_string_with_a_warning(world: World) -> None:
    config = world.load({"a": "${oc.env:NOPE,}"})
    assert config.resolved["a"] == ""
    assert any("elements are missing" in warning for warning in config.warnings)


@pytest.mark.parametrize(
    ("tree", "resolved"),
    [
        ({"a": "${oc.select:nope,7}"}, 7),
        ({"a": "${oc.decode:'[1,2]'}"}, [1, 2]),
        ({"a": "http://${b}:${c.d}/", "b": "h", "c": {"d": 1}}, "http://h:1/"),
        ({"a": "${c}", "c": {"d": "${b}"}, "b": 1}, {"d": 1}),
        ({"a": {"x": "${.y}", "y": 2}}, {"x": 2, "y": 2}),
        ({"a": "\\${b}"}, "${b}"),
        ({"a": ["${copy:x}"]}, ["${copy:x}"]),
    ],
)
def test_resolved_values(world: World, tree: dict[str, Any], resolved: Any) -> None:
    assert world.resolve(tree)["a"] == resolved


@pytest.mark.parametrize(
    "tree", [{"a": "${a}"}, {"a": "${b}", "b": "${a}"}, {"a": {"b": "${a}"}}, {"a": "${nope:1}"}, {"a": "${oc.decode:'[1'}"}]
)
def test_what_cannot_be_resolved_is_one_error(world: World, tree: dict[str, Any]) -> None:
    with pytest.raises(ConfigInterpolationError):
        world.resolve(tree)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        # An almost-server is shown with the whole config resolved.
        ({"rs": {"resources_servers": {"r": {"entrypoint": "x"}}}, "other": {"deep": "${nope}"}}, "other.deep"),
        # A binding of the files is looked at before the directives, so before the inheritance that fails and the value that is open.
        (
            {"a": {"responses_api_agents": {"s": {"resources_server": "${nope}"}}}, "b": {"_copy": "zz"}, "c": "???"},
            "a.responses_api_agents.s.resources_server",
        ),
        # All fields of a block are resolved before its first reference is checked.
        (
            {"m": {"responses_api_models": {"m": {"entrypoint": "x", "r": {"type": "resources_servers", "name": "none"}, "z": "${nope}"}}}},
            "m.responses_api_models.m.z",
        ),
        # So is the name of a reference.
        ({"m": {"responses_api_models": {"m": {"entrypoint": "x", "r": {"type": "resources_servers", "name": "${nope}"}}}}}, "r.name"),
    ],
)
def test_which_error_comes_first(world: World, tree: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigInterpolationError) as caught:
        world.merged(tree)
    assert words in str(caught.value)


def test_a_binding_of_the_overrides_is_looked_at_after_the_directives(world: World) -> None:
    with pytest.raises(InheritPathNotFoundError):
        world.load({"a": {"responses_api_agents": {"s": {"resources_server": "${nope}"}}}, "b": {"_copy": "zz"}})


@pytest.mark.parametrize(("tree", "said"), [({"x": "${y}", "y": "${x}"}, "circle"), ({"x": "${no.such:1}"}, "Resolvers are oc.env")])
def test_what_to_do_is_said(world: World, tree: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInterpolationError, match=said):
        world.resolve(tree)


def test_a_close_name_is_suggested(world: World) -> None:
    with pytest.raises(ConfigInterpolationError, match="Did you mean 'policy_base_url'"):
        world.resolve({"a": "${policy_base_ulr}", "policy_base_url": "x"})


def test_places_in_a_tree() -> None:
    tree = Tree({"a": {"b": "${c}"}, "c": {"d": ["${e}"], "f": "???"}, "e": 5, "made": "${oc.create:${c}}"})
    with environment({}):
        place = tree.at(("a", "b"))
        assert place is not None
        assert place.path == ("c",)
        assert place.value is tree.data["c"]
        assert tree.value(("a", "b", "d", 0)) == 5
        assert tree.value(("a", "b", "f"), "default") == "default"
        assert tree.at(("a", "nope")) is None
        assert tree.at(("e", "x")) is None
        made = tree.at(("made",))
        assert made is not None
        assert made.path is None
        tree.put(("e",), 6)
        assert tree.value(("c", "d", 0)) == 6
        tree.data["c"]["f"] = 7
        tree.changed()
        assert tree.resolved()["a"]["b"] == {"d": [6], "f": 7}


def test_a_variable_that_is_not_set_is_named_with_the_remedy(world: World) -> None:
    with pytest.raises(ConfigInterpolationError) as caught:
        world.resolve({"policy_base_url": "${oc.env:POLICY_BASE_URL}"})
    assert str(caught.value).startswith("policy_base_url: environment variable 'POLICY_BASE_URL' not found. Set it, or give a default")
    assert "KeyError" not in str(caught.value)
