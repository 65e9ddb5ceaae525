"""The parts of the process engine that start nothing: /proc lines, the environment that passes, requirement lines, growing files."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler.deployment import Image
from gym_compose.engine.errors import RequirementsError
from gym_compose.engine.process import proc
from gym_compose.engine.process.engine import requirement_lines
from gym_compose.engine.process.environment import MARK_VARIABLE, server_environment
from gym_compose.engine.process.logs import LogTail
from gym_compose.engine.process.ports import holder_text, require_free
from gym_compose.engine.process.requirements import RequirementSets, own_constraints, set_key, unsatisfied
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.settings import Settings


@given(name=st.text(st.characters(codec="utf-8"), max_size=15))
def test_a_process_may_be_called_anything(name: str) -> None:
    found = proc.parse_stat(f"42 ({name}) S 1 40 41 " + " ".join(str(number) for number in range(7, 53)))
    assert (found.pid, found.group, found.session, found.start_ticks, found.ended) == (42, 40, 41, 22, False)


def test_a_zombie_has_ended() -> None:
    assert proc.parse_stat("42 (x) Z 1 40 41 " + " ".join(["0"] * 46)).ended


def test_this_process_is_known() -> None:
    found = proc.facts(os.getpid())
    assert found is not None
    assert not found.ended
    assert found.resident_bytes > 1_000_000
    assert proc.facts(2**22 + 5) is None
    assert proc.variable(2**22 + 5, "PATH") is None


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("PATH", True),
        ("HOME", True),
        ("LC_ALL", True),
        ("HF_HOME", True),
        ("GYM_COMPOSE_LOG", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("NEMO_GYM_EXTRA_ROOTS", True),
        ("HF_TOKEN", False),
        ("OPENAI_API_KEY", False),
        ("NEMO_GYM_SECRET", False),
        ("GYM_COMPOSE_API_KEY", False),
        ("AWS_PROFILE", False),
        ("NEMO_GYM_CONFIG_DICT", False),
        ("NEMO_GYM_CONFIG_PATH", False),
        ("PYTHONHOME", False),
        ("OTHER", False),
    ],
)
def test_what_passes_from_the_host(name: str, passes: bool) -> None:
    assert (name in server_environment({name: "x"}, (), python_path=(), mark="m")) is passes


def test_the_configs_environment_goes_before_the_hosts_and_the_path_is_joined() -> None:
    made = server_environment(
        {"HOME": "/h", "PYTHONPATH": "/a:/b", "TOKENIZERS_PARALLELISM": "true"},
        (("HOME", "/other"), ("KEY", "1")),
        python_path=["/s"],
        mark="m",
    )
    assert made == {
        "HOME": "/other",
        "KEY": "1",
        "PYTHONPATH": "/s:/a:/b",
        "TOKENIZERS_PARALLELISM": "true",
        "PYTHONUNBUFFERED": "1",
        MARK_VARIABLE: "m",
    }
    assert server_environment({}, (), python_path=(), mark="m")["TOKENIZERS_PARALLELISM"] == "false"


VERSIONS = {"pydantic": "2.10.1", "beta": "3.0b1"}


@pytest.mark.parametrize(
    ("line", "satisfied"),
    [
        ("pydantic", True),
        ("pydantic>=2.10,<3", True),
        ("pydantic>=2.11", False),
        ("Pydantic==2.10.1", True),
        ("beta>=2", True),
        ("missing", False),
        ("missing; python_version < '3'", True),
        ("pydantic; python_version >= '3'", True),
        ("pydantic @ https://example.invalid/x.whl", False),
        ("-e .", False),
        ("not a requirement !", False),
    ],
)
def test_what_this_interpreter_satisfies(line: str, satisfied: bool) -> None:
    assert (unsatisfied([line], lambda name: VERSIONS.get(name.lower())) == []) is satisfied


def test_extras_count() -> None:
    assert unsatisfied(["hypothesis[no-such-extra]"]) == []
    # numpy may or may not be here; pandas certainly decides with it.
    missing = unsatisfied(["hypothesis[pandas]"])
    assert (missing == []) is (unsatisfied(["pandas"]) == [])


def test_a_set_is_named_by_its_lines_in_any_order() -> None:
    assert set_key(["a", "b"]) == set_key(["b", "a"]) != set_key(["a"])


def test_only_requirement_images_have_lines() -> None:
    assert requirement_lines(Image("n", "k", "requirements", (("requirements", "a==1\n\nb"),))) == ("a==1", "b")
    assert requirement_lines(Image("n", "k", "server", (("requirements", "a"),))) == ()


def test_own_constraints_are_exact_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "gym_compose.engine.process.requirements.metadata.requires"
    monkeypatch.setattr(module, lambda _: ["pydantic>=2", "no-such-thing", "pytest; extra == 'dev'"])
    assert own_constraints() == [f"pydantic=={metadata.version('pydantic')}"]
    monkeypatch.setattr(module, lambda _: None)
    assert own_constraints() == []


def fake_python(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_set_is_installed_once_and_a_failure_shows_the_end_of_the_output(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    # The installer is a script: it makes the target as pip does, counts its calls and checks that it was given both files.
    counter = tmp_path / "calls"
    good = fake_python(
        tmp_path / "good",
        f'echo "$@" >> {counter}\nwhile [ "$1" != --target ]; do shift; done\nmkdir -p "$2/made"\ncp "$4" "$2/wanted"; test -f "$6"',
    )
    sets = RequirementSets(environ, Settings(), good)
    lines = ["gym-compose-nowhere==1"]
    said: list[str] = []
    deadline = Deadline.after(30, "a test")
    assert sets.directory(lines) is None
    assert sets.install(lines, "set", deadline, said.append)
    assert not sets.install(lines, "set", deadline, said.append)
    made = sets.directory(lines)
    assert made is not None
    assert (made / "wanted").read_text() == "gym-compose-nowhere==1\n"
    assert len(counter.read_text().splitlines()) == len(said) == 1
    bad = RequirementSets(environ, Settings(), fake_python(tmp_path / "bad", "echo no matching distribution >&2; exit 1"))
    with pytest.raises(RequirementsError, match="gym-compose-elsewhere") as caught:
        bad.install(["gym-compose-elsewhere"], "set", deadline, said.append)
    assert caught.value.details == ("no matching distribution",)
    assert bad.directory(["gym-compose-elsewhere"]) is None
    assert [entry.name for entry in sets.root.iterdir() if entry.is_dir()] == [made.name]
    assert not sets.install(["packaging"], "set", deadline, said.append)


def test_a_growing_file_is_read_on_and_a_new_one_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LogTail(path)
    assert reader.read() == []
    path.write_bytes(b"one\r\ntwo\nthr")
    assert reader.read() == ["one", "two"]
    with path.open("ab") as handle:
        handle.write(b"ee\n\xff\n")
    assert reader.read() == ["three", "\ufffd"]
    path.rename(tmp_path / "old")
    path.write_bytes(b"new\nend")
    assert reader.read() == ["new"]
    assert reader.rest() == ["end"]
    assert reader.rest() == []
    path.write_bytes(b"x\n")
    assert reader.read() == ["x"]


def test_a_free_port_is_free() -> None:
    require_free("one", "127.0.0.1", 0)
    assert holder_text(1) == "" or sys.platform == "linux"
