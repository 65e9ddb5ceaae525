"""Locks of requirement sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies

from gym_compose.compiler import compile
from gym_compose.compiler.assets import read_locks
from gym_compose.compiler.locks import lock_digest, lock_lines, lock_text
from gym_compose.compiler.render import build_text
from gym_compose.wire.errors import PrerequisiteError

LINES = {"requirement_lines": ("six>=1.16",)}


@pytest.fixture
def requirements(four: Any, make_config: Any, make_sources: Any, make_options: Any) -> Any:
    def make(**options: Any) -> tuple[Any, Any]:
        config = make_config(four)
        deployment = compile(config, make_sources(config, math=LINES), make_options(**options))
        return next(image for image in deployment.images if image.kind == "requirements"), deployment

    return make


def file_of(image: Any, path: str) -> str:
    content: bytes = next(file.content for file in image.context if file.path == path)
    return content.decode()


def test_a_lock_is_in_the_context_and_not_in_the_key(requirements: Any) -> None:
    free, _ = requirements()
    locked, deployment = requirements(locks={free.lock_name: "# asked\nsix==1.17.0\n"})
    assert (free.lock, file_of(free, "lock.txt")) == (None, "")
    assert (locked.name, locked.lock) == (free.name, "# asked\nsix==1.17.0\n")
    assert "six==1.17.0" in file_of(locked, "lock.txt")
    build = yaml.safe_load(build_text(deployment, None))["services"][f"requirements-{locked.key[:12]}"]["build"]
    assert build["labels"]["gym-compose.lock-sha256"] == lock_digest("six==1.17.0")
    assert build["args"]["GYM_RESOLVE"] is None


def test_a_password_in_a_line_is_not_in_the_lock() -> None:
    text = lock_text(["x @ git+https://me:MARKER-secret@host.example/x"], ["x==1"])
    assert "MARKER" not in text
    assert lock_lines(text) == ("x==1",)


def test_the_plan_says_whether_it_is_locked(requirements: Any) -> None:
    free, deployment = requirements()
    assert any(
        instance == "math" and f"keeps them in .gym/requirements.lock/{free.lock_name}.txt" in note for instance, note in deployment.notes
    )
    _, deployment = requirements(locks={free.lock_name: "six==1.17.0\n"})
    assert any(instance == "math" and "its packages are locked by" in note for instance, note in deployment.notes)


def test_another_recipe_of_ours_keeps_the_lock_and_other_pins_below_do_not(requirements: Any, make_options: Any) -> None:
    free, _ = requirements()
    texts = dict(make_options().assets)
    recipe, _ = requirements(assets={**texts, "images/requirements/Dockerfile": texts["images/requirements/Dockerfile"] + "# other\n"})
    assert (recipe.key != free.key, recipe.lock_name) == (True, free.lock_name)
    pins = "images/native/requirements.txt"
    below, _ = requirements(assets={**texts, pins: texts[pins] + "x==1\n"})
    assert below.lock_name != free.lock_name


def test_an_upgrade_and_a_lock_of_comments_alone_resolve(requirements: Any) -> None:
    free, _ = requirements()
    upgraded, _ = requirements(locks={free.lock_name: "six==1.17.0\n"}, upgrade=True)
    assert (upgraded.lock, upgraded.renew, file_of(upgraded, "lock.txt")) == (None, True, "")
    empty, _ = requirements(locks={free.lock_name: "# six==1.17.0\n"})
    assert empty == replace(free)


@given(strategies.lists(strategies.from_regex(r"[a-z][a-z0-9.-]{0,10}==[0-9.]{1,6}", fullmatch=True)))
def test_what_is_written_is_read(lines: list[str]) -> None:
    assert lock_lines(lock_text(["a>=1", "# odd"], lines)) == tuple(lines)


def test_locks_are_read_by_name_and_a_bad_one_is_named(tmp_path: Path) -> None:
    assert read_locks(tmp_path / "none") == {}
    (tmp_path / "requirements-0a.txt").write_text("six==1\n")
    assert read_locks(tmp_path) == {"requirements-0a": "six==1\n"}
    (tmp_path / "requirements-0b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(PrerequisiteError, match=r"requirements-0b\.txt: cannot read"):
        read_locks(tmp_path)
