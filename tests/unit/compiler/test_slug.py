from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler.errors import NameClashError
from gym_compose.compiler.slug import assign_names, repository, service_name, slug

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("math_server", "math-server"),
        ("Math", "math"),
        ("a.b", "a-b"),
        ("a b", "a-b"),
        ("_x_", "x"),
        ("a__b", "a--b"),
        ("x" * 59, "x" * 59),
    ],
)
def test_an_alias_is_the_name_in_lower_case_with_hyphens(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_long_names_that_differ_at_their_end_get_different_slugs() -> None:
    first, second = slug("x" * 70 + "a"), slug("x" * 70 + "b")
    assert first != second
    assert len(first) == len(second) == 59


@given(st.text())
def test_every_slug_is_a_dns_label_of_at_most_59_characters(name: str) -> None:
    assert LABEL.fullmatch(slug(name))


@given(st.text())
def test_every_service_name_is_of_composes_grammar(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9._-]+", service_name(name))


@given(st.text())
def test_every_repository_is_of_the_engines_grammar(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", repository(name))


@given(st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True))
def test_a_service_keeps_the_instances_name_where_compose_allows_it(name: str) -> None:
    assert service_name(name) == name


@pytest.mark.parametrize(
    ("names", "both"),
    [
        (["a_b", "a-b"], ("a_b", "a-b")),
        (["Math", "math"], ("Math", "math")),
        (["a b", "a-b"], ("a b", "a-b")),
        (["a", "a.gym"], ("a", "a.gym")),
        (["head"], ("the head server", "head")),
        (["HEAD"], ("the head server", "HEAD")),
        (["driver"], ("the driver", "driver")),
    ],
)
def test_names_that_would_meet_are_an_error_naming_both(names: list[str], both: tuple[str, str]) -> None:
    with pytest.raises(NameClashError) as caught:
        assign_names(names)
    assert all(repr(name) in str(caught.value) for name in both)
    assert caught.value.exit_code == 3


@given(st.lists(st.text(max_size=80), unique=True, max_size=6))
def test_assigned_names_never_meet(names: list[str]) -> None:
    try:
        assigned = assign_names(names)
    except NameClashError:
        return
    used = [name for found in assigned.values() for name in {found.service, found.alias}]
    assert len(used) == len(set(used))
    assert list(assigned) == names
