"""Small hand-written compose projects for the Docker engine's own parts; whole deployments are tested through GymDeployment elsewhere."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.deployment import Attachment, Deployment, Image, Service
from gym_compose.engine.docker.base_image import BaseImage
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.docker.stop import _left
from gym_compose.engine.interface import PlannedAction
from gym_compose.testing.fake_engine import sample_deployment
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.names import LABEL_DIRECTORY, LABEL_INSTANCE, LABEL_PROJECT, LABEL_ROLE, LABEL_SLICE, Role
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings


def soon(seconds: float = 60.0) -> Deadline:
    return Deadline.after(seconds, "a test")


def quiet(_: str) -> None:
    """Takes progress and drops it."""


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    made = DockerEngine(os.environ, Settings())
    try:
        made.check(soon())
    except PrerequisiteError as error:
        if os.environ.get("GYM_COMPOSE_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture(scope="session")
def image(engine: DockerEngine) -> str:
    """Any image with sh and python3: the base of whatever was built here, else one that is made now."""
    wanted = os.environ.get("GYM_COMPOSE_TEST_IMAGE", "prep/trixie:latest")
    if engine.api.image(wanted, soon()) is not None:
        return wanted
    found = engine.api.call(lambda client: client.images(name="gym-compose/base"), "list images", soon())
    tags = sorted(tag for entry in found for tag in entry.get("RepoTags") or ())
    if tags:
        return str(tags[0])
    name = "gym-compose/base:enginetests00"
    settings = Settings.from_environ(os.environ)
    base = BaseImage(engine.api, engine.compose.environ, settings, Redactor())
    wanted_image = Image(name=name, key="", kind="base", inputs=())
    base.make(wanted_image, None, lambda reference: engine.api.tag(reference, name, soon()), soon(900), quiet, threading.Event())
    return name


@dataclass
class Project:
    """A compose project on disk and its deployment, as the compiler would write them."""

    name: str
    directory: Path
    engine: DockerEngine
    image: str

    def write(self, services: dict[str, dict[str, Any]], *, networks: dict[str, Any] | None = None) -> Deployment:
        """``services``: compose services plus ``_role``, ``_type`` (server type), ``_slice`` (digest)."""
        document: dict[str, Any] = {"name": self.name, "services": {}, "networks": networks or {"servers": {}}}
        made = []
        for name, given in services.items():
            body = {key: value for key, value in given.items() if not key.startswith("_")}
            role: Role = given.get("_role", "server")
            digest = given.get("_slice", "s1")
            body.setdefault("image", self.image)
            body.setdefault("init", True)
            body.setdefault("networks", ["servers"])
            body["labels"] = {
                LABEL_PROJECT: self.name,
                LABEL_ROLE: role,
                LABEL_INSTANCE: name,
                LABEL_SLICE: digest,
                LABEL_DIRECTORY: str(self.directory),
            }
            document["services"][name] = body
            if "_type" in given:
                slice_file = self.directory / "slices" / name / "public.json"
                slice_file.parent.mkdir(parents=True, exist_ok=True)
                slice_file.write_text(json.dumps({"server_type": given["_type"]}))
            made.append(
                Service(
                    name=name,
                    role=role,
                    instance=name,
                    image=body["image"],
                    command=tuple(body.get("command", ())),
                    attachments=(Attachment("servers"),),
                    user=None,
                    slice_sha256=digest,
                )
            )
        (self.directory / "compose.yaml").write_text(json.dumps(document))
        return sample_deployment(self.name, made)

    def up(self, services: dict[str, dict[str, Any]], **options: Any) -> list[PlannedAction]:
        made = self.write(services, **options)
        actions = list(self.engine.plan(made, self.engine.observe(self.name, soon())))
        self.engine.apply(made, self.directory, actions, soon(120), quiet)
        return actions

    def left(self) -> list[str]:
        return list(_left(self.engine.api, self.name, soon()))


@pytest.fixture
def project(engine: DockerEngine, image: str, tmp_path: Path) -> Iterator[Project]:
    made = Project(f"gymc-engine-{secrets.token_hex(3)}", tmp_path, engine, image)
    yield made
    engine.stop(made.name, soon(), quiet)
    assert made.left() == []


@pytest.fixture
def python() -> Callable[[str], list[str]]:
    """The command of a service that runs a line of Python."""
    return lambda code: ["python3", "-u", "-c", code]
