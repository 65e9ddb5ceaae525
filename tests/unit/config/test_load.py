"""The whole way to a ``GymConfig``, and the library call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gym_compose
from gym_compose.config import NO_MODEL, ConfigError, require_instances, resolve_config
from gym_compose.config.errors import NoServerInstancesError
from gym_compose.config.ports import fixed

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


def test_a_loaded_config(world: World) -> None:
    world.write(
        {
            "a.yaml": world.MODEL | world.RESOURCES,
            "b.yaml": world.agent("a") | world.front("e", agent_server="a"),
            "env.yaml": {"policy_api_key": "s3cret"},
        }
    )
    config = world.load(
        [
            "+config_paths=[a.yaml,b.yaml]",
            "+compose.defaults.memory=1g",
            "++pm.responses_api_models.openai_model.openai_api_key=${policy_api_key}",
        ],
        ports=fixed(8000),
    )
    assert [(instance.name, instance.server_type, instance.implementation, instance.port) for instance in config.instances] == [
        ("pm", "responses_api_models", "openai_model", 8000),
        ("rs", "resources_servers", "rsi", 8000),
        ("a", "responses_api_agents", "simple_agent", 8000),
        ("e", "environment_servers", "legacy_agent", 8000),
    ]
    assert {(edge.source, edge.target) for edge in config.references} == {("a", "rs"), ("a", "pm"), ("e", "a")}
    assert [Path(name).name for name in config.config_files] == ["a.yaml", "b.yaml", "env.yaml"]
    assert config.extension == {"defaults": {"memory": "1g"}}
    assert config.secret_paths == {("policy_api_key",), ("pm", "responses_api_models", "openai_model", "openai_api_key")}
    assert config.instance("pm").block["openai_api_key"] == "s3cret"
    assert config.merged["pm"]["responses_api_models"]["openai_model"]["openai_api_key"] == "${policy_api_key}"
    assert config.warnings == ()
    with pytest.raises(KeyError):
        config.instance("nobody")


def test_the_extension_key_has_to_be_a_mapping(world: World) -> None:
    with pytest.raises(ConfigError, match="compose: it has to be a mapping"):
        world.load({"compose": 5})
    assert world.load({"compose": None}).extension == {}


def test_nothing_to_start(world: World) -> None:
    with pytest.raises(NoServerInstancesError, match="--config"):
        require_instances(world.load({}))
    require_instances(world.load({}, initial=NO_MODEL))


def test_an_instance_with_a_name_of_its_own_is_referenced_by_it(world: World) -> None:
    named = {"pm": {**world.MODEL["pm"], "name": "called"}}
    other = {"b": {"responses_api_models": {"m": {"entrypoint": "x", "peer": {"type": "responses_api_models", "name": "called"}}}}}
    [edge] = world.load({**named, **other}).references
    assert (edge.source, edge.target) == ("b", "pm")


def test_relative_extra_roots_are_warned_about(world: World) -> None:
    (world.cwd / "er").mkdir()
    world.environ["NEMO_GYM_EXTRA_ROOTS"] = "er"
    assert any("'er' is relative" in warning for warning in world.load({}).warnings)


def test_our_own_configs_are_found_from_anywhere(world: World) -> None:
    from gym_compose.config.roots import native_root

    shipped = sorted((native_root() / "configs").glob("*.yaml"))
    for path in shipped:
        try:
            config = world.load(
                [f"+config_paths=[configs/{path.name}]", "++policy_base_url=x", "++policy_api_key=k", "++policy_model_name=m"]
            )
        except ConfigError as error:
            pytest.fail(f"{path.name}: {error}")
        assert str(path) in config.config_files


def test_the_library_reads_nothing_that_it_was_not_given(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = world.root / "other"
    other.mkdir()
    (other / "env.yaml").write_text("x: other")
    monkeypatch.chdir(other)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(other))
    monkeypatch.setenv("UV_LOCK_TIMEOUT", "5")
    merged = resolve_config([], cwd=world.cwd, environ={})
    assert "x" not in merged
    assert merged["uv_lock_timeout_seconds"] == 1800
    assert gym_compose.resolve_config is resolve_config
    with pytest.raises(ConfigError):
        resolve_config(["+config_paths=[configs/quickstart.yaml]"], cwd=world.cwd, environ={})


def test_the_same_input_gives_the_same_config_and_changes_nothing(world: World) -> None:
    tree = world.MODEL | {"b": {"_copy": "pm", "x": [1]}, "z": "${y}", "y": {"k": 1}}
    kept = repr(tree)
    first, second = world.resolve(tree, hide_secrets=True), world.resolve(tree, hide_secrets=True)
    assert repr(first) == repr(second)
    assert repr(tree) == kept


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, gym_compose.config, gym_compose.config.roots, gym_compose.config.errors;"
        "print([m for m in ('omegaconf', 'hydra', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, cwd=Path(gym_compose.__file__).parent.parent
    )
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_of_the_package() -> None:
    import gym_compose.config

    assert sorted(gym_compose.config.__all__) == sorted(gym_compose.config._HOME)
    for name in gym_compose.config.__all__:
        assert getattr(gym_compose.config, name) is not None
    with pytest.raises(AttributeError, match="nope"):
        gym_compose.config.nope  # noqa: B018


def test_an_instance_without_a_name_is_refused_where_something_starts(world: World) -> None:
    tree = {"": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}}}
    assert "" in world.resolve(tree)
    with pytest.raises(ConfigError, match="nothing can refer to it"):
        world.load(tree)
