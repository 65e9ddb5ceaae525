"""The build context of a server's own Dockerfile."""

from __future__ import annotations

from pathlib import Path

import pytest

from gym_compose.engine.docker.context import context_files
from gym_compose.wire.errors import InvalidInputError


def made(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    return directory


def paths(directory: Path) -> list[str]:
    return [file.path for file in context_files(directory)]


def test_everything_is_in_it_hidden_files_too(tmp_path: Path) -> None:
    made(tmp_path, "Dockerfile", "app.pl", ".settings", "tests/t.pl", "data/rows.jsonl")
    assert paths(tmp_path) == [".settings", "Dockerfile", "app.pl", "data/rows.jsonl", "tests/t.pl"]


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ("# a comment\n\n*.md\ndata\n", ["app.pl", "lib/a.pl"]),
        ("*\n!app.pl\n", ["app.pl"]),
        ("**/*.pl\n", ["data/x", "notes.md"]),
        ("Dockerfile\nlib/\ndata/*\n", ["app.pl", "notes.md"]),
    ],
)
def test_dockerignore_leaves_out_and_the_dockerfile_stays(tmp_path: Path, ignore: str, left: list[str]) -> None:
    made(tmp_path, "Dockerfile", "app.pl", "notes.md", "lib/a.pl", "data/x")
    (tmp_path / ".dockerignore").write_text(ignore)
    assert [path for path in paths(tmp_path) if path not in ("Dockerfile", ".dockerignore")] == left
    assert "Dockerfile" in paths(tmp_path)


def test_links_and_modes(tmp_path: Path) -> None:
    outside = made(tmp_path / "outside", "shared.pl")
    inside = made(tmp_path / "server", "Dockerfile", "run.sh")
    (inside / "run.sh").chmod(0o755)
    (inside / "shared.pl").symlink_to(outside / "shared.pl")
    assert {file.path: file.executable for file in context_files(inside)} == {"Dockerfile": False, "run.sh": True, "shared.pl": False}
    (inside / "tree").symlink_to(outside)
    with pytest.raises(InvalidInputError, match=r"server/tree: is a link to a directory"):
        context_files(inside)
