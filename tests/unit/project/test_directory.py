from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from gym_compose.project.directory import ProjectDirectory, ProjectState, find_project, projects_under, write_file
from gym_compose.project.errors import ProjectBusyError, ProjectNotFoundError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError

STATE = ProjectState(project="p", engine="docker", gym_compose="0.1.0", head_port=11000)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_is_for_the_caller_only_and_ignored_by_git_under_any_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        directory = ProjectDirectory.under(tmp_path, "p")
        directory.create()
        directory.create()
    finally:
        os.umask(old)
    assert mode(directory.path) == 0o700
    assert mode(directory.path.parent) == 0o700
    assert (directory.path / ".gitignore").read_text() == "*\n"


def test_a_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / ".gym").write_text("a file")
    with pytest.raises(PrerequisiteError) as caught:
        ProjectDirectory.under(tmp_path, "p").create()
    assert ".gym/p" in str(caught.value)


def test_state_comes_back_as_written(tmp_path: Path) -> None:
    directory = ProjectDirectory.under(tmp_path, "p")
    assert directory.read_state() is None
    assert not directory.exists
    directory.write_state(STATE)
    assert directory.exists
    assert directory.read_state() == STATE


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"project": "p"}', orjson.dumps({**STATE.model_dump(), "later": 1})])
def test_a_state_that_is_not_ours_is_an_error_that_says_what_to_do(tmp_path: Path, text: bytes) -> None:
    directory = ProjectDirectory.under(tmp_path, "p")
    directory.write_state(STATE)
    directory.state_file.write_bytes(text)
    with pytest.raises(InvalidInputError, match="gym compose -p p down"):
        directory.read_state()


def test_the_session_key_is_made_once_and_readable_by_the_caller_only(tmp_path: Path) -> None:
    directory = ProjectDirectory.under(tmp_path, "p")
    key = directory.session_key()
    assert len(key) == 64
    assert directory.session_key(token="other") == key
    assert mode(directory.session_key_file) == 0o600
    assert ProjectDirectory.under(tmp_path, "q").session_key() != key


def test_two_commands_do_not_hold_one_project(tmp_path: Path) -> None:
    directory = ProjectDirectory.under(tmp_path, "p")
    with directory.lock(Deadline.after(0)), pytest.raises(ProjectBusyError, match="project p"), directory.lock(Deadline.after(0)):
        pytest.fail("the lock was given twice")
    with directory.lock(Deadline.after(0)):
        assert (directory.path / ".lock").exists()


def test_the_lock_waits_no_longer_than_its_deadline(tmp_path: Path) -> None:
    directory = ProjectDirectory.under(tmp_path, "p")
    begun = time.monotonic()
    with directory.lock(Deadline.after(0)), pytest.raises(ProjectBusyError), directory.lock(Deadline.after(0.3)):
        pytest.fail("the lock was given twice")
    assert 0.3 <= time.monotonic() - begun < 5


def test_projects_are_found_by_name_or_when_there_is_only_one(tmp_path: Path) -> None:
    with pytest.raises(ProjectNotFoundError, match="no project here"):
        find_project(tmp_path, None)
    ProjectDirectory.under(tmp_path, "b").write_state(STATE)
    assert find_project(tmp_path, None).project == "b"
    ProjectDirectory.under(tmp_path, "a").write_state(STATE)
    ProjectDirectory.under(tmp_path, "unwritten").create()
    assert [directory.project for directory in projects_under(tmp_path)] == ["a", "b"]
    assert find_project(tmp_path, "a").project == "a"
    with pytest.raises(ProjectNotFoundError, match="a, b"):
        find_project(tmp_path, None)
    with pytest.raises(ProjectNotFoundError, match="'c'"):
        find_project(tmp_path, "c")


def test_of_several_projects_the_one_that_was_started_and_not_stopped_is_meant(tmp_path: Path) -> None:
    stopped = STATE.model_copy(update={"head_port": None})
    for name, state in (("a", stopped), ("b", STATE.model_copy(update={"head_port": 9})), ("c", stopped)):
        ProjectDirectory.under(tmp_path, name).write_state(state)
    assert find_project(tmp_path, None).project == "b"
    ProjectDirectory.under(tmp_path, "b").write_state(stopped)
    with pytest.raises(ProjectNotFoundError, match="several projects here"):
        find_project(tmp_path, None)


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file.json"
    write_file(file, b"one")
    write_file(file, b"two", mode=0o600)
    assert file.read_bytes() == b"two"
    assert mode(file) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["file.json"]


def test_a_file_that_cannot_be_written_is_named_and_the_rest_cleaned_up(tmp_path: Path) -> None:
    (tmp_path / "file.json").mkdir()
    (tmp_path / "file.json" / "inside").touch()
    with pytest.raises(PrerequisiteError, match=r"file\.json"):
        write_file(tmp_path / "file.json", b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_project_of_another_user_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ProjectDirectory.under(tmp_path, "p")
    directory.write_state(STATE)

    def refuse(path: Path, *_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    for method in ("is_file", "read_bytes", "read_text"):
        monkeypatch.setattr(Path, method, refuse)
    looks: list[Callable[[], object]] = [lambda: directory.exists, directory.read_state, directory.read_session_key]
    for look in looks:
        with pytest.raises(PrerequisiteError, match="belongs to another user"):
            look()
