"""Config values that a server reads and was not given: said once each, and nothing else changes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError

from gym_compose.serving.withheld import Withheld
from gym_compose.wire.slice import withheld_hint, withheld_notice

PLAIN: dict[str, Any] = {
    "model": {"responses_api_models": {"m": {"api_key": "****", "base_url": "http://m", "keys": ["****"]}}},
    "given": "value",
}


@pytest.fixture
def config() -> Iterator[Any]:
    before = {name: DictConfig.__dict__[name] for name in ("__getitem__", "__getattr__", "__contains__", "get", "items_ex")}
    made = OmegaConf.create(copy.deepcopy(PLAIN))
    Withheld("math", ["policy_api_key", "hf_token"]).watch(made, PLAIN)
    yield made
    for name, method in before.items():
        setattr(DictConfig, name, method)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_missing_key_is_an_error_as_before_and_one_line_says_what_to_add(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigKeyError):
        config["policy_api_key"]
    assert config.get("policy_api_key") is None
    assert said(capsys) == [
        "gym-compose: math read policy_api_key, which it was not given. To give it: compose: {servers: {math: {secrets: [policy_api_key]}}}"
    ]


@pytest.mark.parametrize("read", [lambda c: c.get("hf_token"), lambda c: "hf_token" in c, lambda c: getattr(c, "hf_token", None)])
def test_every_way_to_look_one_up_counts(config: Any, read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not read(config)
    assert "secrets: [hf_token]" in said(capsys)[0]


def test_a_masked_value_is_named_by_its_path(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    block = config["model"].responses_api_models["m"]
    assert block["base_url"] == "http://m"
    assert said(capsys) == []
    assert block.api_key == "****"
    assert "secrets: [model.responses_api_models.m.api_key]" in said(capsys)[0]


def test_going_over_everything_is_no_reading(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert OmegaConf.to_container(config, resolve=True) == PLAIN
    assert dict(config["model"].responses_api_models["m"].items())["api_key"] == "****"
    assert OmegaConf.to_yaml(config).count("****") == 2
    assert config.get("unknown") is None
    assert config["given"] == "value"
    assert said(capsys) == []


def test_it_stays_an_ordinary_mapping(config: Any) -> None:
    assert type(config) is DictConfig
    for same in (copy.deepcopy(config), pickle.loads(pickle.dumps(config)), OmegaConf.merge(config, {})):
        assert same == config
    merged: Any = OmegaConf.merge(config, {"given": "other"})
    assert merged["given"] == "other"


def test_the_lines_are_repeated_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Withheld("math", ["a", "b"])
    before = {name: DictConfig.__dict__[name] for name in ("__getitem__", "__getattr__", "__contains__", "get", "items_ex")}
    try:
        made = OmegaConf.create({})
        watch.watch(made, {})
        made.get("b")
        made.get("b")
    finally:
        for name, method in before.items():
            setattr(DictConfig, name, method)
    first = said(capsys)
    watch.repeat()
    assert len(first) == 1
    assert said(capsys) == first


def test_a_log_gives_the_hint_with_all_keys_of_the_server() -> None:
    log = [
        "x",
        withheld_notice("math", "policy_api_key"),
        "(math) " + withheld_notice("math", "a.b-c.0"),
        withheld_notice("math", "policy_api_key"),
    ]
    added = "compose: {servers: {math: {secrets: [policy_api_key, a.b-c.0]}}}"
    assert withheld_hint(log) == f"It read policy_api_key, a.b-c.0, which it was not given. To give it: {added}"
    assert withheld_hint(["gym-compose: nothing of the kind"]) is None


def test_odd_names_are_quoted_as_yaml_wants_them() -> None:
    assert withheld_notice("my server", "7: x").endswith('compose: {servers: {"my server": {secrets: ["7: x"]}}}')
