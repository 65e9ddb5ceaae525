"""Migration: each case of contract-data 5, and that the parser then finds exactly one server for each agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.config.environments import AGENTS, STRICT_KEY, environment_server_agent_names
from gym_compose.config.environments import relay_name as parser_relay_name
from gym_compose.config.load import load_config
from gym_compose.config.ports import offline
from gym_compose.tasks import add_legacy_agent_environment_servers as script
from gym_compose.wire.references import refers_to_agent

SCRIPT = Path(script.__file__)
MODEL = "m:\n  responses_api_models:\n    openai_model: {entrypoint: app.py}\n"
RESOURCES = "r:\n  resources_servers:\n    r: {entrypoint: app.py, domain: other}\n"


def agent(name: str, kind: str = "simple_agent") -> str:
    return (
        f"{name}:\n  responses_api_agents:\n    {kind}:\n      entrypoint: app.py\n"
        "      resources_server: {type: resources_servers, name: r}\n      model_server: {type: responses_api_models, name: m}\n"
    )


def server(name: str, kind: str = "legacy_agent", **fields: str) -> str:
    lines = "".join(f"      {field}: {{type: responses_api_agents, name: {agent}}}\n" for field, agent in fields.items())
    return f"{name}:\n  environment_servers:\n    {kind}:\n      entrypoint: app.py\n{lines}"


class Tree:
    """Config files of one test, and what the script and the parser make of them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.root / f"{name}.yaml").write_text(text, encoding="utf-8")

    def text(self, name: str) -> str:
        return (self.root / f"{name}.yaml").read_text(encoding="utf-8")

    def migrate(self, *names: str, check: bool = False) -> script.Report:
        paths = [self.root / f"{name}.yaml" for name in names] or [self.root]
        return script.migrate(paths, [], check=check)

    def fronts(self, *names: str) -> dict[str, list[str]]:
        """Server to agents, of the files merged in this order; strict: an agent without one is an error."""
        overrides = {"config_paths": [f"{name}.yaml" for name in names], STRICT_KEY: True}
        config = load_config(overrides, cwd=self.root, environ={}, ports=offline())
        found: dict[str, list[str]] = {}
        for name, block in config.resolved.items():
            for fields in block.get("environment_servers", {}).values() if isinstance(block, Mapping) else ():
                found[name] = environment_server_agent_names(fields)
        counted = Counter(agent for agents in found.values() for agent in agents)
        assert set(counted.values()) <= {1}, f"more than one server for an agent: {found}"
        return found


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_bound_agent_gets_a_relay_and_a_second_run_adds_nothing(tree: Tree) -> None:
    before = "# of ours\n" + agent("my_simple_agent") + RESOURCES + MODEL + "# the end"
    tree.put(a=before)
    checked = tree.migrate(check=True)
    assert (checked.exit_code, tree.text("a")) == (1, before)
    assert tree.migrate().exit_code == 0
    assert tree.text("a") == before + (
        "\n\nmy_environment_server:\n  environment_servers:\n    legacy_agent:\n      entrypoint: app.py\n"
        "      agent_server:\n        type: responses_api_agents\n        name: my_simple_agent\n"
    )
    assert tree.fronts("a") == {"my_environment_server": ["my_simple_agent"]}
    assert (tree.migrate().changes, tree.migrate(check=True).exit_code) == ([], 0)


def test_a_server_of_two_agents_is_left_alone(tree: Tree) -> None:
    tree.put(a=agent("x") + agent("y") + server("s", user_agent="x", assistant_agent="y") + RESOURCES + MODEL)
    assert (tree.migrate().changes, tree.migrate().exit_code) == ([], 0)


def test_an_overlay_that_renames_both_agents_of_a_server_gets_one_block(tree: Tree) -> None:
    base = agent("x") + agent("y") + server("s", "two_agents", user_agent="x", assistant_agent="y") + RESOURCES + MODEL
    tree.put(base=base, over="new_x:\n  _inherit_from: x\nnew_y:\n  _inherit_from: y\n")
    report = tree.migrate()
    assert [(change.path.name, [(block.kind, block.name) for block in change.blocks]) for change in report.changes] == [
        ("over.yaml", [("retarget", "s")])
    ]
    assert tree.fronts("base", "over") == {"s": ["new_x", "new_y"]}
    assert yaml.safe_load(tree.text("over"))["s"] == {
        "environment_servers": {
            "two_agents": {"user_agent": {"type": AGENTS, "name": "new_x"}, "assistant_agent": {"type": AGENTS, "name": "new_y"}}
        }
    }
    assert tree.migrate().changes == []


def test_a_rename_in_the_file_of_its_server_has_to_be_edited_by_hand(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    before = agent("x") + server("s", agent_server="x") + "y:\n  _inherit_from: x\n" + RESOURCES + MODEL
    tree.put(a=before, b=agent("other") + RESOURCES + MODEL)
    report = tree.migrate()
    report.print()
    told = capsys.readouterr()
    assert (report.exit_code, tree.text("a")) == (2, before)
    assert (
        "a.yaml: an agent was renamed that a server of the same file names: set s.environment_servers.legacy_agent.agent_server.name to 'y'"
        in told.err
    )
    assert told.out.endswith("1 file, added 1 block; 0 unreadable, 1 to be edited by hand\n")
    assert tree.fronts("b") == {"other_environment_server": ["other"]}


def test_a_renamed_agent_keeps_a_server_that_is_no_relay(tree: Tree) -> None:
    tree.put(
        base=agent("x") + server("turn", "single_agent_turn_legacy", agent_server="x") + RESOURCES + MODEL, over="y:\n  _inherit_from: x\n"
    )
    [change] = tree.migrate().changes
    assert change.blocks[0].text == (
        "turn:\n  environment_servers:\n    single_agent_turn_legacy:\n      agent_server:\n"
        "        type: responses_api_agents\n        name: y\n"
    )
    assert tree.fronts("base", "over") == {"turn": ["y"]}


def test_a_base_without_a_server_and_its_overlay_are_migrated_together(tree: Tree) -> None:
    tree.put(base=agent("my_simple_agent") + RESOURCES + MODEL, over="renamed_simple_agent:\n  _inherit_from: my_simple_agent\n")
    report = tree.migrate()
    assert [(block.kind, block.name) for change in report.changes for block in change.blocks] == [
        ("declared", "my_environment_server"),
        ("inherited", "renamed_environment_server"),
    ]
    assert tree.fronts("base") == {"my_environment_server": ["my_simple_agent"]}
    assert tree.fronts("base", "over") == {"renamed_environment_server": ["renamed_simple_agent"]}


def test_a_rename_to_the_same_server_name_is_declared(tree: Tree) -> None:
    tree.put(base=agent("my_simple_agent") + RESOURCES + MODEL, over="my:\n  _inherit_from: my_simple_agent\n")
    tree.migrate()
    assert tree.fronts("base", "over") == {"my_environment_server": ["my"]}


def test_a_broken_file_is_named_and_the_others_are_migrated(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.put(broken="a: [", fine=agent("x") + RESOURCES + MODEL, listed="- a\n- b\n")
    report = tree.migrate()
    report.print()
    assert report.exit_code == 2
    assert "broken.yaml: cannot be read: while parsing" in capsys.readouterr().err
    assert tree.fronts("fine") == {"x_environment_server": ["x"]}
    assert script.migrate([tree.root / "gone.yaml"], [], check=True).exit_code == 2


def test_agents_that_share_a_short_name_get_their_full_ones(tree: Tree) -> None:
    tree.put(a=agent("x_simple_agent") + agent("x_hermes_agent", "hermes_agent") + RESOURCES + MODEL)
    tree.migrate()
    assert tree.fronts("a") == {
        "x_simple_agent_environment_server": ["x_simple_agent"],
        "x_hermes_agent_environment_server": ["x_hermes_agent"],
    }


@pytest.mark.parametrize(
    "text",
    [
        agent("x").replace("name: r}", "name: '???'}"),
        agent("x", "hermes_agent").replace("{type: resources_servers, name: r}", "null"),
        "x:\n  responses_api_agents:\n    simple_agent:\n      max_steps: 3\n",
        "x:\n  _inherit_from: nobody\n",
        agent("x") + "x_environment_server: {}\n",
        "x:\n  responses_api_agents: {a: {entrypoint: app.py}, b: {entrypoint: app.py}}\n",
        "just text",
        "",
    ],
    ids=["template", "native template", "overlay", "rename of an unknown", "name taken", "two types", "text", "empty"],
)
def test_nothing_is_added_to(tree: Tree, text: str) -> None:
    tree.put(a=text)
    assert tree.migrate().changes == []
    assert (tree.text("a"), tree.migrate().exit_code) == (text, 0)


def test_an_agent_without_a_resources_server_needs_one_all_the_same(tree: Tree) -> None:
    tree.put(a=agent("x", "hermes_agent").replace("      resources_server: {type: resources_servers, name: r}\n", "") + MODEL)
    assert tree.migrate().exit_code == 0
    assert tree.fronts("a") == {"x_environment_server": ["x"]}


def test_a_block_with_content_of_its_own_over_an_unknown_source_is_declared(tree: Tree) -> None:
    tree.put(a="x:\n  _inherit_from: nobody\n  responses_api_agents:\n    simple_agent:\n      max_steps: 3\n")
    [change] = tree.migrate(check=True).changes
    assert [(block.kind, block.name) for block in change.blocks] == [("declared", "x_environment_server")]


def test_a_server_of_another_file_fronts_an_agent(tree: Tree) -> None:
    tree.put(a=agent("x") + RESOURCES + MODEL, b=server("s", agent_server="x"))
    assert tree.migrate().changes == []


def test_a_file_with_an_agent_of_the_same_name_does_not_count(tree: Tree) -> None:
    tree.put(a=agent("x") + RESOURCES + MODEL, b=agent("x") + server("s", agent_server="x") + RESOURCES + MODEL)
    assert [change.path.name for change in tree.migrate().changes] == ["a.yaml"]
    assert tree.fronts("a") == {"x_environment_server": ["x"]}


def test_a_template_that_an_overlay_binds_gets_its_server_there(tree: Tree) -> None:
    binding = "x:\n  responses_api_agents:\n    simple_agent:\n      resources_server: {name: r}\n"
    tree.put(base=agent("x").replace("name: r}", "name: '???'}"), over="config_paths: [base.yaml]\n" + binding + RESOURCES + MODEL)
    assert [change.path.name for change in tree.migrate().changes] == ["over.yaml"]
    assert tree.fronts("over") == {"x_environment_server": ["x"]}


def test_a_copy_gets_a_server_of_its_own(tree: Tree) -> None:
    tree.put(a=agent("x") + server("s", agent_server="x") + "y:\n  _copy: x\n" + RESOURCES + MODEL)
    assert tree.migrate().exit_code == 0
    assert tree.fronts("a") == {"s": ["x"], "y_environment_server": ["y"]}


def test_a_field_whose_type_stands_in_the_block_below_counts(tree: Tree) -> None:
    overlay = "y:\n  _inherit_from: x\ns:\n  environment_servers:\n    two:\n      user_agent: {name: y}\n"
    tree.put(base=agent("x") + server("s", "two", user_agent="x") + RESOURCES + MODEL, over=overlay)
    assert tree.migrate().changes == []
    assert tree.fronts("base", "over") == {"s": ["y"]}


def test_one_rename_of_an_agent_of_two_servers_retargets_both(tree: Tree) -> None:
    base = agent("x") + server("s", agent_server="x") + server("t", "other", helper="x") + RESOURCES + MODEL
    tree.put(base=base, over="y: ${inherit_from:x}\n")
    [change] = tree.migrate().changes
    assert [(block.kind, block.name, list(block.content["environment_servers"])) for block in change.blocks] == [
        ("retarget", "s", ["legacy_agent"]),
        ("retarget", "t", ["other"]),
    ]


def test_line_ends_and_mode_of_a_file_stay(tree: Tree) -> None:
    path = tree.root / "a.yaml"
    path.write_bytes((agent("x") + RESOURCES + MODEL).replace("\n", "\r\n").encode())
    path.chmod(0o640)
    tree.migrate()
    assert b"\n" not in path.read_bytes().replace(b"\r\n", b"")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [found.name for found in tree.root.iterdir()] == ["a.yaml"]


def test_a_layout_that_nothing_can_be_appended_to_is_left_and_named(tree: Tree) -> None:
    text = json.dumps(yaml.safe_load(agent("x") + RESOURCES + MODEL))
    tree.put(a=text)
    report = tree.migrate()
    assert (report.exit_code, tree.text("a"), report.changes) == (2, text, [])
    assert report.unreadable == [(tree.root / "a.yaml", "nothing can be appended to this layout: add the blocks by hand")]


def test_directories_are_walked_and_environments_of_python_are_not(tree: Tree) -> None:
    for name in ("b.yaml", "a.yml", "a.yaml", ".venv/c.yaml", "x/site-packages/d.yaml", "x/e.txt"):
        (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.root / name).touch()
    assert [str(path.relative_to(tree.root)) for path in script.files(tree.root)] == ["a.yaml", "b.yaml", "a.yml"]


def test_a_rename_of_an_agent_of_the_search_roots_follows_its_server(tree: Tree, tmp_path: Path) -> None:
    component = tmp_path / "root" / "resources_servers" / "r" / "configs"
    component.mkdir(parents=True)
    (component / "r.yaml").write_text(agent("x") + server("hand_named", agent_server="x") + RESOURCES, encoding="utf-8")
    (component / "broken.yaml").write_text("a: [", encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text("y:\n  _inherit_from: x\n", encoding="utf-8")
    report = script.migrate([mine], [tmp_path / "root"], check=True)
    assert [block.name for change in report.changes for block in change.blocks] == ["hand_named"]
    assert report.unreadable == []


REFERENCES: list[tuple[str, Any, bool]] = [
    ("agent_server", {"name": "a"}, True),
    ("user_agent", {"type": AGENTS, "name": "a"}, True),
    ("user_agent", {"name": "a"}, False),
    ("agent_server", {"type": "resources_servers", "name": "a"}, False),
]


@pytest.mark.parametrize(("field", "reference", "expected"), REFERENCES)
def test_script_and_parser_have_one_rule_of_references(field: str, reference: Any, expected: bool) -> None:
    assert script.refers_to_agent(field, reference) is expected
    assert environment_server_agent_names({field: reference}) == (["a"] if expected else [])


@given(st.sampled_from(["agent_server", "user_agent", "type"]), st.none() | st.sampled_from([AGENTS, "resources_servers", "", "???", 3]))
def test_the_rules_of_references_are_the_same_for_any_type(field: str, kind: Any) -> None:
    assert script.refers_to_agent(field, {"type": kind, "name": "a"}) == refers_to_agent(field, kind)


@given(st.text("ab_", max_size=4), st.sampled_from(["", "_agent", "_simple_agent", "simple_agent"]), st.sampled_from(["simple_agent", "x"]))
def test_script_and_parser_name_a_relay_alike(stem: str, ending: str, kind: str) -> None:
    assert script.relay_name(stem + ending, kind) == parser_relay_name(stem + ending, kind)


def test_the_file_runs_by_its_path_and_prints_json(tree: Tree) -> None:
    tree.put(a=agent("x") + RESOURCES + MODEL)
    command = [sys.executable, "-I", str(SCRIPT), str(tree.root), "--check", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    document = json.loads(ran.stdout)
    assert [(Path(file["path"]).name, [block["name"] for block in file["blocks"]]) for file in document["files"]] == [
        ("a.yaml", ["x_environment_server"])
    ]
    assert not {line.split()[1].split(".")[0] for line in SCRIPT.read_text().splitlines() if line.startswith(("import ", "from "))} - {
        "__future__", "argparse", "json", "os", "shutil", "sys", "collections", "dataclasses", "functools", "pathlib", "typing", "yaml",
    }  # fmt: skip
