from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler.yaml_text import dump_compose, escape_dollar, quote

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def interpolate(value: Any) -> Any:
    """What compose's interpolation makes of text without variables: ``$$`` is ``$``; a single ``$`` is an error here."""
    if isinstance(value, str):
        assert not re.search(r"(?<!\$)\$(\$\$)*(?!\$)", value), value
        return value.replace("$$", "$")
    if isinstance(value, list):
        return [interpolate(item) for item in value]
    if isinstance(value, dict):
        return {key: interpolate(item) for key, item in value.items()}
    return value


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_what_compose_would_read_is_what_was_given(document: dict[str, Any]) -> None:
    assert interpolate(yaml.safe_load(dump_compose(document))) == document


@given(TEXT)
def test_a_quoted_string_is_one_line_of_ascii(text: str) -> None:
    quoted = quote(text)
    assert quoted.isascii()
    assert "\n" not in quoted
    assert yaml.safe_load(quoted) == text


@pytest.mark.parametrize(
    "text", ["no", "on", "1e3", "0o17", "12:30", ".5", "null", "~", "", "0x10", "2024-01-01", "<<", "=", "- a", "# x", "a: b"]
)
def test_text_that_yaml_would_take_for_something_else_stays_text(text: str) -> None:
    assert yaml.safe_load(dump_compose({"k": text})) == {"k": text}


@given(TEXT)
def test_every_dollar_is_doubled_and_nothing_else_changes(text: str) -> None:
    escaped = escape_dollar(text)
    assert escaped.replace("$$", "$") == text
    assert len(escaped) == len(text) + text.count("$")


def test_keys_are_sorted_whatever_order_they_came_in() -> None:
    assert dump_compose({"b": 1, "a": {"d": [], "c": {}}}) == dump_compose({"a": {"c": {}, "d": []}, "b": 1})


def test_the_heading_is_comment_lines() -> None:
    assert dump_compose({"a": 1}, heading="x\n\ny").startswith("# x\n#\n# y\n")


@pytest.mark.parametrize("value", ["\ud800", float("inf"), float("nan")])
def test_what_no_file_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        dump_compose({"k": value})  # type: ignore[dict-item]
