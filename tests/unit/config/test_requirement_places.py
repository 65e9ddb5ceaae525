"""Where a requirement line stands, for messages; and what a Dockerfile declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from gym_compose.config.dockerfile import declared_arguments
from gym_compose.config.requirements import RequirementsError, requirement_lines, requirement_places
from gym_compose.wire.errors import InvalidInputError


def test_lines_of_a_text_file_and_of_those_it_includes(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("\nscipy\n")
    file = tmp_path / "requirements.txt"
    file.write_text("# a comment\nnemo-gym\n\nnumpy>=1 \\\n  ,<3  # joined\n-r more.txt\nlast")
    assert [(line, Path(place).name) for line, place in requirement_places(file)] == [
        ("nemo-gym", "requirements.txt:2"),
        ("numpy>=1    ,<3", "requirements.txt:4"),
        ("scipy", "more.txt:2"),
        ("last", "requirements.txt:7"),
    ]
    assert requirement_lines(file) == tuple(line for line, _ in requirement_places(file))


def test_dependencies_of_a_pyproject(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "x"\ndependencies = [\n  "numpy>=1",\n  "scipy",\n]\n')
    assert requirement_places(file) == (("numpy>=1", f"{file}:4"), ("scipy", f"{file}:5"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("FROM x\n", ()),
        ("ARG GYM_BASE\nFROM ${GYM_BASE}\n", ("GYM_BASE",)),
        ("arg B=1 A\n  ARG C=\n# ARG no\nRUN echo ARG no\nARG B\n", ("A", "B", "C")),
        ("ARG A \\\n  B=2\n", ("A", "B")),
    ],
)
def test_arguments_that_a_dockerfile_declares(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    assert declared_arguments(tmp_path / "Dockerfile") == names


def test_a_dockerfile_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="Dockerfile: cannot be read"):
        declared_arguments(tmp_path / "Dockerfile")


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xef\xbb\xbfnemo-gym\r\nsix\r\n")
    (tmp_path / "Dockerfile").write_bytes(b"\xef\xbb\xbfARG GYM_BASE\r\nFROM ${GYM_BASE}\r\n")
    assert requirement_lines(tmp_path / "requirements.txt") == ("nemo-gym", "six")
    assert declared_arguments(tmp_path / "Dockerfile") == ("GYM_BASE",)


def test_another_encoding_is_an_error_with_the_one_to_use(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("six\n".encode("utf-16"))
    with pytest.raises(RequirementsError, match=r"requirements\.txt: cannot be read: .*Save it as UTF-8"):
        requirement_lines(tmp_path / "requirements.txt")


@pytest.mark.parametrize("line", ["-r more.txt", "-rmore.txt", "--requirement=more.txt", "-r 'more.txt'", '-r "with space.txt"'])
def test_the_ways_to_include_a_file(tmp_path: Path, line: str) -> None:
    for name in ("more.txt", "with space.txt"):
        (tmp_path / name).write_text("six\n")
    (tmp_path / "requirements.txt").write_text(f"{line}\nnumpy\n")
    assert requirement_lines(tmp_path / "requirements.txt") == ("six", "numpy")


def test_a_circle_of_included_files_is_named_once(tmp_path: Path) -> None:
    directory = tmp_path / "math"
    directory.mkdir()
    file = directory / "requirements.txt"
    file.write_text("six\n-r ../math/requirements.txt\n")
    with pytest.raises(RequirementsError) as caught:
        requirement_lines(file)
    assert str(caught.value) == f"{file}:2: ../math/requirements.txt includes itself."


def test_who_includes_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("six\n-r gone.txt\n")
    with pytest.raises(RequirementsError) as caught:
        requirement_lines(file)
    assert str(caught.value) == f"{tmp_path}/gone.txt: cannot be read: No such file or directory ({file}:2 includes it)."
