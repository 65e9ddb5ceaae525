"""What a container gets whose image says what runs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml

from gym_compose.compiler import compile, render
from gym_compose.compiler.fragments import parse_fragments
from gym_compose.compiler.own_image import LONGEST_VARIABLE
from gym_compose.compiler.render import compose_text
from gym_compose.config.model import SourceFile

OWN = {"runtime": "dockerfile", "files": (SourceFile("Dockerfile", "1" * 64, 9),)}


@pytest.fixture
def compiled(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(secrets: Any = (), **options: Any) -> Any:
        config = make_config(four, secrets=secrets)
        return compile(config, make_sources(config, math=OWN), make_options(**options))

    return make


def environment(deployment: Any) -> dict[str, str]:
    return dict(deployment.service("math").environment)


def test_its_config_and_address_come_by_environment(compiled: Any) -> None:
    deployment = compiled()
    found = environment(deployment)
    assert deployment.service("math").command == ()
    assert found["NEMO_GYM_CONFIG_PATH"] == "math"
    block = orjson.loads(found["NEMO_GYM_CONFIG_DICT"])["math"]["resources_servers"]["math"]
    assert (found["GYM_HOST"], found["GYM_PORT"]) == (block["host"], "8000") == ("math.gym", "8000")
    assert found["GYM_CONFIG_FILE"] == "/run/secrets/config"
    assert found["HOME"] == "/home/gym"
    assert found["HF_HUB_OFFLINE"] == "1"


def test_a_published_one_listens_everywhere(compiled: Any) -> None:
    assert environment(compiled(publish=("math",)))["GYM_HOST"] == "0.0.0.0"


def test_secrets_are_in_a_file_alone(four: Any, compiled: Any, make_options: Any) -> None:
    four["math"]["resources_servers"]["math"]["token"] = "MARKER-TOKEN"
    deployment = compiled([("math", "resources_servers", "math", "token")])
    files = {file.path: file for file in render(deployment, make_options().assets, "/d")}
    config = files["slices/math/config.json"]
    assert (config.mode, config.owner) == (0o400, (1000, 1000))
    compose = files["compose.yaml"].content
    assert config.content is not None
    assert compose is not None
    assert orjson.loads(config.content)["math"]["resources_servers"]["math"]["token"] == "MARKER-TOKEN"
    assert b"MARKER-TOKEN" not in compose
    assert any(instance == "math" and "secrets masked" in note for instance, note in deployment.notes)


def test_a_config_that_is_too_long_for_a_variable_is_in_the_file_alone(four: Any, compiled: Any) -> None:
    four["math"]["resources_servers"]["math"]["long"] = "x" * LONGEST_VARIABLE
    deployment = compiled()
    assert "NEMO_GYM_CONFIG_DICT" not in environment(deployment)
    assert any("too long for a variable" in note for _, note in deployment.notes)


def test_its_own_stop_signal_counts_and_it_is_hardened_all_the_same(compiled: Any, make_options: Any) -> None:
    deployment = compiled()
    services = yaml.safe_load(compose_text(deployment, parse_fragments(make_options().assets), "/d"))["services"]
    assert "stop_signal" not in services["math"]
    assert "command" not in services["math"]
    assert services["math"]["read_only"] is True
    assert services["policy_model"]["stop_signal"] == "SIGINT"
    assert {secret["source"] for secret in services["math"]["secrets"]} == {"slice-math", "config-math"}


def test_variables_of_the_user_are_set_and_secret_ones_are_not(four: Any, compiled: Any) -> None:
    four["compose"] = {"servers": {"math": {"environment": {"THREADS": 2, "KEY": "MARKER-KEY"}}}}
    deployment = compiled([("compose", "servers", "math", "environment", "KEY")])
    assert environment(deployment)["THREADS"] == "2"
    assert "MARKER-KEY" not in str(environment(deployment))
    assert any("KEY" in note and "/run/secrets/slice" in note for _, note in deployment.notes)
