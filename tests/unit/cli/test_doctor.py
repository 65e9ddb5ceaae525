"""``gym compose doctor``: what is printed, as text and as JSON, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_compose.cli import doctor
from gym_compose.cli.translate import Invocation
from gym_compose.doctor.check import Check

Invoke = Callable[..., Invocation]
DEAD = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.fixture(autouse=True)
def _plain_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def checks(_: Any) -> Iterator[Check]:
        yield Check("Python", "ok", "3.13")
        yield Check("CA bundle", "warn", "none found", "Name one.")

    monkeypatch.setattr("gym_compose.doctor.host.host_checks", checks)


def test_auto_takes_processes_where_docker_does_not_answer(invoke: Invoke, captured: Any) -> None:
    assert doctor.run(invoke("compose doctor", DEAD), captured.console) == 0
    lines = captured.stdout.splitlines()
    assert lines[:3] == ["ok    Python: 3.13", "warn  CA bundle: none found", "      Name one."]
    assert lines[3].startswith("warn  Docker engine: /nowhere/docker.sock: ")
    assert lines[-1].startswith("ok    process engine: ")
    assert captured.stderr.endswith("4 checks: 2 ok, 2 to look at, 0 failed.\n")


def test_docker_that_was_asked_for_and_does_not_answer_fails(invoke: Invoke, captured: Any) -> None:
    assert doctor.run(invoke("compose doctor --engine docker --json", DEAD), captured.console) == 4
    document = json.loads(captured.stdout)
    assert document["exit_code"] == 4
    assert [(check["name"], check["status"]) for check in document["checks"]] == [
        ("Python", "ok"),
        ("CA bundle", "warn"),
        ("Docker engine", "fail"),
    ]


def test_an_engine_on_another_machine_is_a_finding(invoke: Invoke, captured: Any) -> None:
    assert doctor.run(invoke("compose doctor --engine docker", {"DOCKER_HOST": "tcp://far.test:2375"}), captured.console) == 4
    assert "FAIL  Docker engine: DOCKER_HOST: the Docker engine at tcp://far.test:2375 is on another machine" in captured.stdout


def test_a_config_that_cannot_be_read_is_a_finding(invoke: Invoke, captured: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [\n")
    assert doctor.run(invoke("compose doctor --engine process --config bad.yaml"), captured.console) == 3
    assert "FAIL  config: " in captured.stdout
