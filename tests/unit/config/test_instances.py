"""What is a server and what only looks like one: contract-config 1.1, 1.2, E30 to E41."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config.errors import AlmostServerError

if TYPE_CHECKING:
    from tests.unit.config.conftest import World

MODEL: dict[str, Any] = {"pm": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}}}
RESOURCES: dict[str, Any] = {"rs": {"resources_servers": {"rsi": {"entrypoint": "app.py", "domain": "math"}}}}


def rs(**fields: Any) -> dict[str, Any]:
    return {"rs": {"resources_servers": {"rsi": {"entrypoint": "app.py", **fields}}}}


def pm(**fields: Any) -> dict[str, Any]:
    return {"pm": {"responses_api_models": {"m": {"entrypoint": "app.py", **fields}}}}


def dataset(**fields: Any) -> dict[str, Any]:
    return pm(datasets=[{"name": "d", "jsonl_fpath": "d.jsonl", **fields}])


TRAIN = {"type": "train", "license": "MIT"}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (rs(), "a resources server needs a domain"),  # E30
        (rs(domain="bogus"), "resources_servers.rsi.domain"),
        (rs(domain="${d}") | {"d": "math"}, "resources_servers.rsi.domain"),
        (
            {"pm": {"responses_api_models": {"a": {"entrypoint": "x"}, "b": {}}}},
            "exactly one implementation stands here, not 2 (a, b)",
        ),  # E33
        (
            {"pm": {"responses_api_models": {"a": {"entrypoint": "x"}, "b": {"entrypoint": "x"}}}},
            "exactly one implementation stands here, not 2 (a, b)",
        ),
        (pm(num_workers="${n}") | {"n": 1}, "responses_api_models.m.num_workers"),  # E38
        (pm(port="${n}") | {"n": 1}, "responses_api_models.m.port"),
        (pm(port="x"), "responses_api_models.m.port"),
        (pm(entrypoint=5), "responses_api_models.m.entrypoint"),
        (dataset(type="train"), "a train dataset needs a license ('d' has none)"),  # E39
        (dataset(type="validation"), "license"),
        (dataset(type="benchmark"), "datasets.0.prepare_script: Field required"),
        (dataset(type="foo"), "datasets.0.type: Input should be 'train', 'validation' or 'example' / Input should be 'benchmark'"),
        (dataset(type="example", num_repeats=0), "datasets.0.num_repeats"),
        (dataset(type="example", num_repeats="${n}") | {"n": 1}, "datasets.0.num_repeats"),
        (dataset(type="example", taskset=""), "datasets.0.taskset"),
        (dataset(**TRAIN, source={"type": "ftp"}), "datasets.0.source"),
        (
            dataset(
                **TRAIN,
                source={"type": "huggingface", "repo_id": "r"},
                gitlab_identifier={"dataset_name": "n", "version": "1", "artifact_fpath": "a"},
            ),
            "both source and an old *_identifier",
        ),
        (dataset(type="train", license="WTFPL"), "datasets.0.license"),
    ],
)
def test_almost_servers(world: World, tree: dict[str, Any], words: str) -> None:
    with pytest.raises(AlmostServerError) as caught:
        world.resolve(tree)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert "Field required" in words or "Field required" not in text, "noise of the other members of a union"
    assert "error_on_almost_servers=false" in text


def test_almost_servers_can_be_let_pass(world: World) -> None:  # E31
    config = world.load({**rs(), "error_on_almost_servers": False})
    assert config.instances == ()
    assert "host" not in config.resolved["rs"]["resources_servers"]["rsi"]
    assert any(warning.startswith("rs: a resources server needs a domain") for warning in config.warnings)


@pytest.mark.parametrize(
    "tree",
    [
        {"x": {"resources_servers": {"r": {"domain": "math"}}}},  # E32
        {"x": {"weird": {"dir": {"entrypoint": "app.py"}}}},  # E36
        {"foo": {}},  # E37
        {"sandbox": {"docker": {}}},
        {"telemetry": {"responses_api_models": {"m": {"entrypoint": "app.py"}}}},  # E41
        {"x": {"responses_api_models": {}}},
        {"x": {"responses_api_models": 5}},
        {"x": {"responses_api_models": None}},
        {"x": [{"responses_api_models": {"m": {"entrypoint": "app.py"}}}]},
        {"x": 5},
    ],
)
def test_blocks_that_are_no_servers_pass_untouched(world: World, tree: dict[str, Any]) -> None:
    config = world.load({**MODEL, **tree})
    assert [instance.name for instance in config.instances] == ["pm"]
    [key] = tree
    assert config.merged[key] == tree[key]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (pm(host="${h}") | {"h": "1.2.3.4"}, {"host": "${h}"}),  # E38
        (pm(entrypoint="${e}") | {"e": "x.py"}, {"entrypoint": "${e}"}),
        (pm(port="8080"), {"port": "8080"}),
        (dataset(type="example"), {}),
        (dataset(**TRAIN), {}),
        (dataset(type="benchmark", prepare_script="p.py", agent="a"), {}),
        (dataset(**TRAIN, huggingface_identifier={"repo_id": "r"}), {}),
        (pm(domain="math", anything={"deep": [1]}), {"domain": "math"}),
    ],
)
def test_servers(world: World, tree: dict[str, Any], expected: dict[str, Any]) -> None:
    config = world.load(tree)
    assert [instance.name for instance in config.instances] == ["pm"]
    block = config.merged["pm"]["responses_api_models"]["m"]
    assert {key: block[key] for key in expected} == expected
    assert {"host", "port"} <= set(block)


def test_the_dummy_model_is_folded_under_the_real_one(world: World) -> None:  # E34
    models = {"dummy_model": {"entrypoint": "app.py", "x": 1}, "b": {"entrypoint": "b.py"}}
    merged = world.load({"pm": {"responses_api_models": models}}).merged
    assert list(merged["pm"]["responses_api_models"]) == ["b"]
    assert {"entrypoint": "b.py", "x": 1}.items() <= merged["pm"]["responses_api_models"]["b"].items()


def test_the_dummy_model_alone_stays(world: World) -> None:
    from gym_compose.config import NO_MODEL

    merged = world.load({}, initial=NO_MODEL).merged
    assert list(merged["policy_model"]["responses_api_models"]) == ["dummy_model"]
    assert merged["policy_api_key"] == ""


def test_extra_keys_beside_the_type_are_allowed_and_warned_about(world: World) -> None:  # E35
    config = world.load({"pm": {"description": "hi", **MODEL["pm"]}})
    assert config.instance("pm").implementation == "openai_model"
    assert any("starts what stands first" in warning for warning in config.warnings)


def test_an_instance_that_is_an_interpolation_shares_its_target(world: World) -> None:
    config = world.load({**MODEL, "other": "${pm}"})
    assert [instance.name for instance in config.instances] == ["pm", "other"]
    assert config.merged["other"] == "${pm}"
    assert config.resolved["other"] == config.resolved["pm"]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"foo": {}}, "foo: an empty mapping"),
        ({"h": 1}, "h: NeMo Gym prints its help"),  # E40
        ({"x": {**MODEL["pm"], **RESOURCES["rs"]}}, "x: two server types"),
        ({"n" * 70: MODEL["pm"]}, "70 characters"),
    ],
)
def test_what_is_legal_and_hardly_meant_is_warned_about(world: World, tree: dict[str, Any], words: str) -> None:
    assert any(words in warning for warning in world.load(tree).warnings)


@pytest.mark.parametrize("name", ["a.b", "a b", "Abc", "a_b", "a-b", "ü"])
def test_any_text_is_an_instance_name(world: World, name: str) -> None:
    config = world.load({name: MODEL["pm"], "policy": MODEL["pm"]})
    assert [instance.name for instance in config.instances] == [name, "policy"]
