"""Locks after a build: what was printed, where it is kept, when an image is out of date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.deployment import Image
from gym_compose.compiler.locks import lock_digest, lock_lines
from gym_compose.engine.docker.locks import Locks, printed_lock
from gym_compose.wire.names import LABEL_LOCK

IMAGE = Image("gym-compose/requirements:1", "1", "requirements", (("requirements", "six>=1.16"),), lock_name="requirements-0a")
OUTPUT = ["#9 1.2 gym-compose-lock: six==1.17.0", "#9 1.2 gym-compose-locked: 1"]


def facts(number: str, **labels: str) -> dict[str, Any]:
    return {"Id": f"sha256:{number}", "Config": {"Labels": labels}}


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(tmp_path / ".gym" / "p", {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_only_a_whole_lock_counts() -> None:
    assert printed_lock(OUTPUT) == ("six==1.17.0",)
    assert printed_lock([*OUTPUT[:1], "#9 1.2 gym-compose-locked: 2"]) is None
    assert printed_lock(OUTPUT[:1]) is None
    assert printed_lock(["#9 CACHED"]) is None
    assert printed_lock(["#9 1.2 gym-compose-locked: 0"]) == ()


def test_what_a_build_printed_is_kept_beside_the_projects(locks: Locks, tmp_path: Path) -> None:
    file = locks.keep(IMAGE, facts("1"), ("six==1.17.0",))
    assert file == tmp_path / ".gym" / "requirements.lock" / "requirements-0a.txt"
    assert lock_lines(file.read_text()) == ("six==1.17.0",)
    assert "#   six>=1.16" in file.read_text()


def test_another_working_directory_gets_the_lock_of_an_image_that_is_there(locks: Locks, tmp_path: Path) -> None:
    locks.keep(IMAGE, facts("1"), ("six==1.17.0",))
    other = Locks(tmp_path / "elsewhere" / ".gym" / "p", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    file = other.keep(IMAGE, facts("1"), None)
    assert file is not None
    assert lock_lines(file.read_text()) == ("six==1.17.0",)
    assert other.keep(IMAGE, facts("2"), None) is None  # nobody of this user built it


def test_an_image_is_out_of_date_when_its_lock_is_another(locks: Locks) -> None:
    locked = replace(IMAGE, lock="# c\nsix==1.17.0\n")
    assert locks.holds(IMAGE, facts("1"))
    assert not locks.holds(locked, facts("1"))  # nobody knows what is in it
    assert locks.holds(locked, facts("1", **{LABEL_LOCK: lock_digest("six==1.17.0")}))
    locks.keep(IMAGE, facts("1"), ("six==1.17.0",))
    assert locks.holds(locked, facts("1"))
    assert not locks.holds(replace(IMAGE, lock="six==1.16.0\n"), facts("1"))
    assert not locks.holds(replace(IMAGE, renew=True), facts("1"))
