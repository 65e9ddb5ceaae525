"""Which server gets a row: modes, index, attribution, checks (contract-data 1.5, 1.6 and its cases 13, 18, 45 to 49)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.driver.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError, RoutingError
from gym_compose.driver.routing import Router
from gym_compose.tasks.errors import RowOptionsError

P = {"input": "x"}


def addressed(config: dict[str, Any]) -> dict[str, Any]:
    for block in config.values():
        for implementation in block.get("environment_servers", {}).values() if isinstance(block, dict) else ():
            implementation |= {"host": "h", "port": 1}
    return config


def row(**fields: Any) -> dict[str, Any]:
    agent = fields.pop("agent", None)
    stamp = fields.pop("server", None)
    made = {"responses_create_params": P, **fields}
    if agent is not None:
        made["agent_ref"] = {"name": agent}
    if stamp is not None:
        made["_ng_environment_server"] = stamp
    return made


def placed(config: dict[str, Any], fields: dict[str, Any], **options: Any) -> tuple[str, str | None]:
    router = Router(addressed(config), **options)
    made = row(**fields)
    server = router.place(made, 1)
    router.raise_problems()
    assert server is not None
    return server.name, made.get("agent_ref", {}).get("name")


MAT = {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {}}


@pytest.mark.parametrize(
    ("mode", "fields", "expected"),
    [
        ("agent", {"agent": "a"}, None),
        ("agent", {"task_source": "rs"}, None),
        ("agent", MAT, "native"),
        ("legacy", {"agent": "a"}, "b_env"),
        ("legacy", {"task_source": "rs"}, "b_env"),
        ("legacy", {}, "b_env"),
        ("legacy", MAT, "native"),
        ("taskset", MAT, "native"),
    ],
)
def test_the_mode_chooses(blocks: Any, mode: Any, fields: dict[str, Any], expected: str | None) -> None:
    router = Router(addressed(blocks.default()), mode=mode, server_name="b_env")
    assert router.choose(row(**fields)) == expected


def test_taskset_mode_refuses_flat_rows(blocks: Any) -> None:
    with pytest.raises(ValueError, match="materialized rows only"):
        Router(addressed(blocks.default()), mode="taskset").choose(row(agent="a"))


def test_a_taskset_without_route_is_named_with_a_close_one(blocks: Any) -> None:
    with pytest.raises(ValueError, match=r"'tsx'.*Did you mean 'ts"):
        Router(addressed(blocks.default())).choose({"task_id": {"taskset": "tsx", "task_id": "1"}, "task_input": None})


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nativ", r"taskset 'ts' is routed to 'nativ', which is not in the running config\. Did you mean 'native"),
        ("a", r"taskset 'ts' is routed to 'a', which is not an environment server"),
        (["a_env", "b_env"], r"taskset 'ts' is routed to 'a_env', 'b_env': environment_server_routes names one server for each"),
        (None, r"taskset 'ts' is routed to None"),
    ],
)
def test_a_route_that_leads_to_no_one_server_names_its_taskset(blocks: Any, target: Any, said: str) -> None:
    config = addressed(blocks.default()) | {"environment_server_routes": {"ts": target}}
    with pytest.raises(ValueError, match=said):
        Router(config).choose(row(**MAT))


def test_routes_of_the_request_replace_those_of_the_config(blocks: Any) -> None:
    assert Router(addressed(blocks.default()), routes={"ts": "a_env"}).choose(row(**MAT)) == "a_env"


@pytest.mark.parametrize(("mode", "routes"), [("legacy", None), ("taskset", {})])
def test_a_mode_without_what_it_needs_is_refused(blocks: Any, mode: Any, routes: Any) -> None:
    with pytest.raises(RowOptionsError, match=mode):
        Router(addressed(blocks.default()), mode=mode, routes=routes)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"agent": "a"}, ("a_env", "a")),
        ({"agent": "b", "task_source": "rs"}, ("b_env", "b")),
        ({"task_source": "rs"}, ("a_env", "a")),
        ({"task_source": "b"}, ("b_env", "b")),
        ({"server": "native"}, ("native", "n")),
        ({"server": "a_env"}, ("a_env", "a")),
        ({"server": "a_env", "agent": "a"}, ("a_env", "a")),
        ({"server": "native", "task_source": "rs", **MAT}, ("native", None)),
    ],
)
def test_a_row_is_placed_and_named(blocks: Any, fields: dict[str, Any], expected: tuple[str, str | None]) -> None:
    assert placed(blocks.default(), fields) == expected


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"agent": "aa"}, r"'aa' is not in the running config.*Did you mean 'a"),
        ({"agent": "rs"}, r"'rs' is in the running config and is not an agent"),
        ({"server": "nativ"}, r"'nativ' is not in the running config.*Did you mean 'native"),
        ({"server": "rs"}, r"'rs' is not an environment server"),
        ({"server": "a_env", "agent": "b"}, r"'b' of the row is none of environment server 'a_env'.*fronts a"),
        ({"server": "native", "task_source": "rs2"}, r"task_source 'rs2'.*That is 'rs'"),
        ({"task_source": "rss"}, r"'rss' is not in the running config.*Did you mean 'rs"),
        ({"task_source": "a_env"}, r"'a_env' is neither a resources server nor an agent"),
        ({}, r"neither an agent nor a task_source"),
    ],
)
def test_a_row_that_cannot_be_placed_says_why(blocks: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(RoutingError, match=text):
        placed(blocks.default(), fields)


def test_an_agent_in_front_of_which_no_server_stands(blocks: Any) -> None:
    with pytest.raises(AgentWithoutEnvironmentServerError, match="'lone'"):
        placed(blocks.default() | {"lone": blocks.agent()}, {"agent": "lone"})


def test_an_agent_with_two_servers_is_ambiguous_and_both_are_named(blocks: Any) -> None:
    config = blocks.default() | {"zz": blocks.environment(agent_server={"name": "a"})}
    with pytest.raises(AmbiguousEnvironmentServerError, match="a_env, zz"):
        placed(config, {"agent": "a"})


def test_a_server_that_names_one_agent_in_two_fields_is_one_server(blocks: Any) -> None:
    reference = blocks.reference("lone")
    config = blocks.default() | {"lone": blocks.agent(), "e": blocks.environment(user_agent=reference, assistant_agent=reference)}
    assert placed(config, {"agent": "lone"}) == ("e", "lone")


@pytest.mark.parametrize(
    ("fields", "agents", "attributed"),
    [
        ({"agent_server": {"name": "u"}, "x": {"type": "responses_api_agents", "name": "v"}}, ("u", "v"), "u"),
        ({"p": {"type": "responses_api_agents", "name": "v"}, "q": {"type": "responses_api_agents", "name": "w"}}, ("v", "w"), None),
        ({"p": {"type": "responses_api_agents", "name": "v"}}, ("v",), "v"),
        ({"p": {"type": "responses_api_agents", "name": "v"}, "q": {"type": "responses_api_agents", "name": "v"}}, ("v",), None),
        ({"agent_server": {"type": "responses_api_agents"}, "x": {"type": "responses_api_agents", "name": "v"}}, ("v",), None),
        ({"agent_server": {"type": "resources_servers", "name": "r"}}, (), "r"),
        ({"deep": {"x": {"type": "responses_api_agents", "name": "v"}}, "many": [{"type": "responses_api_agents", "name": "w"}]}, (), None),
    ],
)
def test_the_attributed_agent(blocks: Any, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None) -> None:
    (server,) = Router(addressed({"e": blocks.environment(**fields)})).servers.values()
    assert (server.agents, server.agent) == (agents, attributed)


def test_a_row_for_a_server_with_several_agents_may_name_any_of_them(blocks: Any) -> None:
    config = blocks.default() | {"e": blocks.environment(u=blocks.reference("a"), x=blocks.reference("b"))}
    assert placed(config, {"server": "e", "agent": "b"}) == ("e", "b")
    assert placed(config, {"server": "e"}) == ("e", None)
    with pytest.raises(RoutingError, match="fronts a, b"):
        placed(config, {"server": "e", "agent": "n"})


class TestTaskSource:
    def test_several_agents_on_one_resources_server(self, blocks: Any) -> None:
        config = blocks.default() | {"a2": blocks.agent("rs"), "a3": blocks.agent("rs")}
        with pytest.raises(RoutingError, match=r"3 agents use resources server 'rs': a, a2, a3.*agent_map"):
            placed(config, {"task_source": "rs"})

    def test_a_pin_decides(self, blocks: Any) -> None:
        config = blocks.default() | {"a2": blocks.agent("rs"), "a2_env": blocks.environment(agent_server={"name": "a2"})}
        config["rs"] = blocks.resources(datasets=[{"name": "d", "type": "benchmark", "jsonl_fpath": "x", "agent": "a2"}])
        assert placed(config, {"task_source": "rs"}) == ("a2_env", "a2")

    def test_different_pins_are_refused(self, blocks: Any) -> None:
        config = blocks.default()
        config["rs"] = blocks.resources(datasets=[{"agent": "a"}, {"agent": "b"}])
        with pytest.raises(RoutingError, match="pin several agents: a, b"):
            placed(config, {"task_source": "rs"})


class TestPairing:
    @pytest.mark.parametrize("allowed", [["other"], "other"])
    @pytest.mark.parametrize("fields", [{"agent": "a"}, {"task_source": "rs"}, {"server": "a_env"}])
    def test_a_verifier_that_does_not_accept_the_agent_type(self, blocks: Any, allowed: Any, fields: dict[str, Any]) -> None:
        config = blocks.default() | {"rs": blocks.resources(allowed_agents=allowed)}
        if "server" in fields:
            config["a_env"]["environment_servers"]["legacy_agent"]["resources_server"] = {"type": "resources_servers", "name": "rs"}
        with pytest.raises(RoutingError, match=r"'rs' does not accept agent 'a' of type 'simple_agent'.*accepts other"):
            placed(config, fields)

    @pytest.mark.parametrize("allowed", [[], None, ["simple_agent", "x"], "simple_agent"])
    def test_no_list_or_a_fitting_one(self, blocks: Any, allowed: Any) -> None:
        assert placed(blocks.default() | {"rs": blocks.resources(allowed_agents=allowed)}, {"agent": "a"})[0] == "a_env"

    def test_the_waiver(self, blocks: Any) -> None:
        config = blocks.default() | {"rs": blocks.resources(allowed_agents=["x"])}
        assert placed(config, {"agent": "a"}, environ={"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": "1"})[0] == "a_env"
        assert placed(config | {"allow_unsupported_pairing": True}, {"agent": "a"})[0] == "a_env"
        with pytest.raises(RoutingError):
            placed(config, {"agent": "a"}, environ={"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": "False"})


def test_several_kinds_of_bad_rows_are_listed_with_their_first_line_and_number(blocks: Any) -> None:
    router = Router(addressed(blocks.default()))
    for line, agent in enumerate(["x", "a", "y", "x"], 1):
        router.place(row(agent=agent), line)
    with pytest.raises(RoutingError, match="1 more kinds") as raised:
        router.raise_problems()
    assert [detail.partition(":")[0] for detail in raised.value.details] == [
        "2 row(s), first from line 1",
        "1 row(s), first from line 3",
    ]


def test_a_server_without_an_address_from_here(blocks: Any) -> None:
    router = Router(blocks.default())
    router.place(row(agent="a"), 1)
    with pytest.raises(RoutingError, match="no address that works from here"):
        router.raise_problems()
