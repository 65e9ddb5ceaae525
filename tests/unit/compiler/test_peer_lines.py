"""What a NeMo Gym server asks for beyond NeMo Gym itself."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler.errors import SourceError
from gym_compose.compiler.peer_lines import PeerLines, parse_lock, peer_lines
from gym_compose.config.model import ClassFlags, ServerManifest, ServerSource, SourceFile

LOCK = {"numpy": "2.5.5", "pillow": "13.0.0", "ray": "2.60.0", "scikit-learn": "1.9", "pre": "2.0.0a3"}


def source(*lines: str, **changes: Any) -> ServerSource:
    values: dict[str, Any] = {
        "server_type": "resources_servers",
        "implementation": "math",
        "directory": "/site/resources_servers/math",
        "origin": "wheel",
        "runtime": "nemo-gym",
        "requirement_lines": lines,
        "files": tuple(SourceFile(f"{name}/setup.py", "1" * 64, 1) for name in ("a", "tool", "pocketshell")),
        "flags": ClassFlags(),
        "manifest": ServerManifest(),
    }
    return ServerSource(**{**values, **changes})


def needs(*lines: str, **changes: Any) -> PeerLines:
    return peer_lines("m", source(*lines, **changes), LOCK, "3.13.14")[0]


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("numpy", False),
        ("NumPy>=1.26", False),
        ("scikit_learn", False),
        ("pre>=1", False),  # a pre-release that is there meets what asks for less
        ("numpy==2.2.6", True),
        ("tiktoken", True),
        ("ray[default]", True),  # what an extra brings in is not known from the lock
        ("numpy>=1; python_version < '3.12'", False),
        ("tiktoken; sys_platform == 'win32'", False),
        ("tiktoken; python_full_version >= '3.13.10'", True),
        ("tiktoken; sys_platform == 'linux'", True),
        ("x @ https://files.example/x-1-py3-none-any.whl", True),
        ("numpy @ https://files.example/numpy-1-py3-none-any.whl", True),
    ],
)
def test_a_line_that_the_runtime_meets_makes_no_layer(line: str, stays: bool) -> None:
    assert needs(line).lines == ((line,) if stays else ())


def test_order_and_repeats_do_not_matter() -> None:
    assert needs("tiktoken", "jiwer>=3", "numpy") == needs("jiwer>=3", "tiktoken", "tiktoken")


def test_extras_overrides_and_local_packages() -> None:
    found = needs("-e ./pocketshell[pcre]", "./tool", extras=("dev", "sandbox"), overrides=("b==1", "a==1"))
    assert found == PeerLines((), ("sandbox",), ("a==1", "b==1"), (("pocketshell", "[pcre]"), ("tool", "")))
    assert found
    assert not needs("numpy", extras=("dev",))


def test_a_contradiction_is_noted() -> None:
    _, notes = peer_lines("m", source("pillow==12.3.0", "numpy"), LOCK, "3.13.14")
    assert notes == ("pillow==12.3.0 contradicts the runtime's pillow 13.0.0: both are resolved together in one environment",)


def test_without_a_lock_every_line_stays() -> None:
    assert peer_lines("m", source("numpy"), {}, "3.13.14")[0].lines == ("numpy",)


@pytest.mark.parametrize(
    "line",
    [
        "nemo-usersim @ git+https://host.example/u.git@a5f",
        "tau2[knowledge] @ git+https://host.example/u@team/branch",
        "git+https://host.example/u.git#egg=u",
        "-e git+https://host.example/u.git#egg=u&subdirectory=x",
    ],
)
def test_a_git_repository_is_left_to_the_build(line: str) -> None:
    assert needs(line) == PeerLines((line,))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nemo-usersim @ hg+https://host.example/u@a5f", "have git only"),
        ("svn+https://host.example/u#egg=u", "have git only"),
        ("-e ../../benchmarks/automationbench", "outside of the server's directory"),
        ("--extra-index-url https://host.example/simple/", "is an option"),
        ("-c constraints.txt", "names constraints"),
        ("-e .", "the server's own directory"),
        (".[dev]", "the server's own directory"),
        ("/opt/x", "is a path"),
        ("~/x", "is a path"),
        ("./gone", "a directory that is not in"),
        ("u @ git+https://host.example/${GIT_TOKEN}/u", "needs the variable GIT_TOKEN"),
        ("x @ file:///tmp/x.whl", "names a file"),
        ("two words", "is none"),
        ("./", "the server's own directory"),
    ],
)
def test_a_line_that_no_build_can_install_is_refused_with_the_reason(line: str, says: str) -> None:
    with pytest.raises(SourceError, match=says) as caught:
        needs(line)
    assert "instance m" in str(caught.value)
    assert line in str(caught.value)


def test_a_password_in_a_line_that_is_refused_is_not_shown() -> None:
    with pytest.raises(SourceError) as caught:
        needs("--extra-index-url https://me:MARKER-secret@host.example/simple")
    assert "MARKER" not in str(caught.value)
    assert "host.example/simple" in str(caught.value)


def test_hashes_stay_with_their_line() -> None:
    line = "tiktoken==0.9.0  --hash=sha256:aa --hash sha256:bb"
    assert needs(line, "numpy==2.5.5 --hash=sha256:cc").lines == (line,)


@pytest.mark.parametrize(
    "url", ["https://host.example/x-1.tar.bz2", "https://host.example/x-1.whl?v=2#sha256=aa", "http://host.example/x.tgz"]
)
def test_an_archive_may_be_named_by_its_url_alone(url: str) -> None:
    assert needs(url).lines == (url,)


def test_an_override_of_what_the_runtime_has_makes_a_layer() -> None:
    found, notes = peer_lines("m", source(overrides=("numpy==1.26.4", "pillow>=12", "other==1")), LOCK, "3.13.14")
    assert found.lines == ("numpy==1.26.4",)
    assert notes == ("numpy==1.26.4 overrides the runtime's numpy 2.5.5: all are resolved together in one environment",)
    assert not needs(overrides=("numpy; sys_platform == 'never'",))


def test_an_override_that_is_none_is_refused() -> None:
    with pytest.raises(SourceError, match="outside of the server's directory"):
        needs("tiktoken", overrides=("-e ../x",))


def test_a_source_that_is_no_index_is_refused() -> None:
    with pytest.raises(SourceError, match="may be a stranger's"):
        needs("human-eval-infilling", unindexed=(("human-eval-infilling", "[tool.uv.sources] takes it from git x"),))


def test_parse_lock() -> None:
    text = "# heading\nA.b_C==1.2\nray[default]==2.60.0\nx==1 ; python_version > '3'\nnot a pin\ny>=2\n"
    assert parse_lock(text) == {"a-b-c": "1.2", "ray": "2.60.0", "x": "1"}


@given(st.lists(st.sampled_from(["numpy", "tiktoken", "jiwer>=3", "pillow==12.3.0", "-e ./a", "numpy==2.5.5"])))
def test_the_same_lines_in_any_order_are_the_same_needs(lines: list[str]) -> None:
    assert needs(*lines) == needs(*reversed(lines), *lines)


@given(st.text(max_size=40))
def test_any_text_is_a_line_or_refused(line: str) -> None:
    with contextlib.suppress(SourceError):
        peer_lines("m", source(line), LOCK, "3.13.14")
