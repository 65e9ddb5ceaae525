from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler import document as doc
from gym_compose.compiler.errors import ValueNotPortableError

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=15)


@given(TREES)
def test_a_plain_copy_survives_json(tree: Any) -> None:
    try:
        copy = doc.plain(tree)
    except ValueNotPortableError:
        return
    assert orjson.loads(orjson.dumps(copy)) == copy == tree


@pytest.mark.parametrize("value", [float("inf"), float("nan"), b"x", object(), 2**64, "\ud800", {1, 2}])
def test_a_value_that_json_cannot_hold_is_named_by_its_key(value: object) -> None:
    with pytest.raises(ValueNotPortableError, match=r"a\.0\.b"):
        doc.plain({"a": [{"b": value}]})


def test_keys_become_text() -> None:
    assert doc.plain({1: "a", False: "b", None: "c", 2.5: "d"}) == {"1": "a", "false": "b", "null": "c", "2.5": "d"}
    assert doc.plain({7: {8: "x"}}) == {"7": {"8": "x"}}


def test_two_keys_of_one_text_are_refused_rather_than_merged() -> None:
    with pytest.raises(ValueNotPortableError, match=r"^a:"):
        doc.plain({"a": {1: "x", "1": "y"}})


def test_paths_through_number_keys_follow_and_list_indices_stay_numbers() -> None:
    tree = {"a": {1: ["x", {"token": "s"}]}}
    assert doc.normalize_paths(tree, frozenset({("a", 1, 1, "token"), ("gone", 0)})) == {("a", "1", 1, "token")}


@given(TREES)
def test_every_walked_path_leads_to_its_node(tree: Any) -> None:
    for path, node in doc.walk(tree):
        assert doc.get(tree, path) is node


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.b", ("a", "b")),
        ("x.y", ("x.y",)),
        ("x.y.z", ("x.y", "z")),
        ("l.1.k", ("l", 1, "k")),
        ("a.c", None),
        ("", None),
        ("l.9", None),
        ("a.b.c", None),
    ],
)
def test_a_dotted_name_finds_its_node_also_through_keys_with_dots(name: str, path: tuple[str | int, ...] | None) -> None:
    tree = {"a": {"b": 1}, "x": {"y": 2}, "x.y": {"z": 3}, "l": [0, {"k": 1}]}
    if name == "x.y":
        tree.pop("x")
    assert doc.find(tree, name) == path


def test_masking_touches_the_named_nodes_only_and_copies() -> None:
    tree = {"a": [{"k": "s"}, "t"], "b": "s"}
    assert doc.masked(tree, frozenset({("a", 0, "k")})) == {"a": [{"k": "****"}, "t"], "b": "s"}
    assert tree["a"] == [{"k": "s"}, "t"]
