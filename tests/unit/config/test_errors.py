"""Every error class: its smallest config, one line of text, its place in the tree and in the error index."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config import errors, require_instances
from gym_compose.config.errors import ConfigError
from gym_compose.config.ports import probe
from gym_compose.wire.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.config.conftest import World

CLASSES = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, ConfigError)}
INDEX = Path(__file__).parents[3] / "docs" / "errors.md"


def _tree(tree: dict[str, Any]) -> Callable[[World], object]:
    return lambda world: world.load(tree)


def _two(make: Callable[[World], dict[str, Any]]) -> Callable[[World], object]:
    return lambda world: world.load(make(world))


def _file(text: str) -> Callable[[World], object]:
    def case(world: World) -> object:
        world.write({"a.yaml": text})
        return world.load({"config_paths": ["a.yaml"]})

    return case


def _held(world: World) -> object:
    tree = {
        **world.RESOURCES,
        **world.MODEL,
        **world.agent("x_agent"),
        **world.agent("y_agent"),
        **world.unbound(),
        "z": {"_inherit_from": "x_agent"},
    }
    world.write({"a.yaml": tree})
    return world.load(["+config_paths=[a.yaml]", "++x_hermes_agent.responses_api_agents.hermes_agent.k=1"])


def _conflict(world: World) -> object:
    world.write({"a.yaml": {"x": [3]}})
    return world.load({"config_paths": ["a.yaml"], "x": {"a": 1}})


SMALLEST: dict[str, Callable[[World], object]] = {
    "ConfigError": _tree({"head_server": 5}),
    "ConfigFileError": _file("a: ["),
    "ConfigPathNotFoundError": _tree({"config_paths": ["a.yaml"]}),
    "MalformedConfigPathsError": _tree({"config_paths": "a.yaml"}),
    "OverrideError": lambda world: world.load(["foo=1"]),
    "MergeConflictError": _conflict,
    "DirectiveError": _tree({"a": 1, "b": {"_copy": "a"}}),
    "InheritPathNotFoundError": _tree({"b": {"_inherit_from": "a"}}),
    "AmbiguousAgentRenameError": _two(
        lambda w: {**w.agent("a"), **w.front("e", agent_server="a"), "b": {"_inherit_from": "a"}, "c": {"_inherit_from": "a"}}
    ),
    "AgentCompositionError": _two(lambda w: w.unbound()),
    "UnsupportedAgentPairingError": _two(
        lambda w: {
            "rs": {"resources_servers": {"r": {"entrypoint": "x", "domain": "math", "allowed_agents": ["other"]}}},
            **w.agent("a"),
            **w.unbound(),
        }
    ),
    "UnsupportedModelPairingError": _two(
        lambda w: {
            "rs": {"resources_servers": {"r": {"entrypoint": "x", "domain": "math", "allowed_model_types": ["other"]}}},
            **w.MODEL,
            **w.agent("a"),
        }
    ),
    "UnsupportedAgentOverrideError": _held,
    "ConfigMissingValuesError": _tree({"x": "???"}),
    "ConfigInterpolationError": _tree({"x": "${nope}"}),
    "AgentWithoutEnvironmentServerError": _two(lambda w: {**w.agent("a"), "error_on_agent_without_environment_server": True}),
    "AlmostServerError": _tree({"m": {"responses_api_models": {"m": {"entrypoint": 5}}}}),
    "ServerRefNotFoundError": _two(lambda w: {**w.RESOURCES, **w.agent("a")}),
    "NoServerInstancesError": lambda world: require_instances(world.load({})),
    "PortAllocationError": lambda world: world.load({**world.MODEL, "port_range_low": 5, "port_range_high": 1}, ports=probe()),
}
ELSEWHERE = {"AmbiguousEnvironmentServerError", "ManifestError", "EnvironmentValidationError"}
"""Raised by row routing and by the check of manifests, not by the parser."""


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_config_of_each_class(world: World, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SMALLEST[name](world)
    assert type(caught.value).__name__ == name
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert isinstance(caught.value, InvalidInputError)
    assert caught.value.where or caught.value.hint


def test_every_class_has_its_smallest_config() -> None:
    assert set(SMALLEST) | ELSEWHERE == set(CLASSES)


def test_the_tree_at_the_top_of_the_module_names_every_class() -> None:
    assert errors.__doc__ is not None
    for name, cls in CLASSES.items():
        assert name in errors.__doc__
        if cls is not ConfigError:
            assert issubclass(cls, FileNotFoundError if name == "ConfigPathNotFoundError" else ValueError)


def test_the_error_index_names_every_class() -> None:
    text = INDEX.read_text(encoding="utf-8")
    for name in CLASSES:
        assert f"`{name}`" in text, f"{name} is not in {INDEX.name}"
