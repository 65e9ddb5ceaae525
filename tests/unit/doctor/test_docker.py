"""The checks of a Docker engine, on what a played one says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gym_compose.doctor.check import Check
from gym_compose.doctor.docker import Registry, base_check, debootstrap_lack, docker_checks
from gym_compose.doctor.host import Host
from gym_compose.engine.docker.api import NotFoundInDockerError
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.docker.facts import TRIAL_IMAGE, EngineFacts
from gym_compose.engine.errors import ComposeMissingError, DockerUnavailableError, EngineError
from gym_compose.wire.settings import Settings

INFO = {
    "ServerVersion": "29.1.3",
    "CgroupVersion": "2",
    "CgroupDriver": "systemd",
    "Driver": "overlay2",
    "DockerRootDir": "/nowhere/docker",
    "NCPU": 2,
    "MemTotal": 4 * 2**30,
}


@dataclass
class PlayedApi:
    """Answers from fields. ``registry`` and ``down`` are raised."""

    images: frozenset[str] = frozenset()
    registry: Exception | None = None
    down: Exception | None = None
    info_document: dict[str, Any] = field(default_factory=lambda: dict(INFO))
    removed: list[str] = field(default_factory=list)
    endpoint: Any = field(default_factory=lambda: SimpleNamespace(url="unix:///d.sock", source="the default socket"))

    def ping(self, _: Any) -> tuple[int, int]:
        if self.down is not None:
            raise self.down
        return (1, 52)

    def info(self, _: Any) -> dict[str, Any]:
        return self.info_document

    def image(self, name: str, _: Any) -> dict[str, Any] | None:
        return {"Id": name} if name in self.images else None

    def distribution(self, _reference: str, _deadline: Any) -> dict[str, Any]:
        if self.registry is not None:
            raise self.registry
        return {}

    def remove_image(self, name: str, _: Any) -> bool:
        self.removed.append(name)
        return True


@dataclass
class PlayedCompose:
    """``result`` is how a build ends."""

    result: Any = field(default_factory=lambda: SimpleNamespace(ok=True))
    missing: Exception | None = None
    built: list[str] = field(default_factory=list)

    def version(self, _: Any) -> tuple[int, int, int]:
        if self.missing is not None:
            raise self.missing
        return (2, 40, 3)

    def build(self, file: Path, service: str, _: Any) -> Any:
        assert service in file.read_text()
        self.built.append((file.parent / "Dockerfile").read_text())
        return self.result


def examined(tmp_path: Path, api: PlayedApi, compose: PlayedCompose | None = None, **settings: Any) -> dict[str, Check]:
    engine = cast(DockerEngine, SimpleNamespace(api=api, compose=compose or PlayedCompose()))
    host = Host({"PATH": str(tmp_path)}, tmp_path, tmp_path / "python")
    return {check.name: check for check in docker_checks(engine, host, Settings(**settings), lambda _: None)}


def test_an_engine_where_all_is_well(tmp_path: Path) -> None:
    api, compose = PlayedApi(), PlayedCompose()
    found = examined(tmp_path, api, compose)
    assert list(found) == ["Docker engine", "compose plugin", "builder", "disk for images", "base image", "registry"]
    said = found["Docker engine"].said
    for words in ("29.1.3 (API 1.52)", "unix:///d.sock", "cgroup v2 (systemd)", "overlay2", "4.0 GiB"):
        assert words in said
    assert found["compose plugin"].said == "2.40.3"
    assert found["builder"].said.startswith("BuildKit; an image of one file took ")
    assert "COPY --chmod" in compose.built[0]
    assert api.removed == [TRIAL_IMAGE]
    assert found["disk for images"].status == "warn"  # another file system than ours
    assert "will be pulled for it" in found["base image"].said
    assert found["registry"].status == "ok"


def test_an_engine_that_does_not_answer_is_the_only_finding(tmp_path: Path) -> None:
    found = examined(tmp_path, PlayedApi(down=DockerUnavailableError("not running", where="/d.sock", hint="Start it.")))
    assert found == {"Docker engine": Check("Docker engine", "fail", "/d.sock: not running", "Start it.", (), 4)}


def test_without_compose_nothing_is_built(tmp_path: Path) -> None:
    compose = PlayedCompose(missing=ComposeMissingError("no plugin", hint="Install it."))
    found = examined(tmp_path, PlayedApi(), compose)
    assert found["compose plugin"].status == "fail"
    assert "builder" not in found
    assert compose.built == []


def test_a_builder_that_does_not_build_gives_its_last_lines(tmp_path: Path) -> None:
    api = PlayedApi()
    compose = PlayedCompose(SimpleNamespace(ok=False, exit_code=17, tail=lambda count: ("no buildx",)))
    found = examined(tmp_path, api, compose)
    assert (found["builder"].status, found["builder"].details) == ("fail", ("no buildx",))
    assert "buildx" in (found["builder"].hint or "")
    assert api.removed == [TRIAL_IMAGE]


def test_a_base_that_is_there_needs_no_registry(tmp_path: Path) -> None:
    api = PlayedApi(registry=EngineError("no such host"), images=frozenset({"registry.test/python:3.13"}))
    found = examined(tmp_path, api, base_image="registry.test/python:3.13")
    assert found["base image"].said == "registry.test/python:3.13 is there"
    assert found["registry"].status == "warn"
    assert "registry.test/python:3.13: no such host" in found["registry"].said


def test_a_registry_that_answers_without_the_image_was_reached(tmp_path: Path) -> None:
    found = examined(tmp_path, PlayedApi(registry=NotFoundInDockerError("no manifest")), base_image="registry.test/none:1")
    assert found["registry"].status == "ok"
    assert found["registry"].said.endswith("it does not have it")
    assert found["base image"].status == "fail"


YES, NO = Registry("python:3.13-slim", True, True, "has it"), Registry("python:3.13-slim", False, False, "no such host")
ROOT_NEEDED = Check("base image", "fail", "root is needed")


@pytest.mark.parametrize(
    ("wanted", "registry", "local", "unmade", "status", "words"),
    [
        ("auto", YES, False, ROOT_NEEDED, "ok", "will be pulled"),
        ("auto", NO, True, ROOT_NEEDED, "ok", "will be made from python:3.13-slim"),
        ("auto", NO, False, None, "ok", "debootstrap"),
        ("auto", NO, False, ROOT_NEEDED, "fail", "root is needed"),
        ("pull", NO, False, None, "fail", "from no registry"),
        ("debootstrap", YES, True, None, "ok", "debootstrap"),
        ("debootstrap", YES, True, ROOT_NEEDED, "fail", "root is needed"),
    ],
)
def test_how_the_base_would_come(wanted: str, registry: Registry, local: bool, unmade: Check | None, status: str, words: str) -> None:
    check = base_check("gym-compose/base:1", wanted, registry, local=local, unmade=unmade)
    assert check.status == status
    assert words in check.said


def test_debootstrap_needs_root_and_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host({"PATH": str(tmp_path)}, tmp_path, tmp_path / "python")
    monkeypatch.setattr("gym_compose.doctor.docker.SBIN", str(tmp_path))
    ordinary = debootstrap_lack(host, "gym-compose/base:1", 1000)
    assert ordinary is not None
    assert (ordinary.hint or "").endswith("debootstrap.sh --import gym-compose/base:1")
    missing = debootstrap_lack(host, "gym-compose/base:1", 0)
    assert missing is not None
    assert "apt-get install" in (missing.hint or "")
    program = tmp_path / "debootstrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert debootstrap_lack(host, "gym-compose/base:1", 0) is None


def test_an_old_engine_that_does_not_name_its_cgroup() -> None:
    facts = EngineFacts.of({"ServerVersion": "20.10.0"}, (1, 41))
    assert (facts.cgroup, facts.images_directory) == ("v1", Path("/var/lib/docker"))
