from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gym_compose.testing.leftovers import Leftovers, find_leftovers, our_processes


def process(proc: Path, pid: str, argv: Sequence[str], cgroup: str = "12:cpu:/user.slice") -> None:
    entry = proc / pid
    entry.mkdir(parents=True)
    (entry / "cmdline").write_bytes(b"\0".join(text.encode() for text in argv) + b"\0")
    (entry / "cgroup").write_text(cgroup)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    launch = ["python", "-m", "gym_compose.serving.launch", "--slice"]
    process(tmp_path, "20", [*launch, "/w/.gym/one/slices/a/public.json"])
    process(tmp_path, "3", ["python", "-m", "gym_compose.controller", "--document", "/w/.gym/two/head/head.json"])
    process(tmp_path, "21", [*launch, "/run/gym/slice.json"], cgroup="4:memory:/docker/0123abcd")
    process(tmp_path, "22", ["vim", "gym_compose.serving.launch.txt"])
    process(tmp_path, "23", [])
    (tmp_path / "24").mkdir()
    (tmp_path / "meminfo").touch()
    return tmp_path


def test_our_processes_are_those_that_run_our_modules_outside_containers(proc: Path) -> None:
    assert [pid for pid, _ in our_processes(proc=proc)] == [3, 20]
    assert [pid for pid, _ in our_processes("one", proc=proc)] == [20]
    assert list(our_processes("three", proc=proc)) == []


def test_what_is_left_is_counted_and_named() -> None:
    nothing = Leftovers()
    assert not nothing
    assert str(nothing) == "nothing is left"
    some = Leftovers(containers=("a-1",), networks=("a_servers",), processes=("7 python",))
    assert some
    assert some.count == 3
    assert str(some) == "3 left: container a-1; network a_servers; process 7 python"


def test_without_docker_only_processes_are_looked_for(tmp_path: Path) -> None:
    found = find_leftovers("no-such-project", environ={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert found == Leftovers()
