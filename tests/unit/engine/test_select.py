"""Which engine is taken, and what is said when Docker is not the one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gym_compose.engine.errors import ComposeMissingError, DockerUnavailableError
from gym_compose.engine.select import select_engine
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import UsageError
from gym_compose.wire.settings import Settings


def soon() -> Deadline:
    return Deadline.after(30.0, "a test")


def nowhere(tmp_path: Path) -> dict[str, str]:
    return {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}


def test_auto_takes_processes_where_docker_does_not_answer_and_says_why(tmp_path: Path) -> None:
    said: list[str] = []
    engine = select_engine("auto", nowhere(tmp_path), Settings(), soon(), home=tmp_path, say=said.append)
    assert engine.name == "process"
    assert said == [
        f"Without Docker: the Docker engine does not run ({tmp_path}/none.sock). Servers run as processes of this host.",
    ]


def test_docker_that_was_asked_for_and_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DockerUnavailableError, match="does not run"):
        select_engine("docker", nowhere(tmp_path), Settings(), soon())


def test_processes_need_no_docker(tmp_path: Path) -> None:
    said: list[str] = []
    assert select_engine("process", nowhere(tmp_path), Settings(), soon(), home=tmp_path, say=said.append).name == "process"
    assert said == []


def test_another_engine_is_unknown() -> None:
    with pytest.raises(UsageError, match="'podman' is no engine") as caught:
        select_engine("podman", {}, Settings(), soon())
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo \"docker: 'compose' is not a docker command.\" >&2; exit 1", "the compose plugin is missing"),
        ("echo 2.19.1", "`docker compose` is 2.19.1"),
        ("echo docker-compose version 1.29.2, build x", "the compose plugin is missing"),
        ("echo v2.20.0-desktop.1", None),
        ("echo 5.0.1", None),
    ],
)
def test_the_compose_plugin_must_be_there_and_new_enough(tmp_path: Path, script: str, said: str | None) -> None:
    from gym_compose.engine.docker.compose import Compose
    from gym_compose.engine.docker.endpoint import Endpoint
    from gym_compose.wire.redaction import Redactor

    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{script}\n")
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    compose = Compose({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, Endpoint("unix:///x", ""), Settings(), Redactor())
    # subprocess looks programs up in the PATH of the child's environment.
    if said is None:
        assert compose.version(soon()) >= (2, 20, 0)
        return
    with pytest.raises(ComposeMissingError, match=said) as caught:
        compose.version(soon())
    assert "2.20" in (caught.value.hint or "")


def test_no_docker_at_all_is_said_so(tmp_path: Path) -> None:
    from gym_compose.engine.docker.compose import Compose
    from gym_compose.engine.docker.endpoint import Endpoint
    from gym_compose.wire.redaction import Redactor

    compose = Compose({"PATH": str(tmp_path)}, Endpoint("unix:///x", ""), Settings(), Redactor())
    with pytest.raises(DockerUnavailableError, match="Docker is not installed"):
        compose.version(soon())
