from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler import CompileError, OutputFile, compile, render, write
from gym_compose.wire.errors import PrerequisiteError


def tree(directory: Path) -> dict[str, bytes]:
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_the_directory_is_the_callers_alone_and_ignored_by_git(tmp_path: Path) -> None:
    directory = tmp_path / ".gym" / "p"
    write([OutputFile("compose.yaml", b"x")], directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert tree(directory) == {".gitignore": b"*\n", "compose.yaml": b"x"}
    assert (directory / "head" / "published").is_dir()


def test_modes_are_exact_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write([OutputFile("slices/a/public.json", b"x"), OutputFile("slices/a/secret.json", b"y", mode=0o400)], tmp_path / "p")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "p/slices/a/public.json").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "p/slices/a/secret.json").stat().st_mode) == 0o400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_secret_files_are_given_to_the_uid_that_runs_the_server(tmp_path: Path) -> None:
    write([OutputFile("slices/a/secret.json", b"y", mode=0o400, owner=(10001, 10001))], tmp_path)
    status = (tmp_path / "slices/a/secret.json").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (10001, 10001, 0o400)


def test_what_is_right_already_is_left_alone_and_a_secret_can_be_replaced(tmp_path: Path) -> None:
    file = OutputFile("slices/a/secret.json", b"y", mode=0o400)
    write([file], tmp_path)
    inode = (tmp_path / file.path).stat().st_ino
    write([file], tmp_path)
    assert (tmp_path / file.path).stat().st_ino == inode
    write([OutputFile("slices/a/secret.json", b"z", mode=0o400)], tmp_path)
    assert (tmp_path / file.path).read_bytes() == b"z"


def test_what_earlier_compiles_left_goes_and_what_others_keep_stays(tmp_path: Path) -> None:
    write(
        [OutputFile("slices/old/public.json", b"x"), OutputFile("images/old-1/Dockerfile", b"x"), OutputFile("compose.yaml", b"x")],
        tmp_path,
    )
    for path in ("runs/r/request.json", "state.json", "session.key", "head/published/addresses.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"kept")
    write([OutputFile("slices/new/public.json", b"x")], tmp_path)
    assert set(tree(tmp_path)) == {
        ".gitignore", "slices/new/public.json", "runs/r/request.json", "state.json", "session.key", "head/published/addresses.json",
    }  # fmt: skip
    assert not (tmp_path / "slices/old").exists()
    assert not (tmp_path / "images/old-1").exists()


def test_a_context_file_is_copied_with_its_executable_bit(tmp_path: Path) -> None:
    source = tmp_path / "run.sh"
    source.write_bytes(b"#!/bin/sh\n")
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    write([OutputFile("images/a-1/run.sh", host_path=str(source), sha256=digest, mode=0o755)], tmp_path / "p")
    assert os.access(tmp_path / "p/images/a-1/run.sh", os.X_OK)


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_file_that_changed_since_it_was_read_is_an_error_and_leaves_nothing_half_written(change: str, tmp_path: Path) -> None:
    source = tmp_path / "app.py"
    source.write_bytes(b"new")
    if change == "delete":
        source.unlink()
    file = OutputFile("images/a-1/app.py", host_path=str(source), sha256=hashlib.sha256(b"old").hexdigest())
    with pytest.raises(CompileError, match=r"app\.py"):
        write([file], tmp_path / "p")
    assert tree(tmp_path / "p") == {".gitignore": b"*\n"}


@pytest.mark.parametrize(
    ("code", "says"),
    [(errno.ENOSPC, "no space left"), (errno.EDQUOT, "no space left"), (errno.EACCES, "no right"), (errno.EIO, "cannot write")],
)
def test_a_write_that_fails_is_one_clear_error_and_keeps_the_old_file(code: int, says: str, tmp_path: Path, monkeypatch: Any) -> None:
    write([OutputFile("compose.yaml", b"old")], tmp_path)

    def fail(descriptor: int, mode: int) -> None:
        raise OSError(code, os.strerror(code), None)

    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(PrerequisiteError, match=says) as caught:
        write([OutputFile("compose.yaml", b"new")], tmp_path)
    assert caught.value.exit_code == 4
    assert tree(tmp_path) == {".gitignore": b"*\n", "compose.yaml": b"old"}


def test_a_whole_deployment_is_written_and_written_again(
    tmp_path: Path, four: Any, make_config: Any, make_sources: Any, make_options: Any
) -> None:
    for kind, name in (
        ("resources_servers", "math"),
        ("responses_api_agents", "simple_agent"),
        ("responses_api_models", "openai_model"),
        ("environment_servers", "legacy_agent"),
    ):
        directory = tmp_path / "src" / kind / name
        directory.mkdir(parents=True)
        (directory / "app.py").write_text(f"/src/{kind}/{name}")
    config = make_config(four)
    sources = {
        key: type(source)(**{**source.__dict__, "directory": str(tmp_path / source.directory[1:])})
        for key, source in make_sources(config).items()
    }
    package = []
    for file in make_options().package_files:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_text(file.path)
        package.append(type(file)(file.path, file.sha256, str(tmp_path / file.path)))
    options = make_options(package_files=tuple(package), run_as=(os.getuid(), os.getgid()))
    files = render(compile(config, sources, options), options.assets, str(tmp_path / "p"))
    write(files, tmp_path / "p")
    first = tree(tmp_path / "p")
    assert {file.path for file in files} | {".gitignore"} == set(first)
    write(files, tmp_path / "p")
    assert tree(tmp_path / "p") == first
