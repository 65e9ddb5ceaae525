"""What is looked at on the Docker engine: itself, compose, the builder, disk for images, the base image, the registry."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gym_compose.compiler.assets import read_assets
from gym_compose.compiler.images import base_image
from gym_compose.compiler.options import BASE_SOURCES
from gym_compose.doctor.check import Check
from gym_compose.doctor.host import GIBIBYTE, Host, disk_check
from gym_compose.engine.docker.base_image import PYTHON_IMAGE, SBIN, find_script
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.docker.facts import EngineFacts, engine_facts, registry_answer, trial_build
from gym_compose.project import assets
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.settings import Settings

NEEDED = ("Docker engine", "compose plugin")
"""The checks without which nothing runs in containers."""


@dataclass(frozen=True)
class Registry:
    """Whether the registry that the base image would come from answers the engine; ``said`` is its answer, or why there is none."""

    reference: str
    reached: bool
    has_it: bool
    said: str


def docker_checks(engine: DockerEngine, host: Host, settings: Settings, say: Callable[[str], None]) -> Iterator[Check]:
    """All of them, in the order in which they are shown; without an answer of the engine the first one alone.

    Each step is bounded by the settings. ``say`` takes lines of progress of the long ones.
    """
    try:
        facts = engine_facts(engine.api, _within(settings.docker_call_seconds, "the Docker engine"))
    except GymComposeError as error:
        yield Check.of_error(NEEDED[0], error)
        return
    yield engine_check(facts, engine)
    compose = _compose_check(engine, settings)
    yield compose
    if compose.status != "fail":
        say("building an image of one file")
        yield _builder_check(engine, settings)
    yield _images_disk(facts)
    say("asking the registry")
    registry = ask_registry(engine, settings)
    yield _base_check(engine, host, settings, registry)
    yield registry_check(registry)


def engine_check(facts: EngineFacts, engine: DockerEngine) -> Check:
    """Which engine it is; being here, it is reachable."""
    endpoint = engine.api.endpoint
    return Check(
        NEEDED[0],
        "ok",
        f"{facts.version} (API {facts.api[0]}.{facts.api[1]}) at {endpoint.url} ({endpoint.source}); cgroup {facts.cgroup}, "
        f"storage {facts.storage}, {facts.cpus} CPUs, {facts.memory_bytes / GIBIBYTE:.1f} GiB of memory",
    )


def _compose_check(engine: DockerEngine, settings: Settings) -> Check:
    try:
        version = engine.compose.version(_within(settings.docker_call_seconds, "docker compose version"))
    except GymComposeError as error:
        return Check.of_error(NEEDED[1], error)
    return Check(NEEDED[1], "ok", ".".join(map(str, version)))


def _builder_check(engine: DockerEngine, settings: Settings) -> Check:
    try:
        seconds = trial_build(engine.api, engine.compose, settings, _within(settings.doctor_trial_seconds, "a build of one file"))
    except GymComposeError as error:
        return Check.of_error("builder", error)
    return Check("builder", "ok", f"BuildKit; an image of one file took {seconds:.1f} s")


def _images_disk(facts: EngineFacts) -> Check:
    name = "disk for images"
    place = facts.images_directory
    if not place.is_dir():
        return Check(name, "warn", f"the engine's {place} cannot be seen from here", "`docker system df` shows what it holds.")
    return disk_check(name, place, str(place))


def ask_registry(engine: DockerEngine, settings: Settings) -> Registry:
    """The engine asks the registry of the base image (nothing is pulled), for ``doctor_registry_seconds`` at most."""
    reference = PYTHON_IMAGE if settings.base_image in BASE_SOURCES else settings.base_image
    try:
        said = registry_answer(engine.api, reference, _within(settings.doctor_registry_seconds, "the registry"))
    except GymComposeError as error:
        return Registry(reference, False, False, error.message)
    return Registry(reference, True, said == "has it", said)


def registry_check(registry: Registry) -> Check:
    """A registry that does not answer is a warning: all can be made here, but for images that a config names itself."""
    name = "registry"
    if registry.reached:
        return Check(name, "ok", f"answers the engine, asked for {registry.reference}: it {registry.said}")
    return Check(
        name,
        "warn",
        f"does not answer the engine, asked for {registry.reference}: {registry.said}",
        "Nothing is needed from it while the base image is there or can be made; an image that a config names must be there already.",
    )


def _base_check(engine: DockerEngine, host: Host, settings: Settings, registry: Registry) -> Check:
    image = base_image(read_assets(assets.root()), settings.base_image)
    deadline = _within(settings.docker_call_seconds, "images of the engine")
    try:
        if engine.api.image(image.name, deadline) is not None:
            return Check("base image", "ok", f"{image.name} is there")
        local = engine.api.image(registry.reference, deadline) is not None
    except GymComposeError as error:
        return Check.of_error("base image", error)
    return base_check(image.name, settings.base_image, registry, local=local, unmade=debootstrap_lack(host, image.name, os.getuid()))


def base_check(name: str, wanted: str, registry: Registry, *, local: bool, unmade: Check | None) -> Check:
    """How the base image ``name``, which is not there, would come: from the image that is ``local``, from the registry, or from Debian
    packages (design decision 11). ``wanted`` is the setting ``base_image``, ``unmade`` why debootstrap cannot make it here."""
    missing = f"{name} is not there"
    if wanted != "debootstrap":
        if local:
            return Check("base image", "ok", f"{missing}; it will be made from {registry.reference}, which is")
        if registry.has_it:
            return Check("base image", "ok", f"{missing}; {registry.reference} will be pulled for it")
        if wanted != "auto":
            return Check(
                "base image",
                "fail",
                f"{missing}, and {registry.reference} (setting base_image: {wanted}) can be had from no registry",
                "GYM_COMPOSE_BASE_IMAGE=debootstrap makes it from Debian packages instead.",
            )
    if unmade is None:
        return Check("base image", "ok", f"{missing}; it will be made from Debian packages (debootstrap, about a minute)")
    return unmade


def debootstrap_lack(host: Host, image: str, uid: int) -> Check | None:
    """Why debootstrap.sh, run by ``uid``, cannot make the base ``image`` here, with the one command that mends it; None when it can."""
    name = "base image"
    try:
        script = find_script(None)
    except GymComposeError as error:
        return Check.of_error(name, error)
    if uid != 0:
        return Check(
            name,
            "fail",
            "it is not there, and to make it from Debian packages needs root",
            f"Run once: sudo bash {script} --import {image}",
        )
    if shutil.which("debootstrap", path=f"{host.path}:{SBIN}") is None:
        return Check(
            name,
            "fail",
            "it is not there, no registry has it, and debootstrap is not installed",
            "Run once: apt-get install --yes --no-install-recommends debootstrap",
        )
    return None


def _within(seconds: float, purpose: str) -> Deadline:
    return Deadline.after(seconds, purpose)
