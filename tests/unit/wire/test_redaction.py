"""Secrets never survive masking, whatever text they stand in; text without secrets does."""

from __future__ import annotations

import json
import shlex
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.wire.redaction import MIN_LENGTH, Redactor
from gym_compose.wire.slice import MASK

VALUES = st.text(min_size=MIN_LENGTH, max_size=40).filter(lambda text: MASK not in text and text.strip("*"))


@given(value=VALUES, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_value_is_gone_from_any_text(value: str, before: str, after: str) -> None:
    assert value not in Redactor([value]).text(before + value + after).replace(MASK, "")


@given(value=VALUES)
def test_a_known_value_is_gone_however_it_is_escaped(value: str) -> None:
    redactor = Redactor([value])
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False), shlex.quote(value), repr(value)):
        assert redactor.text(written).strip("'\"") == MASK
    if value.isprintable():
        for written in (quote(value, safe=""), quote(value), quote_plus(value)):
            assert redactor.text(written) == MASK


@given(values=st.lists(VALUES, max_size=4), text=st.text(max_size=80))
def test_masking_twice_changes_nothing(values: list[str], text: str) -> None:
    # A mask next to other text may itself make up a value of asterisks; such values are no secrets.
    redactor = Redactor(value for value in values if "*" not in value)
    once = redactor.text(text)
    assert redactor.text(once) == once


def test_a_value_inside_another_leaves_no_rest() -> None:
    assert Redactor(["secret", "secret-and-more"]).text("a secret-and-more b secret c") == f"a {MASK} b {MASK} c"


def test_short_values_are_left_alone() -> None:
    assert Redactor(["abcde"]).text("abcde") == "abcde"
    assert Redactor(["abcdef"]).text("abcdef") == MASK


def test_each_line_of_a_long_value_counts() -> None:
    key = "-----BEGIN KEY-----\nMIIEabcdefgh\nZZ\n-----END KEY-----"
    assert list(Redactor([key]).lines(["x MIIEabcdefgh y", "ZZ", key])) == [f"x {MASK} y", "ZZ", MASK]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key sk-proj-abcDEF123456", f"key {MASK}"),
        ("nvapi-AbC_123-xyz890", MASK),
        ("(hf_abcdefGHIJKL)", f"({MASK})"),
        ("ghp_0123456789abcdefABCDEF", MASK),
        ("github_pat_11ABCDEFG_abcdef", MASK),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
        ("Authorization: Bearer abc.def-ghi_jkl", f"Authorization: Bearer {MASK}"),
        ("authorization: basic dXNlcjpwYXNz", f"authorization: basic {MASK}"),
        ("https://user:pass@host/v1", f"https://{MASK}@host/v1"),
        ("https://token@host/v1", f"https://{MASK}@host/v1"),
        ("http://us%40er:p@ss@host:80/", f"http://{MASK}@host:80/"),
        ("redis://:p4ss@db:6379/0", f"redis://{MASK}@db:6379/0"),
        # No secrets:
        ("https://host/v1/@scope/package", "https://host/v1/@scope/package"),
        ("https://host/?q=a@b", "https://host/?q=a@b"),
        ("mail me@example.org", "mail me@example.org"),
        ("task-1234567890ab", "task-1234567890ab"),
        ("desk-1234567890ab", "desk-1234567890ab"),
        ("a risk-averse-policy-model", "a risk-averse-policy-model"),
        ("half_hf_", "half_hf_"),
        ("the bearer of news", "the bearer of news"),
        ("", ""),
    ],
)
def test_tokens_and_credentials_are_known_by_their_form(text: str, expected: str) -> None:
    assert Redactor().text(text) == expected


def test_a_wider_redactor_keeps_what_it_knew() -> None:
    wide = Redactor(["first-value"]).with_values(["second-value", "no"])
    assert wide.text("first-value second-value no") == f"{MASK} {MASK} no"
    assert wide.values == {"first-value", "second-value"}


def test_its_representation_shows_no_value() -> None:
    assert "first-value" not in repr(Redactor(["first-value"]))


@pytest.mark.parametrize("line", ["x" * 300_000, "a." * 150_000, "bearer " * 40_000, "a://" * 75_000, "a@" * 150_000])
def test_a_long_line_takes_time_by_its_length(line: str) -> None:
    started = time.process_time()
    assert Redactor(["a-known-value"]).text(line) == line
    assert time.process_time() - started < 5  # a second at most; by the square of the length it were minutes


def test_credentials_behind_a_long_word_are_found() -> None:
    assert Redactor().text(f"{'x' * 100}://user:pw@host") == f"{'x' * 100}://{MASK}@host"
