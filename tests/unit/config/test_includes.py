"""The walk over config_paths: contract-config 1.6, E1 to E8, E10, E14."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_compose.config.documents import Document
from gym_compose.config.errors import ConfigInterpolationError, ConfigPathNotFoundError, MalformedConfigPathsError
from gym_compose.config.includes import Includes, walk_includes

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


def inc(*names: str, **values: Any) -> dict[str, Any]:
    return {**({"config_paths": [f"{name}.yaml" for name in names]} if names else {}), **values}


DIAMOND = {"a": inc("b", "c"), "b": inc("e"), "e": inc("d", x="e"), "c": inc("d"), "d": inc(x="d")}
CASES: list[tuple[str, dict[str, Any], list[str], dict[str, Any], list[str]]] = [
    ("E1 an includer overrides what it includes", {"a": inc("b", x="a"), "b": inc(x="b", y="b")}, ["a"], {"x": "a", "y": "b"}, ["a", "b"]),
    ("E2 a root keeps its place", {"a": inc("b", x="a"), "b": inc(x="b")}, ["a", "b"], {"x": "b"}, ["a", "b"]),
    ("E3 the other way round", {"a": inc("b", x="a"), "b": inc(x="b")}, ["b", "a"], {"x": "a"}, ["b", "a"]),
    ("E4 the first includer by breadth gets the credit", DIAMOND, ["a"], {"x": "d"}, ["a", "b", "c", "e", "d"]),
    ("E5 a cycle ends", {"a": inc("b", x="a"), "b": inc("a", x="b", y="b")}, ["a"], {"x": "a", "y": "b"}, ["a", "b"]),
    ("E5 a file that includes itself", {"a": inc("a", x="a")}, ["a"], {"x": "a"}, ["a"]),
    ("the same root twice is loaded twice", {"a": inc(x="a")}, ["a", "a"], {"x": "a"}, ["a", "a"]),
    ("later siblings win", {"a": inc("b", "c"), "b": inc(x="b"), "c": inc(x="c")}, ["a"], {"x": "c"}, ["a", "b", "c"]),
]


@pytest.mark.parametrize(("files", "roots", "values", "listed"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_order_of_included_files(world: World, files: dict[str, Any], roots: list[str], values: dict[str, Any], listed: list[str]) -> None:
    world.write({f"{name}.yaml": tree for name, tree in files.items()})
    merged = world.resolve({"config_paths": [f"{name}.yaml" for name in roots]})
    assert {key: merged[key] for key in values} == values
    assert merged["config_paths"] == [f"{name}.yaml" for name in listed]


def test_files_are_listed_in_merge_order(world: World) -> None:
    world.write({f"{name}.yaml": tree for name, tree in DIAMOND.items()})
    loaded = world.load({"config_paths": ["a.yaml"]})
    assert [Path(name).stem for name in loaded.config_files] == ["e", "b", "d", "c", "a"]


def test_two_spellings_of_one_file_load_twice(world: World) -> None:  # E6
    world.write({"a.yaml": {"x": 1}})
    assert world.resolve({"config_paths": ["a.yaml", "./a.yaml"]})["config_paths"] == ["a.yaml", "./a.yaml"]


def test_repeated_includes_are_noticed_once(world: World) -> None:
    world.write({"a.yaml": inc("b"), "b.yaml": inc("a", x=1)})
    warnings: list[str] = []
    world.resolve({"config_paths": ["a.yaml"]}, warnings=warnings)
    assert [text for text in warnings if "loaded once: a.yaml" in text]


def test_an_include_is_never_relative_to_the_including_file(world: World, tmp_path: Path) -> None:  # E7
    world.write({"sub/a.yaml": inc("b"), "sub/b.yaml": {}})
    extra = tmp_path / "extra"
    extra.mkdir()
    with pytest.raises(ConfigPathNotFoundError) as caught:
        world.resolve({"config_paths": ["sub/a.yaml"]}, roots=[extra])
    assert caught.value.details == (f"looked for {extra / 'b.yaml'}", f"looked for {world.cwd / 'b.yaml'}")
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("value", ["a.yaml", {"a": 1}, 5, [1], ["a.yaml", None], [["a.yaml"]]])
def test_root_entries_have_to_be_a_list_of_strings(world: World, value: Any) -> None:  # E8
    with pytest.raises(MalformedConfigPathsError):
        world.resolve({"config_paths": value})


def test_an_included_scalar_is_read_letter_by_letter(world: World) -> None:  # E8
    world.write({"a.yaml": {"config_paths": "b.yaml"}, "b.yaml": {}})
    with pytest.raises(ConfigPathNotFoundError, match="first entry would be 'b'"):
        world.resolve({"config_paths": ["a.yaml"]})


@pytest.mark.parametrize("value", [5, {"a": 1}, [3]])
def test_included_entries_have_to_be_a_list_of_strings(world: World, value: Any) -> None:
    world.write({"a.yaml": {"config_paths": value}})
    with pytest.raises(MalformedConfigPathsError, match=r"a\.yaml"):
        world.resolve({"config_paths": ["a.yaml"]})


@pytest.mark.parametrize("value", [None, [], ""])
def test_no_entries(world: World, value: Any) -> None:
    world.write({"a.yaml": {"config_paths": value, "x": 1}})
    assert world.resolve({"config_paths": ["a.yaml"]})["x"] == 1
    assert "config_paths" not in world.resolve({})


def test_the_list_of_a_higher_source_replaces_that_of_env_yaml(world: World) -> None:  # E10
    world.write({"a.yaml": {"x": "file"}, "env.yaml": {"x": "env", "config_paths": ["zz.yaml"]}})
    merged = world.resolve(["+config_paths=[a.yaml]", "+x=cli"])
    assert (merged["x"], merged["config_paths"]) == ("cli", ["a.yaml"])
    with pytest.raises(ConfigPathNotFoundError, match=r"zz\.yaml"):
        world.resolve([])


def test_the_first_env_yaml_of_the_roots_is_the_only_one(world: World) -> None:  # E14
    world.write({"env.yaml": {"x": "cwd", "y": 1}, "er/env.yaml": {"x": "er"}})
    merged = world.resolve([], roots=["er"])
    assert merged["x"] == "er"
    assert "y" not in merged
    world.environ["NEMO_GYM_EXTRA_ROOTS"] = "er"
    assert world.resolve([])["x"] == "er"


def test_roots_are_searched_in_order(world: World, tmp_path: Path) -> None:
    for name in ("first", "second", "installed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(f"x: {name}")
    world.environ["NEMO_GYM_EXTRA_ROOTS"] = str(tmp_path / "second")
    options: dict[str, Any] = {"install_root": tmp_path / "installed"}
    assert world.resolve(["+config_paths=[a.yaml]"], roots=[tmp_path / "first"], **options)["x"] == "first"
    assert world.resolve(["+config_paths=[a.yaml]"], **options)["x"] == "second"
    del world.environ["NEMO_GYM_EXTRA_ROOTS"]
    assert world.resolve(["+config_paths=[a.yaml]"], **options)["x"] == "installed"
    world.write({"a.yaml": {"x": "cwd"}})
    assert world.resolve(["+config_paths=[a.yaml]"], **options)["x"] == "cwd"


def test_interpolations_in_entries_see_their_own_file_only(world: World) -> None:
    world.write({"a.yaml": {"config_paths": ["${dir}/b.yaml"], "dir": "sub"}, "sub/b.yaml": {"y": 2}, "c.yaml": {"dir": "sub"}})
    assert world.resolve({"config_paths": ["a.yaml"]})["y"] == 2
    world.write({"a.yaml": {"config_paths": ["${dir}/b.yaml"]}})
    with pytest.raises(ConfigInterpolationError, match="'dir'"):
        world.resolve({"config_paths": ["c.yaml", "a.yaml"]})


def test_interpolations_in_root_entries_see_env_yaml_and_overrides(world: World) -> None:
    world.write({"env.yaml": {"dir": "sub", "config_paths": ["${dir}/b.yaml"]}, "sub/b.yaml": {"y": 2}})
    assert world.resolve([])["y"] == 2
    world.environ["D"] = "sub"
    assert world.resolve(["'++config_paths=[${oc.env:D}/b.yaml]'".strip("'")])["y"] == 2


def slow_order(files: dict[str, list[str]], roots: list[str]) -> tuple[list[str], list[str]]:
    """Both precedence rules and nothing else: (merge order, list), worked out level by level instead of by one queue."""
    listed = list(roots)
    owner: dict[int, int] = {}
    level = list(range(len(roots)))
    while level:
        below = []
        for index in level:
            for included in files[listed[index]]:
                if included not in listed:
                    owner[len(listed)] = index
                    below.append(len(listed))
                    listed.append(included)
        level = below

    def subtree(index: int) -> list[int]:
        children = [child for child, parent in owner.items() if parent == index]
        return [node for child in children for node in subtree(child)] + [index]

    return [listed[node] for index in range(len(roots)) for node in subtree(index)], listed


NAMES = [f"f{number}" for number in range(7)]


@settings(deadline=None)
@given(
    st.fixed_dictionaries({name: st.lists(st.sampled_from(NAMES), max_size=4) for name in NAMES}),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
)
def test_any_include_tree_obeys_the_precedence_rules(files: dict[str, list[str]], roots: list[str]) -> None:
    def load(path: Path, entry: str) -> Document:
        return Document(entry, path, {"config_paths": files[entry], "x": entry})

    found: Includes = walk_includes(roots, [Path("/")], load)
    order, listed = slow_order(files, roots)
    assert [document.entry for document in found.documents] == order
    assert list(found.entries) == listed
    reached = set(roots)
    while (further := reached | {name for known in reached for name in files[known]}) != reached:
        reached = further
    assert set(listed) == reached
