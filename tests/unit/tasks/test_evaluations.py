"""Which evaluations a config has and who runs them (contract-data 3.3, 3.8; case 55)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.config.errors import ConfigError
from gym_compose.tasks.errors import DatasetAgentError, DatasetError
from gym_compose.tasks.evaluations import OPEN_VALUE, benchmark_evaluation, evaluations, read_listing_config

AGENT = "responses_api_agents"
RESOURCES: dict[str, str] = {"type": "resources_servers", "name": "rs"}


def reference(name: str) -> dict[str, str]:
    return {"type": AGENT, "name": name}


def dataset(name: str, kind: str = "benchmark", **extra: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonl_fpath": f"{name}.jsonl", "prepare_script": "prepare.py", **extra}


def config() -> dict[str, Any]:
    """Two agents behind one environment server, which is bound to ``rs``; ``rs`` declares a dataset of taskset ``ts``."""
    return {
        "rs": {
            "resources_servers": {"r": {"entrypoint": "app.py", "domain": "agent", "datasets": [dataset("d", taskset="ts", num_repeats=3)]}}
        },
        "u": {AGENT: {"simple_agent": {"entrypoint": "app.py"}}},
        "v": {AGENT: {"simple_agent": {"entrypoint": "app.py"}}},
        "env": {
            "environment_servers": {
                "sim": {
                    "entrypoint": "app.py",
                    "user_agent": reference("u"),
                    "assistant_agent": reference("v"),
                    "resources_server": RESOURCES,
                }
            }
        },
        "environment_server_routes": {"ts": "env"},
    }


def server(tree: dict[str, Any]) -> dict[str, Any]:
    block: dict[str, Any] = tree["env"]["environment_servers"]["sim"]
    return block


def own(tree: dict[str, Any]) -> dict[str, Any]:
    declared: dict[str, Any] = tree["rs"]["resources_servers"]["r"]["datasets"][0]
    return declared


@pytest.mark.parametrize(
    ("change", "agent", "environment"),
    [
        (lambda tree: None, None, "env"),
        (lambda tree: server(tree).update(agent_server=reference("v")), "v", "env"),
        (lambda tree: server(tree).pop("user_agent"), "v", "env"),
        (lambda tree: (own(tree).pop("taskset"), tree["u"][AGENT]["simple_agent"].update(resources_server=RESOURCES)), "u", None),
    ],
)
def test_who_runs_a_dataset(change: Callable[[dict[str, Any]], Any], agent: str | None, environment: str | None) -> None:
    tree = config()
    change(tree)
    [found] = evaluations(tree)
    assert (found.dataset.name, found.agent_name, found.environment_server) == ("d", agent, environment)
    assert (found.dataset.num_repeats, found.domain, found.description) == (3, "agent", "")
    assert benchmark_evaluation(tree) == found


def test_all_datasets_that_nobody_can_run_are_named_at_once() -> None:
    tree = config()
    tree["rs"]["resources_servers"]["r"]["datasets"] += [dataset("e", taskset="tz"), dataset("f")]
    with pytest.raises(DatasetAgentError) as caught:
        evaluations(tree)
    assert str(caught.value).startswith("dataset 'e' (benchmark) of rs: taskset 'tz' has no route (and 1 more datasets).")
    assert [detail.partition(": ")[0] for detail in caught.value.details] == [
        "dataset 'e' (benchmark) of rs",
        "dataset 'f' (benchmark) of rs",
    ]


def test_one_benchmark_is_an_evaluation_several_are_a_suite_and_none_is_none() -> None:
    tree = config()
    own(tree)["type"] = "validation"
    assert benchmark_evaluation(tree) is None
    tree["rs"]["resources_servers"]["r"]["datasets"] = [dataset("a"), dataset("b")]
    with pytest.raises(DatasetError, match=r"2 benchmark datasets.*: a, b"):
        benchmark_evaluation(tree)
    tree["rs"]["resources_servers"]["r"]["datasets"] = [dataset("a")]
    with pytest.raises(DatasetAgentError, match=r"^dataset 'a'.*no agent uses resources server 'rs'"):
        benchmark_evaluation(tree)


class TestReading:
    def read(self, tmp_path: Path, tree: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        return read_listing_config({"config_paths": ["c.yaml"]}, cwd=tmp_path, environ={}, roots=[tmp_path])

    def test_what_only_a_run_has_may_be_open(self, tmp_path: Path) -> None:
        tree = config()
        block = tree["u"][AGENT]["simple_agent"]
        block.update(key="???", url="${oc.env:NOT_SET_ANYWHERE}", deep=[{"model": "${gone.key}"}], known="${tries}")
        tree["rs"]["resources_servers"]["r"]["description"] = "???"
        tree["tries"] = 4
        found = self.read(tmp_path, tree)
        read = found["u"][AGENT]["simple_agent"]
        assert (read["key"], read["url"], read["deep"], read["known"]) == (OPEN_VALUE, OPEN_VALUE, [{"model": OPEN_VALUE}], 4)
        [evaluation] = evaluations(found)
        assert (evaluation.agent_name, evaluation.environment_server, evaluation.description) == (None, "env", "")

    def test_what_is_wrong_stays_an_error(self, tmp_path: Path) -> None:
        tree = copy.deepcopy(config())
        server(tree)["user_agent"] = reference("nobody")
        with pytest.raises(ConfigError, match="nobody"):
            self.read(tmp_path, tree)
