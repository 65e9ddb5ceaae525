"""References between servers: contract-config 1.11, E45 to E49."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config.errors import ServerRefNotFoundError
from gym_compose.config.references import nested_references, server_reference

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


@pytest.mark.parametrize(
    ("value", "reference"),
    [
        ({"type": "resources_servers", "name": "rs"}, ("resources_servers", "rs")),
        ({"type": "resources_servers", "name": "rs", "extra": 1}, ("resources_servers", "rs")),
        ({"type": "resources_servers", "name": 5}, None),
        ({"type": "other", "name": "rs"}, None),
        ({"name": "rs"}, None),
        ({"type": "resources_servers"}, None),
        ("rs", None),
        (None, None),
        (["resources_servers"], None),
        ({"type": ["resources_servers"], "name": "rs"}, None),
    ],
)
def test_what_is_a_reference(value: Any, reference: Any) -> None:
    assert server_reference(value) == reference


def test_a_close_match_is_suggested(world: World) -> None:  # E45
    wrong = world.agent("a", resources_server={"type": "resources_servers", "name": "rsx"})
    with pytest.raises(ServerRefNotFoundError) as caught:
        world.resolve({**world.MODEL, **world.RESOURCES, **wrong})
    text = str(caught.value)
    assert text.startswith("server instance 'a': the field 'resources_server' refers to resources_servers/'rsx'")
    assert "Did you mean 'rs'?" in text
    assert "\n" not in text


def test_without_a_close_match_all_names_of_the_type_are_listed(world: World) -> None:  # E46
    with pytest.raises(ServerRefNotFoundError, match=r"Available responses_api_models: \(none\)"):
        world.resolve({**world.RESOURCES, **world.agent("a")})
    more = {"zeta": world.MODEL["pm"], "alpha": world.MODEL["pm"]}
    with pytest.raises(ServerRefNotFoundError, match="Available responses_api_models: 'alpha', 'zeta'"):
        world.resolve({**world.RESOURCES, **world.agent("a"), **more})


def test_a_name_of_another_type_does_not_count(world: World) -> None:
    wrong = world.agent("a", model_server={"type": "responses_api_models", "name": "rs"})
    with pytest.raises(ServerRefNotFoundError, match="'model_server' refers to responses_api_models/'rs'"):
        world.resolve({**world.MODEL, **world.RESOURCES, **wrong})


def test_extra_keys_do_not_disqualify_a_reference(world: World) -> None:  # E48
    with pytest.raises(ServerRefNotFoundError, match="field 'x'"):
        world.resolve({**world.MODEL, **world.RESOURCES, **world.agent("a", x={"type": "resources_servers", "name": "nope", "extra": 1})})


def test_nested_references_are_edges_and_only_warned_about(world: World) -> None:  # E47
    judges = [{"type": "responses_api_models", "name": "nope"}, {"type": "responses_api_models", "name": "pm"}]
    config = world.load({**world.MODEL, **world.RESOURCES, **world.agent("a", judges=judges, deep={"er": judges[1]})})
    edges = {(edge.source, edge.field, edge.target, edge.checked) for edge in config.references}
    assert {
        ("a", "resources_server", "rs", True),
        ("a", "model_server", "pm", True),
        ("a", "judges[1]", "pm", False),
        ("a", "deep.er", "pm", False),
    } <= edges
    assert any("a: the nested field 'judges[0]' refers to responses_api_models/'nope'" in warning for warning in config.warnings)


@pytest.mark.parametrize("reference", [{"type": "${t}", "name": "${n}"}, "${whole}"])
def test_interpolated_references_are_resolved_first_and_stay_text(world: World, reference: Any) -> None:  # E49
    values = {"t": "responses_api_models", "n": "pm", "whole": {"type": "responses_api_models", "name": "pm"}}
    tree = {**world.MODEL, **world.RESOURCES, **world.agent("a", model_server=reference), **values}
    config = world.load(tree)
    assert config.merged["a"]["responses_api_agents"]["simple_agent"]["model_server"] == reference
    assert ("a", "pm") in {(edge.source, edge.target) for edge in config.references}
    wrong = {"n": "nope"} if isinstance(reference, dict) else {"whole": {"type": "responses_api_models", "name": "nope"}}
    with pytest.raises(ServerRefNotFoundError, match="'nope'"):
        world.load(tree | wrong)


def test_cycles_and_shared_targets_are_allowed(world: World) -> None:
    tree = {
        "m1": {"responses_api_models": {"m": {"entrypoint": "x", "other": {"type": "responses_api_models", "name": "m2"}}}},
        "m2": {"responses_api_models": {"m": {"entrypoint": "x", "other": {"type": "responses_api_models", "name": "m1"}}}},
        "m3": {"responses_api_models": {"m": {"entrypoint": "x", "other": {"type": "responses_api_models", "name": "m3"}}}},
    }
    assert len(world.load(tree).references) == 3


def test_the_walk_into_a_block() -> None:
    one = {"type": "environment_servers", "name": "x"}
    found = list(nested_references({"a": one, "b": [one, {"c": one}], "d": "text"}))
    assert [field for field, _ in found] == ["a", "b[0]", "b[1].c"]
