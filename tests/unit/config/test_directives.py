"""Merge directives and renamed agents: contract-config 1.7, E17 to E29, E56 to E59."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config.errors import (
    AmbiguousAgentRenameError,
    ConfigError,
    ConfigInterpolationError,
    ConfigMissingValuesError,
    DirectiveError,
    InheritPathNotFoundError,
    MergeConflictError,
    ServerRefNotFoundError,
)
from gym_compose.config.interpolation import Tree, environment

if TYPE_CHECKING:
    from tests.unit.config.conftest import World

A = {"p": 1, "q": {"r": 2}}


def directed(tree: dict[str, Any], environ: dict[str, str] | None = None) -> dict[str, Any]:
    from gym_compose.config.directives import apply_directives

    held = Tree(tree)
    with environment(environ or {}):
        apply_directives(held)
    return held.data


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("E17 move", {"a": A, "b": {"_inherit_from": "a", "q": {"s": 3}}}, {"b": {"p": 1, "q": {"r": 2, "s": 3}}}),
    ("E18 copy", {"a": A, "b": {"_copy": "a", "q": {"s": 3}}}, {"a": A, "b": {"p": 1, "q": {"r": 2, "s": 3}}}),
    ("E19 two heirs", {"a": A, "b": {"_inherit_from": "a"}, "c": {"_inherit_from": "a"}}, {"b": A, "c": A}),
    (
        "E20 no chaining",
        {"a": A, "b": {"_inherit_from": "a", "x": 1}, "c": {"_inherit_from": "b"}},
        {"c": {"_inherit_from": "a", "x": 1}},
    ),
    (
        "E21 the other order",
        {"c": {"_inherit_from": "b"}, "b": {"_inherit_from": "a", "x": 1}, "a": A},
        {"c": {"_inherit_from": "a", "x": 1}, "b": {"p": 1, "q": {"r": 2}, "x": 1}},
    ),
    ("E22 a copied directive", {"a": 5, "b": "${inherit_from:a}", "c": "${copy:b}"}, {"b": 5, "c": "${inherit_from:a}"}),
    ("E23 an open source", {"zz": {"k": "???"}, "b": {"_inherit_from": "zz.k"}}, {"zz": {}, "b": "???"}),
    ("an open ancestor", {"zz": "???", "b": "${copy:zz.k}"}, {"zz": "???", "b": "???"}),
    (
        "E24 delete what is here",
        {"a": {"p": {"x": 1, "y": 2}}, "b": {"_inherit_from": "a", "p": {"x": 9}, "_delete_key": "p"}},
        {"b": {"p": {"x": 1, "y": 2}}},
    ),
    ("E25 delete what is inherited", {"a": {"p": 1, "z": 2, "k": 3}, "b": {"_inherit_from": "a", "_delete_key": "p, z"}}, {"b": {"k": 3}}),
    ("E25 unknown name without inheritance", {"b": {"_delete_key": "nope, x", "x": 1, "y": 2}}, {"b": {"y": 2}}),
    (
        "E26 lists",
        {"a": A, "l": [{"_inherit_from": "a"}, "${copy:a}", {"k": {"_copy": "a"}}]},
        {"a": A, "l": [{"_inherit_from": "a"}, "${copy:a}", {"k": A}]},
    ),
    ("E27 a scalar by its string form", {"a": {"p": 5}, "b": "${inherit_from:a.p}"}, {"a": {}, "b": 5}),
    ("E28 at the root", {"_inherit_from": "a", "_delete_key": "a", "a": A}, {"_inherit_from": "a", "_delete_key": "a", "a": A}),
    ("E29 itself", {"x": {"_inherit_from": "x", "q": 2}}, {"x": {"_inherit_from": "x", "q": 2}}),
    ("its own child", {"x": {"y": {"_inherit_from": "x"}}, "z": 1}, {"z": 1}),
    ("both directives", {"a": A, "c": {"k": 1}, "b": {"_inherit_from": "a", "_copy": "c"}}, {"a": A, "b": {"k": 1}}),
    ("nested target", {"a": A, "b": {"c": {"d": {"_copy": "a.q"}}}}, {"a": A, "b": {"c": {"d": {"r": 2}}}}),
    (
        "own values win, lists replace",
        {"a": {"l": [1, 2], "m": 1}, "b": {"_copy": "a", "l": [3], "m": "???"}},
        {"a": {"l": [1, 2], "m": 1}, "b": {"l": [3], "m": 1}},
    ),
    ("an interpolated source", {"a": "${c}", "c": A, "b": "${copy:a}"}, {"a": "${c}", "c": A, "b": A}),
    ("the environment", {"a": {"p": "${oc.env:X}"}, "b": "${copy:a.p}"}, {"a": {"p": "${oc.env:X}"}, "b": "x"}),
    ("text inside stays text", {"a": {"p": "${nope}"}, "b": "${copy:a}"}, {"a": {"p": "${nope}"}, "b": {"p": "${nope}"}}),
    ("an interpolated path", {"a": A, "n": "a", "b": {"_copy": "${n}"}}, {"a": A, "n": "a", "b": A}),
]


@pytest.mark.parametrize(("tree", "result"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_directives(tree: dict[str, Any], result: dict[str, Any]) -> None:
    done = directed(tree, {"X": "x"})
    assert done == result
    assert list(done) == list(result)


@pytest.mark.parametrize(
    ("tree", "error", "words"),
    [
        ({"zz": {}, "b": {"_inherit_from": "zz.k"}}, InheritPathNotFoundError, "['zz', 'k']"),  # E23
        ({"b": "${copy:no.such}"}, InheritPathNotFoundError, "['no', 'such']"),
        ({"a": [1], "b": "${copy:a.0}"}, InheritPathNotFoundError, "['a', '0']"),
        ({"a": {"p": 5}, "b": "${inherit_from:a.p.x}"}, InheritPathNotFoundError, "['a', 'p', 'x']"),
        ({"a": {"p": 1}, "b": {"_inherit_from": "a"}, "c": "${copy:a.p}"}, InheritPathNotFoundError, "_copy"),
        ({"a": {"p": 5}, "b": {"_inherit_from": "a.p"}}, DirectiveError, "${inherit_from:a.p}"),  # E27
        ({"a": [1], "b": {"_copy": "a", "x": 1}}, DirectiveError, "a list"),
        ({"a": A, "b": {"_inherit_from": "a", "_delete_key": "nope"}}, DirectiveError, "'nope'"),  # E25
        ({"b": {"_delete_key": ["x"], "x": 1}}, DirectiveError, "['x']"),
        ({"a": A, "b": {"_inherit_from": 5}}, DirectiveError, "dotted path"),
        ({"a": A, "b": {"_inherit_from": None}}, DirectiveError, "dotted path"),
        ({"a": {"l": [1]}, "b": {"_copy": "a", "l": {"x": 1}}}, MergeConflictError, "what 'a' holds"),
        ({"a": {"k": "${nope}"}, "b": {"_copy": "a", "_delete_key": "k"}}, ConfigInterpolationError, "'nope'"),
        ({"a": "${nope}", "b": "${copy:a}"}, ConfigInterpolationError, "'nope'"),
        ({"l": ["${nope}"]}, ConfigInterpolationError, "'nope'"),
    ],
)
def test_refused_directives(tree: dict[str, Any], error: type[ConfigError], words: str) -> None:
    with pytest.raises(error) as caught:
        directed(tree)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_open_source_is_reported_as_missing(world: World) -> None:  # E23
    with pytest.raises(ConfigMissingValuesError, match="b"):
        world.resolve({"zz": {"k": "???"}, "b": {"_inherit_from": "zz.k"}})


def test_a_left_over_directive_is_warned_about(world: World) -> None:

    config = world.load(
        {**world.MODEL, "b": {"_inherit_from": "pm"}, "c": {"_copy": "b", "responses_api_models": {"m": {"entrypoint": "x"}}}}
    )
    assert any("c: _inherit_from was left over" in warning for warning in config.warnings)


class TestRenamedAgents:
    def test_an_environment_server_follows_a_moved_agent(self, world: World) -> None:  # E56

        merged = world.merged(
            world.MODEL, world.RESOURCES, world.agent("a"), world.front("e", agent_server="a"), {"b": {"_inherit_from": "a"}}
        )
        assert merged["e"]["environment_servers"]["legacy_agent"]["agent_server"]["name"] == "b"
        assert "a" not in merged

    def test_so_do_references_of_other_names_and_the_string_form(self, world: World) -> None:

        merged = world.merged(
            world.MODEL,
            world.RESOURCES,
            world.agent("a"),
            world.agent("u"),
            world.front("e", user="a", assistant="u"),
            {"b": "${inherit_from:a}"},
        )
        block = merged["e"]["environment_servers"]["legacy_agent"]
        assert (block["user"]["name"], block["assistant"]["name"]) == ("b", "u")

    def test_of_two_agents_of_a_server_only_the_renamed_ones_field_follows_and_none_needs_a_relay(self, world: World) -> None:
        """Contract-data, edge case 83."""
        merged = world.merged(
            world.MODEL,
            world.RESOURCES,
            world.agent("a"),
            world.agent("u"),
            world.front("e", user_agent="u", assistant_agent="a"),
            {"b": {"_inherit_from": "a"}, "error_on_agent_without_environment_server": True},
        )
        block = merged["e"]["environment_servers"]["legacy_agent"]
        assert (block["user_agent"]["name"], block["assistant_agent"]["name"]) == ("u", "b")
        assert [name for name, value in merged.items() if isinstance(value, dict) and "environment_servers" in value] == ["e"]

    def test_several_new_names_are_ambiguous_where_one_is_named(self, world: World) -> None:  # E57

        heirs = {"b": {"_inherit_from": "a"}, "c": {"_inherit_from": "a"}}
        with pytest.raises(AmbiguousAgentRenameError) as caught:
            world.merged(world.MODEL, world.RESOURCES, world.agent("a"), world.front("e", agent_server="a"), heirs)
        assert caught.value.where == "e.environment_servers.legacy_agent.agent_server.name"
        assert "'b', 'c'" in str(caught.value)
        merged = world.merged(world.MODEL, world.RESOURCES, world.agent("a"), heirs)
        assert {"b", "c"} <= set(merged)

    def test_a_copy_is_no_rename(self, world: World) -> None:  # E58

        merged = world.merged(world.MODEL, world.RESOURCES, world.agent("a"), world.front("e", agent_server="a"), {"b": {"_copy": "a"}})
        assert merged["e"]["environment_servers"]["legacy_agent"]["agent_server"]["name"] == "a"
        assert merged["b_environment_server"]["environment_servers"]["legacy_agent"]["agent_server"]["name"] == "b"

    def test_a_nested_move_is_not_followed_and_the_hint_names_the_field(self, world: World) -> None:  # E59

        moved = {"b": {"responses_api_agents": {"simple_agent": {"_inherit_from": "a.responses_api_agents.simple_agent"}}}}
        with pytest.raises(ServerRefNotFoundError) as caught:
            world.merged(world.MODEL, world.RESOURCES, world.agent("a"), world.front("e", agent_server="a"), moved)
        assert "update agent_server.name of 'e' (e.environment_servers.legacy_agent.agent_server.name)" in str(caught.value)
