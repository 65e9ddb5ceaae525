"""Which agents an environment server fronts, asked of everybody who asks (contract-data 1.5, contract-config 1.10; issue 7).

One table of server blocks; parser, migration script, router, row checks, discovery, listing, manifest validation, renames and swaps all
have to give its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.config.environments import STRICT_KEY, environment_server_agent_names
from gym_compose.config.errors import AgentWithoutEnvironmentServerError as ParserError
from gym_compose.config.errors import EnvironmentValidationError
from gym_compose.config.load import load_config
from gym_compose.config.ports import offline
from gym_compose.driver.errors import AgentWithoutEnvironmentServerError, RoutingError
from gym_compose.driver.routing import Router
from gym_compose.tasks import add_legacy_agent_environment_servers as script
from gym_compose.tasks.agents import resolve_dataset_agent
from gym_compose.tasks.composition import read_composition
from gym_compose.tasks.errors import DatasetAgentError
from gym_compose.tasks.evaluations import evaluations
from gym_compose.wire.references import environment_server_attributed_agent

AGENT, RESOURCES, SERVER = "responses_api_agents", "resources_servers", "environment_servers"
AGENTS = ("u", "v", "w")
DATASET = {"name": "d", "type": "benchmark", "jsonl_fpath": "d.jsonl", "prepare_script": "p.py", "taskset": "ts"}


def ref(name: str, kind: str = AGENT) -> dict[str, str]:
    return {"type": kind, "name": name}


BLOCKS: list[tuple[dict[str, Any], tuple[str, ...], str | None]] = [
    ({"agent_server": ref("u")}, ("u",), "u"),
    ({"agent_server": {"name": "u"}}, ("u",), "u"),
    ({"agent_server": ref("u"), "helper": ref("v")}, ("u", "v"), "u"),
    ({"user_agent": ref("u"), "assistant_agent": ref("v")}, ("u", "v"), None),
    ({"any_name": ref("w")}, ("w",), "w"),
    ({"first": ref("u"), "second": ref("u")}, ("u",), None),
    ({"user_agent": {"name": "u"}, "agent_server": ref("v")}, ("v",), "v"),
    ({"agent_server": ref("u"), "deep": {"inner": ref("v")}, "many": [ref("w")]}, ("u",), "u"),
    ({"agent_server": ref("rs", RESOURCES), "x": ref("v")}, ("v",), "rs"),
]
"""Fields of an environment server, the agents that it fronts, the agent to which its rollouts are attributed."""
IDS = ["+".join(fields) + f"={','.join(agents)}" for fields, agents, _ in BLOCKS]


def config(fields: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    agent = {"entrypoint": "app.py", "resources_server": ref("rs", RESOURCES), "model_server": ref("policy_model", "responses_api_models")}
    return {
        "policy_model": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}},
        "rs": {RESOURCES: {"r": {"entrypoint": "app.py", "domain": "agent", "datasets": [DATASET]}}},
        **{name: {AGENT: {"simple_agent": dict(agent)}} for name in AGENTS},
        "env": {SERVER: {"any": {"entrypoint": "app.py", "resources_server": ref("rs", RESOURCES), **fields}}},
        "environment_server_routes": {"ts": "env"},
        **changes,
    }


def parse(directory: Path, tree: Mapping[str, Any], **overrides: Any) -> dict[str, Any]:
    (directory / "c.yaml").write_text(yaml.safe_dump(dict(tree), sort_keys=False), encoding="utf-8")
    found = load_config({"config_paths": ["c.yaml"], **overrides}, cwd=directory, environ={}, ports=offline())
    return dict(found.resolved)


def fronts(tree: Mapping[str, Any], name: str = "env") -> list[str]:
    return environment_server_agent_names(next(iter(tree[name][SERVER].values())))


@pytest.mark.parametrize(("fields", "agents", "attributed"), BLOCKS, ids=IDS)
class TestOneDefinition:
    def test_the_parser_misses_a_server_for_the_others_only(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        with pytest.raises(ParserError) as caught:
            parse(tmp_path, config(fields), **{STRICT_KEY: True})
        assert caught.value.details == tuple(f"- {name}" for name in AGENTS if name not in agents)
        relays = parse(tmp_path, config(fields)).keys() - config(fields).keys()
        assert {name for name in relays if name.endswith("_environment_server")} == {
            f"{name}_environment_server" for name in AGENTS if name not in agents
        }

    def test_the_script_adds_servers_for_the_others_only(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(config(fields), sort_keys=False), encoding="utf-8")
        [change] = script.migrate([tmp_path / "c.yaml"], [], check=True).changes
        assert [block.name for block in change.blocks] == [f"{name}_environment_server" for name in AGENTS if name not in agents]

    def test_rows_are_routed_and_attributed(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        tree = config(fields)
        tree["env"][SERVER]["any"] |= {"host": "h", "port": 1}
        router = Router(tree)
        assert (router.servers["env"].agents, router.servers["env"].agent) == (agents, attributed)
        for name in AGENTS:
            by_agent = Router(tree)
            server = by_agent.place({"responses_create_params": {}, "agent_ref": {"name": name}})
            if name in agents:
                assert server is not None
                assert server.name == "env"
            else:
                with pytest.raises(AgentWithoutEnvironmentServerError, match=repr(name)):
                    by_agent.raise_problems()

    def test_a_stamped_row_may_name_any_of_them_and_no_other(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        tree = config(fields)
        tree["env"][SERVER]["any"] |= {"host": "h", "port": 1}
        for name in AGENTS:
            router = Router(tree)
            router.place({"responses_create_params": {}, "agent_ref": {"name": name}, "_ng_environment_server": "env"})
            if name in agents and attributed != "rs":
                router.raise_problems()
                continue
            with pytest.raises(RoutingError) as caught:
                router.raise_problems()
            # An attributed agent that is none is found out for every row of the server.
            said = "'rs' is in the running config and is not an agent" if name in agents else f"It fronts {', '.join(agents)}."
            assert said in str(caught.value)

    def test_discovery_and_listing_name_the_attributed_agent(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        tree = config(fields)
        assert environment_server_attributed_agent(tree["env"][SERVER]["any"]) == attributed
        assert resolve_dataset_agent(tree, "rs", taskset="ts") == attributed
        [found] = evaluations(tree)
        assert (found.agent_name, found.environment_server) == (attributed, "env")
        for name in AGENTS:  # a taskset that an agent declares needs this agent among them
            if name in agents:
                assert resolve_dataset_agent(tree, name, taskset="ts") == name
            else:
                with pytest.raises(DatasetAgentError, match=repr(name)):
                    resolve_dataset_agent(tree, name, taskset="ts")

    def test_a_manifest_describes_one_agent(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        path = tmp_path / "c.yaml"
        path.write_text(yaml.safe_dump(config(fields), sort_keys=False), encoding="utf-8")

        def read() -> str | None:
            composition, _ = read_composition(path, owner=None, cwd=tmp_path, environ={}, roots=[tmp_path])
            component = composition.component("agent_server")
            return None if component is None else component.name

        if attributed in AGENTS:
            assert read() == attributed
            return
        with pytest.raises(EnvironmentValidationError, match="fronts several agents" if attributed is None else "'rs', which is no agent"):
            read()

    def test_a_rename_is_followed_in_each_of_them(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        renamed = {f"new_{name}": {"_inherit_from": name} for name in agents}
        assert fronts(parse(tmp_path, config(fields, **renamed))) == [f"new_{name}" for name in agents]

    def test_a_swapped_agent_is_followed_in_each_of_them(
        self, tmp_path: Path, fields: dict[str, Any], agents: tuple[str, ...], attributed: str | None
    ) -> None:
        other = {AGENT: {"other_agent": {"entrypoint": "app.py", "resources_server": ref("???", RESOURCES)}}}
        assert fronts(parse(tmp_path, config(fields, other_agent=other))) == [f"{name}_other_agent" for name in agents]
