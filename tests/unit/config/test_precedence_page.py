"""docs/precedence.md holds a table that is made here: every row is merged, and the page has to say what came out.

``GYM_COMPOSE_WRITE_DOCS=1`` writes the table into the page.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.config.conftest import World

PAGE = Path(__file__).parents[3] / "docs" / "precedence.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

A, B = "a.yaml", "b.yaml"
ROWS: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("a later file wins over an earlier one", {A: {"x": 1}, B: {"x": 2}}, ["+config_paths=[a.yaml,b.yaml]"], "x"),
    ("a file wins over what it includes", {A: {"config_paths": [B], "x": 1}, B: {"x": 2}}, ["+config_paths=[a.yaml]"], "x"),
    (
        "a file that is listed itself keeps that place",
        {A: {"config_paths": [B], "x": 1}, B: {"x": 2}},
        ["+config_paths=[a.yaml,b.yaml]"],
        "x",
    ),
    (
        "an included file belongs to its first includer, by breadth",
        {
            A: {"config_paths": [B, "c.yaml"]},
            B: {"config_paths": ["e.yaml"]},
            "e.yaml": {"config_paths": ["d.yaml"], "x": "e"},
            "c.yaml": {"config_paths": ["d.yaml"]},
            "d.yaml": {"x": "d"},
        },
        ["+config_paths=[a.yaml]"],
        "x",
    ),
    ("env.yaml wins over files", {A: {"x": 1}, "env.yaml": {"x": 2}}, ["+config_paths=[a.yaml]"], "x"),
    ("an override wins over env.yaml", {"env.yaml": {"x": 2}}, ["++x=3"], "x"),
    ("a later override wins", {}, ["++x=1", "++x=2"], "x"),
    ("mappings merge", {A: {"x": {"p": 1, "q": 2}}, B: {"x": {"q": 3}}}, ["+config_paths=[a.yaml,b.yaml]"], "x"),
    ("lists replace", {A: {"x": [1, 2, 3]}, B: {"x": [9]}}, ["+config_paths=[a.yaml,b.yaml]"], "x"),
    ("a scalar replaces a mapping", {A: {"x": {"p": 1}}, B: {"x": 5}}, ["+config_paths=[a.yaml,b.yaml]"], "x"),
    ("null replaces a mapping", {A: {"x": {"p": 1}}, B: {"x": None}}, ["+config_paths=[a.yaml,b.yaml]"], "x"),
    ("??? never replaces a value", {A: {"x": 1}, B: {"x": "???"}}, ["+config_paths=[a.yaml,b.yaml]"], "x"),
    (
        "own keys win over inherited ones",
        {A: {"y": {"p": 1, "q": 2}, "x": {"_inherit_from": "y", "q": 3}}},
        ["+config_paths=[a.yaml]"],
        "x",
    ),
    (
        "an override of the source reaches its heirs",
        {A: {"y": {"p": 1}, "x": {"_copy": "y"}}},
        ["+config_paths=[a.yaml]", "++y.p=9"],
        "x",
    ),
    (
        "config_paths of an override replaces that of env.yaml",
        {A: {"x": 1}, "env.yaml": {"config_paths": ["zz.yaml"]}},
        ["+config_paths=[a.yaml]"],
        "x",
    ),
]


def shown(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def table(world: World) -> str:
    lines = ["| rule | files | overrides | key | value |", "|---|---|---|---|---|"]
    for rule, files, overrides, key in ROWS:
        for old in world.cwd.iterdir():
            old.unlink()
        world.write(files)
        value = world.resolve(overrides)[key]
        told = "<br>".join(f"{name}: {shown(tree)}" for name, tree in files.items())
        lines.append(f"| {rule} | {told} | {' '.join(f'`{token}`' for token in overrides)} | `{key}` | {shown(value)} |")
    return "\n".join(lines)


def test_the_page_says_what_the_merge_does(world: World) -> None:
    made = table(world)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    written, after = rest.split(END)
    if os.environ.get("GYM_COMPOSE_WRITE_DOCS") == "1":
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}", encoding="utf-8")
        return
    assert written.strip() == made
