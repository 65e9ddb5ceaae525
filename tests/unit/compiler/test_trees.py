"""A server that several trees have: which one, why, and a warning where the user's own hides another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gym_compose.compiler import compile
from gym_compose.compiler.trees import tree_note


@pytest.mark.parametrize(
    ("origin", "why", "warned"),
    [("user", "a directory of yours wins", True), ("native", "ours is the lighter one", False), ("wheel", "prefers NeMo Gym's", False)],
)
def test_which_won_and_why(origin: Any, why: str, warned: bool, four: Any, make_config: Any, make_sources: Any, make_options: Any) -> None:
    config = make_config(four)
    sources = make_sources(config, math={"origin": origin, "shadowed": ("/other/resources_servers/math",)})
    deployment = compile(config, sources, make_options())
    (note,) = [text for instance, text in deployment.notes if instance == "math" and "is used, not" in text]
    assert note.startswith("/src/resources_servers/math is used, not /other/resources_servers/math: ")
    assert why in note
    assert any("resources_servers/math is in several trees" in warning for warning in deployment.warnings) == warned


def test_one_tree_is_no_news(four: Any, make_config: Any, make_sources: Any) -> None:
    (source, *_) = make_sources(make_config(four)).values()
    assert tree_note(replace(source, shadowed=())) is None
