"""``gym eval list``: benchmarks and datasets with who runs them (contract-data 3.8, 8; case 55)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym_compose.cli import catalog, eval_list
from gym_compose.cli.translate import Invocation
from gym_compose.tasks.errors import DatasetAgentError
from gym_compose.wire.errors import GymComposeError, UsageError

Invoke = Callable[..., Invocation]
FIELDS = ["name", "agent_name", "environment_server", "domain", "num_repeats", "description"]
ONE = """
{n}_rs:
  resources_servers:
    {n}: {{entrypoint: app.py, domain: games, description: Chess, api_key: "???"}}
{n}_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {n}_rs}}
      datasets: [{{name: {n}_data, type: benchmark, jsonl_fpath: {n}.jsonl, prepare_script: prepare.py, num_repeats: 4}}]
"""
TWO = """
sim_rs:
  resources_servers:
    sim:
      entrypoint: app.py
      domain: agent
      datasets:
        - {name: talks, type: benchmark, jsonl_fpath: talks.jsonl, prepare_script: prepare.py, taskset: ts}
user: {responses_api_agents: {simple_agent: {entrypoint: app.py}}}
assistant: {responses_api_agents: {simple_agent: {entrypoint: app.py}}}
usersim_environment:
  environment_servers:
    usersim:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: sim_rs}
      user_agent: {type: responses_api_agents, name: user}
      assistant_agent: {type: responses_api_agents, name: assistant}
environment_server_routes: {ts: usersim_environment}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Also the working directory, and so a search root."""
    files = {
        "benchmarks/chess/config.yaml": ONE.format(n="chess"),
        "benchmarks/chess/hard.yaml": ONE.format(n="hard"),
        "benchmarks/talks/config.yaml": TWO,
        "benchmarks/suite/config.yaml": ONE.format(n="one") + "config_paths: [benchmarks/chess/config.yaml]\n",
        "benchmarks/lost/config.yaml": ONE.format(n="lost").replace("name: lost_rs", "name: gone_rs"),
        "resources_servers/x/configs/x.yaml": ONE.format(n="x"),
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture(autouse=True)
def only_this_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_list, "component_roots", lambda call: (root,))


def rows(text: str, invoke: Invoke, captured: Any) -> list[dict[str, Any]]:
    assert eval_list.run(invoke(f"eval list --json {text}"), captured.console) == 0
    found: list[dict[str, Any]] = json.loads(captured.stdout)
    return found


def test_benchmarks_with_the_fields_of_the_field(invoke: Invoke, captured: Any) -> None:
    found = rows("", invoke, captured)
    assert [list(row) for row in found] == [FIELDS] * 3
    assert [tuple(row.values()) for row in found] == [
        ("chess", "chess_agent", None, "games", 4, "Chess"),
        ("chess/hard", "hard_agent", None, "games", 4, "Chess"),
        ("talks", None, "usersim_environment", "agent", 1, ""),
    ]


def test_what_cannot_be_listed_is_left_out_and_says_why(invoke: Invoke, captured: Any) -> None:
    rows("", invoke, captured)
    lost, suite = captured.stderr.splitlines()
    assert lost.startswith("Warning: benchmark 'lost' is left out: ")
    assert "gone_rs" in lost
    assert suite == (
        "Warning: benchmark 'suite' is left out: it has 2 benchmark datasets, so it is a suite and not one evaluation: chess_data, one_data"
    )


def test_the_table_names_the_server_where_no_one_agent_is(invoke: Invoke, captured: Any) -> None:
    assert eval_list.run(invoke("eval list"), captured.console) == 0
    talks = next(line for line in captured.stdout.splitlines() if "talks" in line)
    assert talks.split() == ["talks", "agent", "usersim_environment", "(environment", "server)", "1"]


def test_one_benchmark_in_full(root: Path, invoke: Invoke, captured: Any) -> None:
    assert eval_list.run(invoke("eval list talks --json"), captured.console) == 0
    shown = json.loads(captured.stdout)
    assert (shown["name"], shown["type"], shown["domain"], shown["description"]) == ("talks", "benchmark", "agent", None)
    assert shown["details"] == {
        "config": str(root / "benchmarks/talks/config.yaml"),
        "environment server": "usersim_environment",
        "num repeats": 1,
        "dataset": "talks.jsonl",
        "prepare script": "prepare.py",
    }


def test_the_datasets_of_a_config(invoke: Invoke, captured: Any) -> None:
    [row] = rows("--benchmark talks", invoke, captured)
    assert list(row) == [*FIELDS, "type", "declared_by", "taskset", "jsonl_fpath"]
    assert (row["name"], row["agent_name"], row["environment_server"]) == ("talks", None, "usersim_environment")
    assert (row["type"], row["declared_by"], row["taskset"]) == ("benchmark", "sim_rs", "ts")


def test_an_override_may_change_who_runs_it(invoke: Invoke, captured: Any) -> None:
    override = "+usersim_environment.environment_servers.usersim.agent_server={type:responses_api_agents,name:assistant}"
    [row] = rows(f"--benchmark talks {override}", invoke, captured)
    assert (row["agent_name"], row["environment_server"]) == ("assistant", "usersim_environment")


def test_a_config_without_datasets(root: Path, invoke: Invoke, captured: Any) -> None:
    (root / "c.yaml").write_text("a: {responses_api_agents: {x: {entrypoint: app.py}}}\n", encoding="utf-8")
    assert eval_list.run(invoke("eval list --config c.yaml"), captured.console) == 0
    assert captured.stdout == "The config declares no datasets.\n"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("chess --benchmark talks", UsageError, "NAME and a config are two questions"),
        ("ches", catalog.UnknownComponentError, "Did you mean 'chess'"),
        ("suite", GymComposeError, "it is a suite"),
        (
            "--benchmark talks ++environment_server_routes.ts=nowhere",
            DatasetAgentError,
            "leads to 'nowhere', which is not one environment server",
        ),
        ("--benchmark talks ++environment_server_routes.ts=null", DatasetAgentError, "taskset 'ts' has no route"),
    ],
)
def test_what_is_refused(invoke: Invoke, captured: Any, text: str, error: type[GymComposeError], words: str) -> None:
    with pytest.raises(error, match=words):
        eval_list.run(invoke(f"eval list {text}"), captured.console)
    assert captured.stdout == ""
