from __future__ import annotations

from typing import Any

import pytest

from gym_compose.compiler import compile
from gym_compose.compiler.errors import ExtensionError
from gym_compose.compiler.slices import referenced
from gym_compose.config.model import NemoGymTree

API = ("policy_model", "responses_api_models", "openai_model", "openai_api_key")


def services(config: Any, make_sources: Any, make_options: Any, **changes: Any) -> dict[str, Any]:
    deployment = compile(config, make_sources(config), make_options(**changes))
    return {service.name: service for service in deployment.services}


def test_references_are_followed_to_the_end(four: Any, make_config: Any) -> None:
    config = make_config(four)
    assert referenced(config, "math_environment") == {"math_environment", "math_agent", "math", "policy_model"}
    assert referenced(config, "math_agent") == {"math_agent", "math", "policy_model"}
    assert referenced(config, "policy_model") == {"policy_model"}


def test_a_cycle_of_references_ends(four: Any, make_config: Any) -> None:
    four["math"]["resources_servers"]["math"]["agent"] = {"type": "responses_api_agents", "name": "math_agent"}
    assert referenced(make_config(four), "math") == {"math", "math_agent", "policy_model"}


def test_a_slice_holds_own_block_referenced_blocks_and_the_globals_that_servers_index(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["something_else"] = {"a": 1}
    four["global_aiohttp_connector_limit"] = 5
    found = services(make_config(four), make_sources, make_options)
    assert list(found["math_agent"].slice.config) == [
        "math", "math_agent", "policy_model", "policy_model_name", "head_server", "disallowed_ports", "results_dir",
        "global_aiohttp_connector_limit", "dry_run",
    ]  # fmt: skip
    assert set(found["policy_model"].slice.config) & {"math", "math_agent", "math_environment", "policy_api_key"} == set()
    assert found["math"].slice.config["dry_run"] is False


def test_the_owner_gets_its_secret_and_a_peer_sees_the_mask(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    found = services(make_config(four), make_sources, make_options)
    owner: Any = found["policy_model"]
    assert [(value.path, value.value) for value in owner.secret.values] == [(API, "sk-MARKER-API")]
    for name in ("policy_model", "math_agent", "math_environment"):
        assert found[name].slice.config["policy_model"]["responses_api_models"]["openai_model"]["openai_api_key"] == "****"
    for name in ("math_agent", "math_environment", "math"):
        assert found[name].secret.values == ()


@pytest.mark.parametrize(
    ("field", "value", "below"),
    [
        ("headers", {"x-auth": "MARKER"}, ("x-auth",)),
        ("password", ["a", "MARKER"], (1,)),
        ("deep", [{"list": [{"token": "MARKER"}]}], (0, "list", 0, "token")),
        ("base_url", "https://u:MARKER@h.example/v1", ()),
        ("api_key", 123456, ()),
        ("numbered", {7: {"secret": "MARKER"}}, (7, "secret")),
    ],
)
def test_a_secret_is_taken_out_wherever_it_stands_in_the_block(
    field: str, value: Any, below: tuple[Any, ...], four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["math"]["resources_servers"]["math"][field] = value
    path = ("math", "resources_servers", "math", field, *below)
    found = services(make_config(four, [path, API, ("policy_api_key",)]), make_sources, make_options)
    for name in ("math", "math_agent", "math_environment"):
        public = found[name].slice.model_dump_json()
        assert "MARKER" not in public
        assert "123456" not in public
    (secret,) = found["math"].secret.values
    leaf = value
    for step in below:
        leaf = leaf[step]
    assert secret.value == leaf
    assert all(isinstance(step, str) or step in (0, 1) for step in secret.path)  # number keys became text
    merged: Any = found["math"].slice.model_dump()["config"]
    for step in secret.path[:-1]:
        merged = merged[step]
    assert merged[secret.path[-1]] == "****"


def test_a_granted_secret_reaches_that_server_alone(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    four["hf_token"] = "MARKER-HF"
    four["compose"] = {"servers": {"math": {"secrets": ["hf_token", "policy_model.responses_api_models.openai_model.openai_api_key"]}}}
    config = make_config(four, [("hf_token",), API, ("policy_api_key",)])
    deployment = compile(config, make_sources(config), make_options())
    found: dict[str, Any] = {service.name: service for service in deployment.services}
    assert {(value.path, value.value) for value in found["math"].secret.values} == {(("hf_token",), "MARKER-HF"), (API, "sk-MARKER-API")}
    assert found["math"].slice.config["hf_token"] == "****"
    assert found["math_agent"].secret.values == ()
    assert dict(deployment.secrets)["math"] == ("policy_model.responses_api_models.openai_model.openai_api_key", "hf_token")


@pytest.mark.parametrize("name", ["hf_tokn", "compose.servers", ""])
def test_a_granted_name_that_is_not_in_the_config_is_an_error(
    name: str, four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["hf_token"] = "x"
    four["compose"] = {"servers": {"math": {"secrets": [name]}}}
    with pytest.raises(ExtensionError, match=r"compose\.servers\.math\.secrets"):
        services(make_config(four), make_sources, make_options)


def test_a_named_sandbox_provider_comes_with_its_secrets(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    four["sandbox"] = {"e2b": {"api_key": "MARKER"}}
    four["math"]["resources_servers"]["math"]["sandbox_provider"] = "sandbox"
    found = services(make_config(four, [("sandbox", "e2b", "api_key")]), make_sources, make_options)
    assert [value.value for value in found["math"].secret.values] == ["MARKER"]
    assert "sandbox" not in found["policy_model"].slice.config


def test_environment_goes_to_the_half_that_it_belongs_to(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    four["compose"] = {"servers": {"math": {"environment": {"API_KEY": "MARKER", "OMP_NUM_THREADS": 2, "WANDB_MODE": "online"}}}}
    config = make_config(four, [("compose", "servers", "math", "environment", "API_KEY")])
    math = services(config, make_sources, make_options)["math"]
    assert math.slice.environment == {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", "WANDB_MODE": "online"}
    assert math.secret.environment == {"API_KEY": "MARKER"}


def test_a_secret_variable_is_not_overlaid_by_an_offline_default(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    four["compose"] = {"servers": {"math": {"environment": {"WANDB_MODE": "MARKER"}}}}
    config = make_config(four, [("compose", "servers", "math", "environment", "WANDB_MODE")])
    math = services(config, make_sources, make_options)["math"]
    assert "WANDB_MODE" not in math.slice.environment
    assert math.secret.environment == {"WANDB_MODE": "MARKER"}


def test_offline_variables_are_for_closed_servers_of_docker_only(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    config = make_config(four)
    found = services(config, make_sources, make_options)
    assert "HF_HUB_OFFLINE" not in found["policy_model"].slice.environment
    assert "HF_HUB_OFFLINE" in found["math"].slice.environment
    assert services(config, make_sources, make_options, target="process")["math"].slice.environment == {}


@pytest.mark.parametrize("change", ["block", "peer", "secret", "key", "file"])
def test_the_digest_changes_with_whatever_the_server_reads(
    change: str, four: Any, make_config: Any, make_sources: Any, make_options: Any, host_file: Any
) -> None:
    from gym_compose.config.model import ServerManifest

    four["math_agent"]["responses_api_agents"]["simple_agent"]["data"] = "d.jsonl"
    manifest = {"simple_agent": {"manifest": ServerManifest(files=("data",))}}

    def digest(**changes: Any) -> str:
        files = {"d.jsonl": host_file("/d.jsonl", changes.pop("file", "1"))}
        config = make_config(four)
        deployment = compile(config, make_sources(config, **manifest), make_options(files=files, **changes))
        found = deployment.service("math_agent").slice_sha256
        assert found is not None
        return found

    before = digest()
    assert before == digest()
    if change == "block":
        four["math_agent"]["responses_api_agents"]["simple_agent"]["max_steps"] = 3
    elif change == "peer":
        four["math"]["resources_servers"]["math"]["x"] = 3
    elif change == "secret":
        four["compose"] = {"servers": {"math_agent": {"secrets": ["policy_api_key"]}}}
    elif change == "key":
        assert digest(session_key="other") != before
        return
    else:
        assert digest(file="2") != before
        return
    assert digest() != before


def test_a_peers_secret_changes_no_digest_of_a_server_that_cannot_read_it(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    before = services(make_config(four), make_sources, make_options)
    four["policy_model"]["responses_api_models"]["openai_model"]["openai_api_key"] = "another"
    after = services(make_config(four), make_sources, make_options)
    assert before["math_agent"].slice_sha256 == after["math_agent"].slice_sha256
    assert before["policy_model"].slice_sha256 != after["policy_model"].slice_sha256


def test_strict_compatibility_reaches_every_server_and_nothing_else_of_the_extension(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    before = services(make_config(four), make_sources, make_options)
    assert all("compose" not in service.slice.config for service in before.values() if service.slice)
    four["compose"] = {"strict": True, "servers": {"math": {"environment": {"A": "b"}}}}
    found = services(make_config(four), make_sources, make_options)
    for name in ("policy_model", "math", "math_agent", "math_environment"):
        assert found[name].slice.config["compose"] == {"strict": True}


def test_a_server_of_nemo_gym_is_told_the_names_that_it_does_not_get(
    four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["hf_token"] = "MARKER-HF"
    config = make_config(four, [("hf_token",), API, ("policy_api_key",)])
    peer = {"math": {"runtime": "nemo-gym", "origin": "wheel"}}
    tree = NemoGymTree("/site", "wheel", "0.7.0", "3.13.14")

    def math(config: Any) -> Any:
        return compile(config, make_sources(config, **peer), make_options(nemo_gym=tree)).service("math")

    service = math(config)
    assert {"hf_token", "policy_api_key", "policy_model", "math_agent"} <= set(service.slice.withheld)
    assert not {"math", "policy_model_name", "head_server"} & set(service.slice.withheld)
    assert "MARKER" not in service.slice.model_dump_json()
    four["something_new"] = {"a": 1}
    after = math(make_config(four, [("hf_token",), API, ("policy_api_key",)]))
    assert "something_new" in after.slice.withheld
    assert after.slice_sha256 == service.slice_sha256  # it is not started anew for it
