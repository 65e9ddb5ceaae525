from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from gym_compose.project import assets
from gym_compose.wire.errors import PrerequisiteError


def test_a_checkout_is_found_at_the_root_of_the_repository() -> None:
    assert assets.root() == Path(__file__).resolve().parents[3]


def test_a_wheel_has_the_trees_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "gym_compose"
    for tree in assets.TREES:
        (package / "_assets" / tree).mkdir(parents=True)
    monkeypatch.setattr(assets, "package", lambda: package)
    assert assets.root() == package / "_assets"


def test_an_installation_without_its_trees_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gym_compose" / "_assets" / "servers").mkdir(parents=True)
    monkeypatch.setattr(assets, "package", lambda: tmp_path / "gym_compose")
    with pytest.raises(PrerequisiteError, match="images, compose, configs"):
        assets.root()


def test_the_packages_own_sources_are_listed_once_sorted_and_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gym_compose"
    for name in (
        "b.py",
        "a.py",
        "wire/names.py",
        "wire/__pycache__/names.cpython-311.pyc",
        "_assets/servers/x/app.py",
        "notes.md",
        "py.typed",
    ):
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    monkeypatch.setattr(assets, "package", lambda: package)
    files = assets.package_files()
    assert [file.path for file in files] == ["gym_compose/a.py", "gym_compose/b.py", "gym_compose/py.typed", "gym_compose/wire/names.py"]
    assert files[0].sha256 == hashlib.sha256(b"a.py").hexdigest()
    assert files[0].host_path == str(package / "a.py")


def test_the_running_package_lists_its_own_modules() -> None:
    assert "gym_compose/project/assets.py" in {file.path for file in assets.package_files()}


def test_git_ignores_nothing_that_ships() -> None:
    # `build/` in .gitignore once hid images/build: a clone had no Dockerfile for it, a checkout with uncommitted files did.
    root = Path(__file__).resolve().parents[3]
    if shutil.which("git") is None or not (root / ".git").exists():
        pytest.skip("no clone")
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "--", *assets.TREES, "gym_compose", ":!*.pyc", ":!*.jsonl"]
    assert subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout == ""
