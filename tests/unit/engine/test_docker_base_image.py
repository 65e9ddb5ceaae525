"""By which way the base image is made: pulled, made from Debian packages, or an error that names the one command to run."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from gym_compose.compiler.deployment import Image
from gym_compose.engine.docker import base_image
from gym_compose.engine.docker.api import DockerApi
from gym_compose.engine.docker.base_image import PYTHON_IMAGE, BaseImage
from gym_compose.engine.errors import BaseImageError, ImageMissingError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

NAME = "gym-compose/base:0123456789ab"


class Images:
    """Stands for the API: which images there are, which can be pulled."""

    def __init__(self, present: tuple[str, ...] = ()) -> None:
        self.present = set(present)

    def image(self, name: str, deadline: Deadline) -> dict[str, Any] | None:
        assert not deadline.expired
        return {"Id": name} if name in self.present else None


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What a registry has."""
    has: set[str] = set()

    def pull(api: Images, reference: str, deadline: Deadline) -> None:
        if reference not in has:
            raise ImageMissingError(f"the image {reference} cannot be pulled: no such host")
        api.present.add(reference)

    monkeypatch.setattr(base_image, "pull", pull)
    return has


class Attempt:
    """One call of ``make`` with a script in the context, and what came of it."""

    def __init__(self, tmp_path: Path, setting: str, script: str, present: tuple[str, ...] = ()) -> None:
        self.finished: list[str] = []
        self.said: list[str] = []
        self.calls = tmp_path / "calls"
        (tmp_path / "debootstrap.sh").write_text(f'echo "$@" >> {self.calls}\n{script}\n')
        self._context = tmp_path
        environ = {"PATH": os.environ["PATH"]}
        self._base = BaseImage(cast(DockerApi, Images(present)), environ, Settings(base_image=setting), Redactor())

    def make(self) -> None:
        wanted = Image(name=NAME, key="", kind="base", inputs=())
        deadline = Deadline.after(30, "a test")
        self._base.make(wanted, self._context, self.finished.append, deadline, self.said.append, threading.Event())

    @property
    def script_calls(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def test_auto_takes_the_official_image_where_it_can_be_had(tmp_path: Path, registry: set[str]) -> None:
    registry.add(PYTHON_IMAGE)
    attempt = Attempt(tmp_path, "auto", "exit 9")
    attempt.make()
    assert attempt.finished == [PYTHON_IMAGE]
    assert attempt.script_calls == []


def test_auto_makes_it_from_debian_packages_elsewhere_and_says_so(tmp_path: Path, registry: set[str]) -> None:
    attempt = Attempt(tmp_path, "auto", "exit 0")
    attempt.make()
    assert attempt.finished == []
    assert attempt.script_calls == [f"--import {NAME}"]
    assert any("no such host" in line for line in attempt.said)


def test_debootstrap_asks_no_registry(tmp_path: Path, registry: set[str]) -> None:
    registry.add(PYTHON_IMAGE)
    attempt = Attempt(tmp_path, "debootstrap", "exit 0")
    attempt.make()
    assert attempt.script_calls == [f"--import {NAME}"]


def test_an_image_of_the_users_own_is_taken_as_it_is(tmp_path: Path, registry: set[str]) -> None:
    attempt = Attempt(tmp_path, "registry.example/python:1", "exit 9", present=("registry.example/python:1",))
    attempt.make()
    assert attempt.finished == ["registry.example/python:1"]


@pytest.mark.parametrize("setting", ["pull", "registry.example/python:1"])
def test_what_was_asked_for_and_cannot_be_pulled_is_an_error(tmp_path: Path, registry: set[str], setting: str) -> None:
    attempt = Attempt(tmp_path, setting, "exit 0")
    with pytest.raises(BaseImageError, match="no such host") as caught:
        attempt.make()
    assert "GYM_COMPOSE_BASE_IMAGE=debootstrap" in (caught.value.hint or "")
    assert attempt.script_calls == []


def test_without_root_the_message_names_the_one_command(tmp_path: Path, registry: set[str]) -> None:
    script = 'echo "Making the base image needs root." >&2; echo "Run once: sudo bash /x/debootstrap.sh $*" >&2; exit 3'
    with pytest.raises(BaseImageError, match="needs root") as caught:
        Attempt(tmp_path, "auto", script).make()
    assert caught.value.hint == f"Run once: sudo bash /x/debootstrap.sh --import {NAME}"
    assert caught.value.exit_code == 5


def test_a_script_that_fails_shows_the_end_of_its_output(tmp_path: Path, registry: set[str]) -> None:
    with pytest.raises(BaseImageError, match="exit code 5") as caught:
        Attempt(tmp_path, "debootstrap", "echo E: no mirror >&2; exit 5").make()
    assert caught.value.details == ("E: no mirror",)
