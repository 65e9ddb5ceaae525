"""``gym list`` and ``gym search`` over trees on disk (contract-config 2.4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym_compose.cli import catalog, listing
from gym_compose.cli.translate import Invocation

Invoke = Callable[..., Invocation]


def put(root: Path, name: str, text: str = "") -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


SERVER = "m: {{resources_servers: {{math: {{entrypoint: app.py, domain: {domain}, description: {description}, value: Worth it}}}}}}\n"
AGENT = "a: {responses_api_agents: {looper: {entrypoint: app.py, resources_server: {name: m}, datasets: [{name: d, type: train}]}}}\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(listing, "component_roots", lambda call: (tmp_path / "mine", tmp_path / "base"))
    for root, domain in (("mine", "math"), ("base", "coding")):
        put(tmp_path / root, "resources_servers/math/configs/math.yaml", SERVER.format(domain=domain, description=f"Sums of {root}"))
    base = tmp_path / "base"
    put(base, "resources_servers/math/configs/with_agent.yaml", SERVER.format(domain="math", description="With an agent") + AGENT)
    put(base, "resources_servers/math/configs/judge.yaml", "j: {responses_api_models: {x: {entrypoint: app.py}}}\n")
    put(base, "environments/web/config.yaml", "config_paths: [resources_servers/math/configs/math.yaml]\n")
    put(base, "environments/buried/config.yaml", "a: 1\n")
    put(base, "environments/buried/.nemo_gym_tombstone")
    fields = "entrypoint: app.py, domain: games, description: Chess, datasets: [{type: benchmark}]"
    benchmark = f"b: {{responses_api_agents: {{looper: {{{fields}}}}}}}\n"
    put(base, "benchmarks/chess/config.yaml", benchmark)
    put(base, "benchmarks/chess/hard/v2.yaml", benchmark)
    put(base, "benchmarks/suite/config.yaml", benchmark.replace("[{type: benchmark}]", "[{type: benchmark}, {type: benchmark}]"))
    put(base, "benchmarks/known/config.yaml", benchmark)
    manifest = "name: known\nkind: benchmark\nversion: 1.2\ndomain: games\ndescription: Known\nexperimental: false\nmodality: text\n"
    put(base, "benchmarks/known/manifest.yaml", manifest)
    put(base, "responses_api_agents/looper/configs/looper.yaml", AGENT)
    put(base, "responses_api_agents/looper/configs/other.yaml", AGENT)
    put(base, "responses_api_agents/framework/configs/framework.yaml", AGENT.replace("resources_server: {name: m}", "agent_framework: f"))
    put(base, "responses_api_agents/bare/app.py")
    put(base, "responses_api_agents/nothing/README.md")
    put(base, "responses_api_models/vllm/configs/vllm.yaml", "x: 1\n")
    put(base, "responses_api_models/vllm/configs/big.yaml", "not: [valid\n")
    return tmp_path


def rows(text: str, invoke: Invoke, captured: Any) -> list[dict[str, Any]]:
    assert listing.run(invoke(f"{text} --json"), captured.console) == 0
    found: list[dict[str, Any]] = json.loads(captured.stdout)
    return found


class TestLists:
    def test_environments_and_benchmarks_together(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        found = rows("list environments", invoke, captured)
        assert [(row["name"], row["kind"], row.get("status", "-"), row["domain"]) for row in found] == [
            ("chess", "benchmark", "no-manifest", "games"),
            ("chess/hard/v2", "benchmark", "no-manifest", "games"),
            ("known", "benchmark", "-", "games"),
            ("resources_servers/math/with_agent", "environment", "no-manifest", "math"),
            ("web", "environment", "no-manifest", "math"),  # of the file that it includes, from the first root
        ]
        assert list(found[0]) == [
            "name", "kind", "status", "domain", "description", "version", "integration_profile", "modality", "licensing", "lifecycle",
        ]  # fmt: skip
        assert (found[2]["version"], found[2]["modality"], found[2]["lifecycle"]) == ("1.2", "text", None)

    def test_benchmarks(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert [row["name"] for row in rows("list benchmarks", invoke, captured)] == ["chess", "chess/hard/v2", "known"]

    @pytest.mark.parametrize(
        ("flags", "names"),
        [
            ("--kind environment", ["resources_servers/math/with_agent", "web"]),
            ("--domain games", ["chess", "chess/hard/v2", "known"]),
            ("--modality text", ["known"]),
            ("--status no-manifest --kind benchmark", ["chess", "chess/hard/v2"]),
            ("--lifecycle active", []),
        ],
    )
    def test_filters(self, tree: Path, invoke: Invoke, captured: Any, flags: str, names: list[str]) -> None:
        assert [row["name"] for row in rows(f"list environments {flags}", invoke, captured)] == names

    def test_a_filter_says_who_has_no_such_field(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        rows("list environments --modality text", invoke, captured)
        assert captured.stderr == "Warning: 4 entries have no modality and are left out.\n"

    def test_agents(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert rows("list agents", invoke, captured) == [
            {"name": "bare", "pattern": "A (composable)", "self_contained": False, "variants": [], "description": None},
            {"name": "framework", "pattern": "B (self-contained)", "self_contained": True, "variants": ["framework"], "description": None},
            {"name": "looper", "pattern": "A (composable)", "self_contained": False, "variants": ["looper", "other"], "description": None},
        ]

    def test_models(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert rows("list models", invoke, captured) == [
            {"name": "vllm/big", "model": "vllm/big", "model_group": "vllm"},
            {"name": "vllm", "model": "vllm", "model_group": "vllm"},
        ]

    def test_resources_servers_of_the_first_root_hide_those_of_the_next(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert rows("list resources-servers", invoke, captured) == [
            {"name": "math", "domain": "math", "description": "Sums of mine"},
            {"name": "math/with_agent", "domain": "math", "description": "With an agent"},
        ]

    def test_a_table(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert listing.run(invoke("list models"), captured.console) == 0
        assert [line.split() for line in captured.stdout.splitlines() if "vllm" in line] == [["vllm/big", "vllm"], ["vllm", "vllm"]]


class TestOne:
    def test_a_workload_in_full(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert listing.run(invoke("list environments resources_servers/math/with_agent --json"), captured.console) == 0
        shown = json.loads(captured.stdout)
        assert list(shown) == ["name", "type", "domain", "description", "details", "usage_example"]
        assert (shown["type"], shown["domain"], shown["description"]) == ("environment", "math", "With an agent\nValue: Worth it")
        assert shown["details"]["agent"] == "looper"
        assert shown["details"]["datasets"] == "d"
        assert shown["usage_example"] == "gym env start --resources-server math/with_agent --model-type openai_model"

    def test_as_text(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert listing.run(invoke("list resources-servers math"), captured.console) == 0
        assert captured.stdout.splitlines() == [
            "The math resources server (domain: math)",
            "",
            "Sums of mine",
            "Value: Worth it",
            "",
            "Details:",
            f"config: {tree / 'mine/resources_servers/math/configs/math.yaml'}",
            "",
            "Usage example:",
            "gym env start --resources-server math --model-type openai_model",
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("list models vlm", "unknown model 'vlm'. Did you mean 'vllm'?"),
            ("list agents zzz", "unknown agent 'zzz'."),
            ("list benchmarks web", "'web' is of kind environment, not benchmark. Try gym list environments web."),
            ("list benchmarks ches", "unknown benchmark 'ches'. Did you mean 'chess'?"),
            ("list resources-servers mth", "unknown resources server 'mth'. Did you mean 'math'?"),
        ],
    )
    def test_unknown_names(self, tree: Path, invoke: Invoke, captured: Any, text: str, message: str) -> None:
        with pytest.raises(catalog.UnknownComponentError) as caught:
            listing.run(invoke(text), captured.console)
        assert str(caught.value) == message
        assert caught.value.exit_code == 1

    def test_a_name_of_both_kinds_needs_the_kind(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        put(tree / "base", "environments/chess/config.yaml", "a: 1\n")
        with pytest.raises(catalog.CatalogError, match="--kind"):
            listing.run(invoke("list environments chess"), captured.console)
        assert listing.run(invoke("list environments chess --kind benchmark"), captured.console) == 0


class TestSearch:
    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("search CHES", ["chess", "chess/hard/v2"]),
            ("search benchmarks games", ["chess", "chess/hard/v2", "known"]),
            ("search environments games", []),
            ("search agents othr", ["looper"]),
            ("search models big", ["vllm/big"]),
            ("search resources-servers agent", ["math/with_agent"]),
        ],
    )
    def test_names_descriptions_and_domains(self, tree: Path, invoke: Invoke, captured: Any, text: str, names: list[str]) -> None:
        assert [row["name"] for row in rows(text, invoke, captured)] == names

    def test_no_match(self, tree: Path, invoke: Invoke, captured: Any) -> None:
        assert listing.run(invoke("search agents qqqq"), captured.console) == 0
        assert captured.stdout == "No agents match 'qqqq'.\n"

    @pytest.mark.parametrize(
        ("query", "fields", "expected"),
        [
            ("math", ("Mathematics",), True),
            ("mathh", ("math",), True),
            ("gym", ("reasoning_gym",), True),
            ("gim", ("a-gym",), False),
            ("reasonin", ("reasoning_gym",), True),
            ("code", ("", "math"), False),
        ],
    )
    def test_matching(self, query: str, fields: tuple[str, ...], expected: bool) -> None:
        assert listing.matches(query, *fields) is expected


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("name: other\nkind: benchmark\n", "the manifest's name is 'other', and its place is that of 'x'"),
        ("name: x\nkind: environment\n", "the manifest's kind is 'environment', and its place is for kind 'benchmark'"),
        ("name: x\nkind: benchmark\nconfig_path: gone.yaml\n", "config gone.yaml does not exist"),
    ],
)
def test_a_manifest_in_the_wrong_place_is_an_error(tmp_path: Path, manifest: str, message: str) -> None:
    put(tmp_path, "benchmarks/x/config.yaml", "a: 1\n")
    put(tmp_path, "benchmarks/x/manifest.yaml", manifest)
    with pytest.raises(catalog.CatalogError, match=message):
        catalog.workloads([tmp_path])


def test_a_file_that_is_no_manifest_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "environments/x/config.yaml", "a: 1\n")
    put(tmp_path, "environments/x/manifest.yaml", "- no\n")
    assert [workload.name for workload in catalog.workloads([tmp_path])] == ["x"]


def test_our_own_trees_are_listed(invoke: Invoke, captured: Any) -> None:
    names = {row["name"] for row in rows("list resources-servers", invoke, captured)}
    assert {"reasoning_gym", "example_single_tool_call", "example_session_state_mgmt"} <= names
