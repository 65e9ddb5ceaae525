from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.project.naming import PROJECT_NAME, check_project_name, project_name, run_id
from gym_compose.wire.errors import UsageError

CWD = Path("/home/ada/work")


@pytest.mark.parametrize(
    ("paths", "stem"),
    [
        (["configs/quickstart.yaml"], "quickstart"),
        (["a/Math With.Dots.yaml", "b/x.yaml"], "math-with-dots"),
        (["a/___.yaml"], "gym"),
        ([], "gym"),
        (["/abs/" + "x" * 90 + ".yml"], "x" * 40),
    ],
)
def test_the_name_is_the_slug_of_the_first_stem_and_six_hex(paths: list[str], stem: str) -> None:
    assert re.fullmatch(re.escape(stem) + "-[0-9a-f]{6}", project_name(paths, CWD))


def test_the_name_depends_on_directory_and_paths_and_on_nothing_else() -> None:
    one = project_name(["a.yaml", "b.yaml"], CWD)
    assert one == project_name(["a.yaml", "b.yaml"], CWD)
    assert (
        len({one, project_name(["a.yaml"], CWD), project_name(["a.yaml", "b.yaml"], CWD / "x"), project_name(["a.yaml", "c.yaml"], CWD)})
        == 4
    )


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), max_size=4))
def test_every_made_name_is_one_that_compose_takes(paths: list[str]) -> None:
    assert check_project_name(project_name(paths, CWD))


@pytest.mark.parametrize("name", ["a", "0x", "a-b_c", "a" * 63])
def test_given_names_that_compose_takes_pass(name: str) -> None:
    assert check_project_name(name) == name
    assert PROJECT_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a b", "a.b", "ä", "a" * 64, "a\n"])
def test_given_names_that_compose_refuses_are_a_usage_error_that_quotes_them(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_project_name(name)
    assert repr(name) in str(caught.value)


def test_run_ids_sort_by_time() -> None:
    assert run_id(0, "abcd") == "19700101-000000-abcd"
    assert run_id(1_700_000_000, "zz") < run_id(1_700_000_001, "aa")
