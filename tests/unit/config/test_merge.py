"""Precedence of sources and what merging does: contract-config 1.5, E11 to E13."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_compose.config.errors import MergeConflictError
from gym_compose.config.interpolation import Tree, environment
from gym_compose.config.merge import Layer, merge_fragment, merge_layers

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        ({"l": [1, 2, 3], "d": {"p": 1, "q": 2}}, {"l": [9], "d": {"q": 3}}, {"l": [9], "d": {"p": 1, "q": 3}}),  # E11
        ({"x": "a"}, {"x": "???"}, {"x": "a"}),  # E12
        ({"x": "???"}, {"x": "a"}, {"x": "a"}),
        ({"x": {"a": 1}}, {"x": 5}, {"x": 5}),
        ({"x": 5}, {"x": {"a": 1}}, {"x": {"a": 1}}),
        ({"x": {"a": 1}}, {"x": None}, {"x": None}),
        ({"x": None}, {"x": {"a": 1}}, {"x": {"a": 1}}),
        ({"x": {"a": 1}}, {"x": "???"}, {"x": {"a": 1}}),
        ({"x": [1]}, {"x": 5}, {"x": 5}),
        ({"x": 5}, {"x": [1]}, {"x": [1]}),
        ({"x": {"a": 1}, "y": "${x}"}, {"y": {"b": 2}}, {"x": {"a": 1}, "y": {"a": 1, "b": 2}}),
        ({"x": {"a": 1}, "y": "${x}"}, {"y": 5}, {"x": {"a": 1}, "y": 5}),
        ({"x": {"a": 1}}, {"x": "${y}"}, {"x": "${y}"}),
        ({"x": {"a": 1}}, {"x": {}}, {"x": {"a": 1}}),
        ({"b": 1, "a": 2}, {"c": 3, "b": 4}, {"b": 4, "a": 2, "c": 3}),
    ],
)
def test_two_layers(below: dict[str, Any], above: dict[str, Any], merged: dict[str, Any]) -> None:
    with environment({}):
        result = merge_layers([Layer("below", below), Layer("above", above)]).data
    assert result == merged
    assert list(result) == list(merged)


@pytest.mark.parametrize(("below", "above"), [({"x": [3]}, {"x": {"a": 1}}), ({"x": {"a": 1}}, {"x": [3]})])
def test_a_mapping_and_a_list_do_not_merge(below: dict[str, Any], above: dict[str, Any]) -> None:  # E13
    layers = [Layer("one", {"y": 1}), Layer("two", below), Layer("three", {"z": 1}), Layer("four", above), Layer("five", {"y": 2})]
    with environment({}), pytest.raises(MergeConflictError) as caught:
        merge_layers(layers)
    assert caught.value.where == "four"


def test_sources_in_order(world: World) -> None:
    world.write({"a.yaml": {"f": "file", "e": "file", "i": "file", "c": "file"}, "env.yaml": {"e": "env", "i": "env", "c": "env"}})
    merged = world.resolve({"config_paths": ["a.yaml"], "c": "cli"}, initial={"i": "initial", "c": "initial"})
    assert [merged[key] for key in "feic"] == ["file", "env", "initial", "cli"]


def test_key_order_of_the_merged_config(world: World) -> None:  # 1.16
    world.write(
        {"a.yaml": {"head_server": {"port": 1}, "b": 1, "config_paths": ["c.yaml"]}, "c.yaml": {"z": 1}, "env.yaml": {"e": 1, "b": 2}}
    )
    merged = world.resolve(["+config_paths=[a.yaml]", "+x=1"])
    assert list(merged) == [
        *("z", "head_server", "b", "config_paths", "e", "x", "use_absolute_ip", "port_range_low", "port_range_high", "disallowed_ports"),
        *("allow_openai_version_skew", "head_server_deps", "python_version", "skip_venv_if_present", "dry_run"),
        *("server_spinup_timeout_seconds", "model_endpoint_readiness_timeout_seconds", "results_dir", "cache_dir", "uv_cache_dir"),
        *("uv_lock_timeout_seconds", "uv_venv_dir"),
    ]


def test_a_mapping_over_a_scalar_of_the_initial_values_joins_the_files(world: World) -> None:
    world.write({"a.yaml": {"m": {"x": 1}}})
    assert world.resolve({"config_paths": ["a.yaml"], "m": {"y": 2}}, initial={"m": 5})["m"] == {"x": 1, "y": 2}


leaves = st.none() | st.integers(0, 3) | st.sampled_from(["???", "t", "${a}", "${b.c}", "${nope}"])
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
mappings = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@settings(deadline=None)
@given(mappings, mappings, mappings)
def test_a_fragment_merges_as_omegaconf_merges_it(outside: dict[str, Any], below: dict[str, Any], above: dict[str, Any]) -> None:
    """As directives use it: ``below`` is a node of a whole config; its interpolations point into that, which the merge leaves alone."""
    whole = {**outside, "part": below}
    with environment({}):
        try:
            expected = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(whole)["part"], above), resolve=False)
        except (OmegaConfBaseException, TypeError):
            with pytest.raises(MergeConflictError):
                merge_fragment(below, above, Tree(whole))
            return
        except RecursionError:
            return
        assert merge_fragment(below, above, Tree(whole)) == expected
