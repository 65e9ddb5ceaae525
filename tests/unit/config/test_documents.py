"""The YAML dialect and everything that can be wrong with a file: contract-config 1.5, E9, issue 4's bad input."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gym_compose.config.documents import MAXIMUM_BYTES, key_line, load_document, parse_document
from gym_compose.config.errors import ConfigError, ConfigFileError

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("on", True),
        ("Off", False),
        ("0x10", 16),
        ("010", 8),
        ("12:30", 750),
        ("1_000", 1000),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00"),
        ("~", None),
        ("null", None),
        ("'1'", "1"),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("1.2.3", "1.2.3"),
        ("e1", "e1"),
        ("1e", "1e"),
        ("${oc.env:A,b}", "${oc.env:A,b}"),
        ("'???'", "???"),
        ("[a, b]", ["a", "b"]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_scalars_are_those_of_yaml_1_1_with_omegaconfs_rules(text: str, value: Any) -> None:
    parsed = parse_document(f"k: {text}", "t")["k"]
    assert parsed == value
    assert type(parsed) is type(value)
    assert OmegaConf.to_container(OmegaConf.create(f"k: {text}"))["k"] == value  # type: ignore[index, call-overload]


@settings(deadline=None)
@given(st.text(alphabet="0123456789+-._:eExXob~nulyYsNOofTtrue aA", max_size=9))
def test_any_plain_scalar_reads_as_omegaconf_reads_it(text: str) -> None:
    document = f"k: {text}\n"
    try:
        expected = OmegaConf.to_container(OmegaConf.create(document))["k"]  # type: ignore[index, call-overload]
    except Exception:  # noqa: BLE001 - whatever it is, ours has to be a ConfigError
        expected = ConfigError
    try:
        actual = parse_document(document, "t").get("k")
    except ConfigError:
        actual = ConfigError
    assert actual == expected or (actual != actual and expected != expected)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\ufeff", "null"])
def test_an_empty_document_is_an_empty_mapping(world: World, text: str) -> None:
    world.write({"a.yaml": text})
    assert load_document(world.cwd / "a.yaml").tree == {}


def test_anchors_and_merge_keys_are_expanded_and_not_shared() -> None:
    tree = parse_document("base: &b {x: 1, y: [1]}\na: {<<: *b, x: 2}\nc: *b\n", "t")
    assert tree == {"base": {"x": 1, "y": [1]}, "a": {"x": 2, "y": [1]}, "c": {"x": 1, "y": [1]}}
    assert tree["c"] is not tree["base"]
    assert tree["a"]["y"] is not tree["base"]["y"]


def test_a_byte_order_mark_is_no_part_of_the_first_key(world: World) -> None:
    world.write({"a.yaml": b"\xef\xbb\xbfx: 1\n"})
    assert load_document(world.cwd / "a.yaml").tree == {"x": 1}


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: 1\nb: 2\na: 3\n", ("found duplicate key a", "line 3", "column 1", "line 1")),
        (b"s:\n  k: 1\n  k: 2\n", ("duplicate key k", "line 3", "column 3", "line 2")),
        (b"a: [1\nb: 2\n", ("malformed YAML", "line 2")),
        (b"a: b: c\n", ("malformed YAML", "line 1", "column 5")),
        (b"a:\n\t- 1\n", ("malformed YAML", "line 2", "column 1")),
        (b"a: 1\nb: \xff\n", ("0xff", "line 2", "UTF-8")),
        (b"a: 1\x00\n", ("YAML",)),
        (b"- a\n- b\n", ("a list", "mapping")),
        (b"just text\n", ("single value", "mapping")),
        (b"5\n", ("single value",)),
        (b"a: 1\n---\nb: 2\n", ("malformed YAML",)),
        (b"a: !!python/object/apply:os.system ['true']\n", ("malformed YAML", "line 1")),
        (b"a: !thing 1\n", ("malformed YAML",)),
        (b"a: !!set {x, y}\n", ("'a'", "set")),
        (b"a: &a [*a]\n", ("alias of itself",)),
        (b"? [1, 2]\n: x\n", ("key",)),
        (b"~: 1\n", ("key None",)),
        (BOMB.encode(), ("aliases",)),
        (b"a: " + b"[" * 5000 + b"]" * 5000, ("nesting",)),
        (b"a: " + b"[" * 900 + b"]" * 900, ("nested",)),
        (b"a: " + b"[" * 70 + b"]" * 70, ("more than 64 levels",)),
        (b"a: " + b"x" * (MAXIMUM_BYTES + 1), ("MB",)),
        (b"a: 0b\n" + b"# " + b"x" * 10_000_000, ("10.0 MB",)),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[0].replace(" ", "_"),
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(world: World, content: bytes, words: tuple[str, ...]) -> None:
    world.write({"bad.yml": content})
    with pytest.raises(ConfigFileError) as caught:
        world.resolve({"config_paths": ["bad.yml"]})
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(world.cwd / "bad.yml"))
    for word in words:
        assert word in text


def test_a_directory_is_no_config(world: World) -> None:
    (world.cwd / "d").mkdir()
    with pytest.raises(ConfigFileError, match="this is a directory"):
        world.resolve({"config_paths": ["d"]})


def test_a_file_without_read_permission_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write({"a.yaml": "x: 1"})

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigFileError, match=r"a\.yaml: the file cannot be read: Permission denied"):
        world.resolve({"config_paths": ["a.yaml"]})


@pytest.mark.parametrize("text", ["${", "${a", "x${oc.env:}y}${", "${a:b"])
def test_text_that_is_no_valid_interpolation_names_file_and_key(world: World, text: str) -> None:
    world.write({"env.yaml": {"deep": {"key": text}}})
    with pytest.raises(ConfigError, match=r"env\.yaml: deep\.key"):
        world.resolve([])


def test_unknown_top_level_keys_are_kept(world: World) -> None:
    world.write({"a.yaml": {"whatever": {"x": [1, {"y": None}]}, 5: "five"}})
    merged = world.resolve({"config_paths": ["a.yaml"]})
    assert merged["whatever"] == {"x": [1, {"y": None}]}
    assert merged[5] == "five"  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "line"), [(("a",), 1), (("a", "b"), 2), (("a", "l", 1), 5), (("a", "nope"), 1), (("zz",), None), (("a", "b", "c"), 2)]
)
def test_lines_of_keys(path: tuple[str | int, ...], line: int | None) -> None:
    assert key_line("a:\n  b: 1\n  l:\n    - x\n    - y\n", path) == line


plain_text = st.text(alphabet=st.characters(codec="ascii", exclude_characters="$"), max_size=8)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | plain_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_text, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(plain_text, json_like, max_size=5))
def test_what_omegaconf_writes_comes_back(tree: dict[str, Any]) -> None:
    assert parse_document(OmegaConf.to_yaml(OmegaConf.create(tree)), "t") == tree


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_gives_a_mapping_or_a_config_error(text: str) -> None:
    try:
        result: object = parse_document(text, "t")
    except ConfigError as error:
        result = str(error)
    assert isinstance(result, dict) or str(result).startswith("t: ")


def test_a_long_document_is_refused_before_it_is_built() -> None:
    started = time.monotonic()
    with pytest.raises(ConfigFileError, match=r"^x: it holds more than 200000 values.* Is it a dataset\?$"):
        parse_document("l:\n" + "- {a: 1, b: [1, 2]}\n" * 150_000, "x")
    assert time.monotonic() - started < 30
