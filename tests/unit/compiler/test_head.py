from __future__ import annotations

from typing import Any

import pytest

from gym_compose.compiler import CompileError, compile
from gym_compose.compiler.head import model_endpoints


@pytest.fixture
def head(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(secrets: Any = None, **options: Any) -> Any:
        config = make_config(four) if secrets is None else make_config(four, secrets)
        return compile(config, make_sources(config), make_options(**options))

    return make


def test_the_document_holds_the_whole_config_with_secrets_masked(head: Any) -> None:
    deployment = head()
    text = deployment.head.model_dump_json()
    assert "MARKER" not in text
    assert deployment.head.config["policy_api_key"] == "****"
    assert deployment.head.config["policy_model"]["responses_api_models"]["openai_model"]["host"] == "policy-model.gym"
    assert deployment.head_secret.values == ()
    assert "--secret" not in deployment.service("head").command


def test_secrets_reach_the_head_only_when_asked_for(four: Any, head: Any) -> None:
    four["compose"] = {"head_secrets": True}
    deployment = head()
    assert {value.value for value in deployment.head_secret.values} == {"sk-MARKER-API"}
    assert "MARKER" not in deployment.head.model_dump_json()
    assert deployment.service("head").command[-2:] == ("--secret", "/run/secrets/head")


def test_instances_have_the_keys_of_the_contract(head: Any) -> None:
    record = head().head.instances[1]
    assert record.model_dump(exclude_none=True) == {
        "config_path": "math_agent",
        "dir_path": "/srv/gym/responses_api_agents/simple_agent",
        "entrypoint": "app.py",
        "host": "math-agent.gym",
        "name": "simple_agent",
        "port": 8000,
        "process_name": "math_agent",
        "server_type": "responses_api_agents",
        "url": "http://math-agent.gym:8000",
    }


def test_listeners_inside_and_published(head: Any) -> None:
    found = head(head_port=11000)
    assert (found.head.listen.host, found.head.listen.port) == ("head.gym", 11000)
    assert (found.head.listen_published.host, found.head.listen_published.port) == ("0.0.0.0", 11001)
    (port,) = found.service("head").ports
    assert (port.host_address, port.host_port, port.container_port) == ("127.0.0.1", 11000, 11001)
    assert head(head_port=0).service("head").ports[0].host_port is None


@pytest.mark.parametrize(("value", "seconds"), [(None, 600.0), (0, 0.0), (-1, -1.0), ("30", 30.0), (2.5, 2.5)])
def test_readiness_timeouts(value: Any, seconds: float, four: Any, head: Any) -> None:
    four["server_spinup_timeout_seconds"] = value
    assert head().head.server_spinup_timeout_seconds == seconds


@pytest.mark.parametrize("value", ["soon", True, [1]])
def test_a_timeout_that_is_no_number_names_the_key(value: Any, four: Any, head: Any) -> None:
    four["model_endpoint_readiness_timeout_seconds"] = value
    with pytest.raises(CompileError, match=r"^model_endpoint_readiness_timeout_seconds"):
        head()


def test_endpoints_are_direct_base_urls_of_model_servers_each_once_without_credentials() -> None:
    document = {
        "a": {
            "responses_api_models": {
                "m": {
                    "base_url": ["http://u:MARKER@h:1/v1/", "http://h:1/v1", "http://h:2/x?key=MARKER"],
                    "judge_base_url": "https://j/v1",
                    "deep": {"base_url": "http://deep/"},
                    "url": "http://u/",
                    "empty_base_url": "",
                    "none_base_url": None,
                }
            }
        },
        "r": {"resources_servers": {"r": {"base_url": "http://r/v1"}}},
    }
    found = list(model_endpoints(document, frozenset()))
    assert [(endpoint.url, endpoint.key) for endpoint in found] == [
        ("http://h:1/v1/models", "a.base_url"),
        ("http://h:2/x", "a.base_url"),
        ("https://j/v1/models", "a.judge_base_url"),
    ]


def test_of_a_secret_url_only_the_origin_is_probed() -> None:
    document = {"a": {"responses_api_models": {"m": {"base_url": "https://h.example/k-MARKER/v1"}}}}
    path = ("a", "responses_api_models", "m", "base_url")
    assert [endpoint.url for endpoint in model_endpoints(document, frozenset({path}))] == ["https://h.example"]


def test_an_endpoint_on_the_host_takes_the_head_to_egress_with_the_gateways_name(four: Any, head: Any) -> None:
    four["policy_model"]["responses_api_models"]["openai_model"]["openai_base_url"] = "http://127.0.0.1:9001/v1"
    service = head().service("head")
    assert head().head.endpoints[0].url == "http://host.docker.internal:9001/v1/models"
    assert service.extra_hosts == (("host.docker.internal", "host-gateway"),)
    assert "egress" in [item.network for item in service.attachments]


def test_an_endpoint_that_is_not_waited_for_takes_it_nowhere(four: Any, head: Any) -> None:
    four["model_endpoint_readiness_timeout_seconds"] = 0
    assert "egress" not in [item.network for item in head().service("head").attachments]


def test_a_changed_document_changes_the_heads_digest(four: Any, head: Any) -> None:
    before = head().service("head").slice_sha256
    four["policy_model_name"] = "another"
    assert head().service("head").slice_sha256 != before
