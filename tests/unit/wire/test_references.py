"""Agent references of environment servers (contract-data 1.5, contract-config 1.10)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.wire.references import (
    environment_server_agent_names,
    environment_server_agent_refs,
    environment_server_attributed_agent,
    has_server_type,
    referenced_name,
    server_blocks,
)


def agent(name: str | None = None) -> dict[str, str]:
    return {"type": "responses_api_agents", **({} if name is None else {"name": name})}


@pytest.mark.parametrize(
    ("block", "references", "attributed"),
    [
        ({"agent_server": {"name": "u"}, "x": agent("v")}, [("agent_server", "u"), ("x", "v")], "u"),
        ({"x": agent("v"), "y": agent("w")}, [("x", "v"), ("y", "w")], None),
        ({"x": agent("v")}, [("x", "v")], "v"),
        ({"x": agent("v"), "y": agent("v")}, [("x", "v"), ("y", "v")], None),
        ({"agent_server": agent(), "x": agent("v")}, [("agent_server", None), ("x", "v")], None),
        ({"agent_server": {"type": "resources_servers", "name": "r"}}, [], "r"),
        ({"agent_server": "u"}, [], None),
        ({"agent_server": {"type": None, "name": "u"}}, [("agent_server", "u")], "u"),
        ({"x": {"name": "u"}, "deep": {"y": agent("v")}, "many": [agent("w")]}, [], None),
        ({}, [], None),
    ],
)
def test_the_rule(block: dict[str, Any], references: list[tuple[str, str | None]], attributed: str | None) -> None:
    assert [(reference.field, reference.name) for reference in environment_server_agent_refs(block)] == references
    assert environment_server_agent_names(block) == tuple(dict.fromkeys(name for _, name in references if name is not None))
    assert environment_server_attributed_agent(block) == attributed


def test_servers_of_a_config_in_its_order_and_nothing_else() -> None:
    config = {
        "policy_base_url": "http://x",
        "m": {"responses_api_models": {"openai": {"a": 1}}},
        "head_server": {"host": "h"},
        "e": {"environment_servers": {"x": {"resources_server": {"name": "r"}}, "y": None}},
        "odd": {"environment_servers": ["x"]},
    }
    assert [(block.instance, block.server_type, block.implementation) for block in server_blocks(config)] == [
        ("m", "responses_api_models", "openai"),
        ("e", "environment_servers", "x"),
    ]
    (environment,) = server_blocks(config, "environment_servers")
    assert referenced_name(environment.fields, "resources_server") == "r"
    assert referenced_name(environment.fields, "agent_server") is None
    assert has_server_type(config, "m", "responses_api_models")
    assert not has_server_type(config, "m", "environment_servers")
    assert not has_server_type(config, "policy_base_url", "environment_servers")
    assert not has_server_type(config, "none", "environment_servers")
