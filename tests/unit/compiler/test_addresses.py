from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler import compile
from gym_compose.compiler.addresses import address_config, assign_addresses, is_loopback, probe_url, turn_loopback
from gym_compose.compiler.slug import assign_names


def addressed(config: Any, target: Any = "docker", head_port: int = 11000) -> Any:
    names = assign_names(instance.name for instance in config.instances)
    return address_config(config, assign_addresses(config, names, target), target, head_port)


@pytest.mark.parametrize(
    ("url", "turned"),
    [
        ("http://127.0.0.1:9001/v1", "http://host.docker.internal:9001/v1"),
        ("http://localhost/v1", "http://host.docker.internal/v1"),
        ("https://LOCALHOST:1", "https://host.docker.internal:1"),
        ("http://[::1]:8000/v1?x=1#f", "http://host.docker.internal:8000/v1?x=1#f"),
        ("http://0.0.0.0:8000", "http://host.docker.internal:8000"),
        ("http://127.8.9.1:80/", "http://host.docker.internal:80/"),
        ("http://user:p%40ss@localhost:1/v1", "http://user:p%40ss@host.docker.internal:1/v1"),
        ("http://app.localhost:1", "http://host.docker.internal:1"),
        ("https://api.example/v1", None),
        ("http://localhost.example/v1", None),
        ("http://127.example", None),
        ("http://10.0.0.1:80", None),
        ("https://api.example/?next=http://localhost/", None),
        ("localhost:8000", None),
        ("", None),
    ],
)
def test_a_loopback_url_becomes_the_host_gateway_and_keeps_the_rest(url: str, turned: str | None) -> None:
    assert turn_loopback(url) == turned


@given(st.text())
def test_any_text_is_either_left_alone_or_turned_once(text: str) -> None:
    turned = turn_loopback(text)
    if turned is not None:
        assert "host.docker.internal" in turned
        assert turn_loopback(turned) is None


@pytest.mark.parametrize(
    ("url", "origin_only", "probe"),
    [
        ("https://u:p@h.example:8/v1/?key=s#x", False, "https://h.example:8/v1"),
        ("https://h.example/v1", False, "https://h.example/v1"),
        ("https://h.example/s3cret/v1", True, "https://h.example"),
        ("https://u:s@h.example:1?k=s", True, "https://h.example:1"),
        ("ftp://h.example", False, None),
        ("nonsense", False, None),
        ("http://", False, None),
    ],
)
def test_a_probed_address_has_no_credentials(url: str, origin_only: bool, probe: str | None) -> None:
    assert probe_url(url, origin_only=origin_only) == probe


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", True), ("[::1]", True), ("127.1.2.3", True), ("::", True), ("example", False), ("", False)]
)
def test_loopback_hosts(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_docker_gives_every_block_its_alias_and_port_8000_unless_pinned(four: Any, make_config: Any) -> None:
    block = four["math"]["resources_servers"]["math"]
    block["port"] = 8001
    document = addressed(make_config(four, pinned=["math"])).document
    assert (document["math"]["resources_servers"]["math"]["host"], document["math"]["resources_servers"]["math"]["port"]) == (
        "math.gym",
        8001,
    )
    agent = document["math_agent"]["responses_api_agents"]["simple_agent"]
    assert (agent["host"], agent["port"]) == ("math-agent.gym", 8000)
    assert document["head_server"] == {"host": "head.gym", "port": 11000}
    assert document["disallowed_ports"] == [11000, 8001, 8000, 8000, 8000]
    assert document["results_dir"] == "/home/gym/results"


def test_processes_keep_loopback_and_the_allocators_ports(four: Any, make_config: Any) -> None:
    four["policy_model"]["responses_api_models"]["openai_model"]["openai_base_url"] = "http://127.0.0.1:9/v1"
    for port, (kind, name, implementation) in enumerate(
        [("resources_servers", "math", "math"), ("responses_api_models", "policy_model", "openai_model")], 12000
    ):
        four[name][kind][implementation]["port"] = port
    found = addressed(make_config(four), "process", 11005)
    assert found.document["math"]["resources_servers"]["math"]["port"] == 12000
    assert found.document["policy_model"]["responses_api_models"]["openai_model"]["openai_base_url"] == "http://127.0.0.1:9/v1"
    assert found.document["head_server"] == {"host": "127.0.0.1", "port": 11005}
    assert found.host_urls == ()
    assert found.document["results_dir"] == "/home/me/results"


def test_loopback_base_urls_are_turned_wherever_they_stand_lists_too_and_other_fields_are_not(four: Any, make_config: Any) -> None:
    block = four["policy_model"]["responses_api_models"]["openai_model"]
    block.update(
        openai_base_url=["http://localhost:1/v1", "https://far.example/v1"],
        nested={"judge_base_url": "http://127.0.0.1:2"},
        url="http://localhost:3",
    )
    four["policy_base_url"] = "http://localhost:4"
    found = addressed(make_config(four))
    turned = found.document["policy_model"]["responses_api_models"]["openai_model"]
    assert turned["openai_base_url"] == ["http://host.docker.internal:1/v1", "https://far.example/v1"]
    assert turned["nested"] == {"judge_base_url": "http://host.docker.internal:2"}
    assert turned["url"] == "http://localhost:3"
    assert found.document["policy_base_url"] == "http://host.docker.internal:4"
    assert [instance for instance, _ in found.notes] == ["policy_model", "policy_model"]
    assert "host.docker.internal:1" in found.notes[0][1]


def test_a_note_never_shows_the_credentials_of_the_url(four: Any, make_config: Any) -> None:
    four["policy_model"]["responses_api_models"]["openai_model"]["openai_base_url"] = "http://u:MARKER@localhost:1/v1?key=MARKER"
    found = addressed(make_config(four))
    assert found.notes
    assert "MARKER" not in repr(found.notes)


def test_the_callers_config_is_not_changed(four: Any, make_config: Any) -> None:
    before = repr(four)
    addressed(make_config(four))
    assert repr(four) == before


@pytest.mark.parametrize("host", ["localhost.", "127.1", "0", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]"])
def test_every_spelling_of_a_loopback_host(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["cafe1", "8000", "10.1", "1.2.3.4.5", "[::ffff:10.0.0.1]"])
def test_what_only_looks_like_one(host: str) -> None:
    assert not is_loopback(host)


def test_a_password_may_hold_an_at_sign() -> None:
    assert turn_loopback("http://u:p@ss@localhost:8000/v1") == "http://u:p@ss@host.docker.internal:8000/v1"


@pytest.mark.parametrize("grant", ["judge_base_url", ""])
def test_a_server_that_was_given_a_url_of_this_host_reaches_it(
    grant: str, four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    four["judge_base_url"] = "http://localhost:9/v1"
    four["boxes"] = {"remote": {"base_url": "http://localhost:9/v1"}}
    if grant:
        four["compose"] = {"servers": {"math": {"secrets": [grant]}}}
    else:
        four["math"]["resources_servers"]["math"]["sandbox_provider"] = "boxes"
    config = make_config(four)
    deployment = compile(config, make_sources(config), make_options())
    assert [service.instance for service in deployment.services if service.extra_hosts and service.instance] == ["math"]
    assert "egress" in [item.network for item in deployment.service("math").attachments]
