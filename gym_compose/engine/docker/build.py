"""Images of a deployment: what is missing is built through BuildKit, parents first, a few at a time (field-notes B17).

Images are known by content, so one that exists is right by its name and is left alone. ``docker compose -f build.yaml build NAME`` uses the
engine's own BuildKit without the buildx plugin (platform.md), which plain ``docker build`` does not.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import yaml

from gym_compose.compiler.deployment import Deployment, Image
from gym_compose.compiler.locks import RESOLVE_VARIABLE
from gym_compose.compiler.sharing import users
from gym_compose.engine.docker import failure
from gym_compose.engine.docker.api import DockerApi, Json
from gym_compose.engine.docker.base_image import BaseImage, pull
from gym_compose.engine.docker.build_failure import explain, output_lines
from gym_compose.engine.docker.compose import Compose
from gym_compose.engine.docker.locks import Locks, printed_lock
from gym_compose.engine.errors import ImageBuildError, ImageMissingError
from gym_compose.engine.interface import BuiltImage, Report
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.settings import Settings

BUILD_FILE = "build.yaml"
_SHOWN_CHARACTERS = 100
_SERVICE = re.compile(r"^\[\S+ (?=[^\]]*\])")
"""BuildKit names the service before each step."""


class ImageBuilder:
    """Builds the images of one deployment from its project directory. ``index`` gives build arguments, asked when something is missing."""

    def __init__(
        self,
        api: DockerApi,
        compose: Compose,
        settings: Settings,
        index: Callable[[], Mapping[str, str]],
        deployment: Deployment,
        directory: Path,
    ) -> None:
        self._api = api
        self._compose = compose
        self._settings = settings
        self._index = index
        self._environ: Mapping[str, str] = {}
        self._images = deployment.images
        self._deployment = deployment
        self._directory = directory
        self._locks = Locks(directory, compose.environ)
        self._printed: dict[str, tuple[str, ...]] = {}
        self._last_line: dict[str, str] = {}
        self._cancel = threading.Event()

    def build(self, deadline: Deadline, report: Report) -> Sequence[BuiltImage]:
        """Every image of the deployment, built or found, in its order.

        An image whose requirements are locked otherwise than it was built is made again, and what stands on it. What was chosen for one
        without a lock is kept (``locks``).
        Raises RequirementsError (the line, its place, the installer's reason), ImageBuildError (the last lines of the output as details),
        DiskFullError, ImageMissingError, BaseImageError; builds that run then are ended.
        """
        present = {image.name: facts for image in self._images if (facts := self._api.image(image.name, deadline)) is not None}
        for name in self._outdated(present):
            del present[name]
        missing = [image for image in self._images if image.name not in present]
        seconds: dict[str, float] = {}
        if missing:
            services = build_services(self._directory / BUILD_FILE)
            self._environ = self._index()
            seconds = self._run(missing, services, deadline, report)
        facts = {image.name: present.get(image.name) or self._facts(image.name, deadline) for image in self._images}
        for image in self._images:
            if image.lock_name and image.lock is None:
                self._keep_lock(image, facts[image.name], report)
            elif image.lock is not None and image.name in seconds:
                self._locks.remember(facts[image.name], image.lock)
        return tuple(
            BuiltImage(
                name=image.name,
                image_id=str(facts[image.name]["Id"]),
                built=image.name in seconds,
                seconds=round(seconds.get(image.name, 0.0), 3),
                own_bytes=own_bytes(facts[image.name], [facts[name] for name in image.depends_on if name in facts]),
            )
            for image in self._images
        )

    def _outdated(self, present: Mapping[str, Json]) -> list[str]:
        """Images that are there and must be made again: their requirements are locked otherwise now, or they stand on such a one."""
        found: dict[str, None] = {}
        for image in self._images:
            if image.name in present and (not self._locks.holds(image, present[image.name]) or any(n in found for n in image.depends_on)):
                found[image.name] = None
        return list(found)

    def _keep_lock(self, image: Image, facts: Json, report: Report) -> None:
        built = image.name in self._printed
        file = self._locks.keep(image, facts, self._printed.get(image.name))
        if file is not None and built:
            report(f"{image.name}: versions kept in {file}")
        elif file is None:
            report(f"{image.name} was built elsewhere: its versions are in its /opt/gym/packages.txt, and no lock is kept")

    def _facts(self, name: str, deadline: Deadline) -> Json:
        facts = self._api.image(name, deadline)
        if facts is None:
            raise ImageMissingError(f"the image {name} is not there after its build", hint="Was it removed meanwhile? Build again.")
        return facts

    def _run(self, missing: Sequence[Image], services: Mapping[str, str], deadline: Deadline, report: Report) -> dict[str, float]:
        """Seconds by image. An image is started as soon as its parents are there; the first failure ends the others."""
        waiting = list(missing)
        todo = {image.name for image in missing}
        seconds: dict[str, float] = {}
        running: dict[Future[float], Image] = {}
        begun: dict[str, float] = {}
        numbers = {image.name: f"{number} of {len(missing)}" for number, image in enumerate(missing, 1)}
        with ThreadPoolExecutor(max(1, self._settings.build_parallel), thread_name_prefix="build") as pool:
            try:
                while waiting or running:
                    for image in ready(waiting, todo):
                        if len(running) >= max(1, self._settings.build_parallel):
                            break
                        waiting.remove(image)
                        begun[image.name] = time.monotonic()
                        running[pool.submit(self._one, image, services, deadline, report, numbers[image.name])] = image
                    if not running:
                        names = ", ".join(image.name for image in waiting)
                        raise ImageBuildError(f"these images wait for each other: {names}", hint="This is a fault of gym_compose.")
                    done, _ = wait(running, self._settings.build_progress_seconds, return_when=FIRST_COMPLETED)
                    for future in done:
                        image = running.pop(future)
                        seconds[image.name] = future.result()
                        todo.discard(image.name)
                    if not done:
                        for image in running.values():
                            report(self._still(image.name, time.monotonic() - begun[image.name]))
            except BaseException:
                # Ctrl+C too: a build that nobody waits for any more must not go on.
                self._cancel.set()
                raise
        return seconds

    def _still(self, name: str, seconds: float) -> str:
        """One line of progress of a build that goes on."""
        doing = self._last_line.get(name, "")
        return f"still building {name}: {seconds:.0f} s" + (f", {_SERVICE.sub('[', doing)}" if doing else "")

    def _one(self, image: Image, services: Mapping[str, str], deadline: Deadline, report: Report, number: str) -> float:
        started = time.monotonic()
        bounded = deadline.within(self._settings.build_seconds, f"image {image.name}")
        if image.kind == "external":
            report(f"pulling {image.name} ({number})")
            try:
                pull(self._api, image.name, bounded)
            except ImageMissingError as error:
                instances = needed_by(image.name, self._deployment)
                error.where = ", ".join(f"compose.servers.{instance}.image" for instance in instances) or None
                raise
        elif image.kind == "base":
            report(f"base image {image.name} ({number})")
            base = BaseImage(self._api, self._compose.environ, self._settings, self._compose.redactor)
            base.make(image, self._context(image), self._finish(image, services, bounded), deadline, report, self._cancel)
        else:
            report(f"building {image.name} ({number})")
            self._build(image, services, bounded, {RESOLVE_VARIABLE: "" if image.lock else uuid.uuid4().hex} if image.lock_name else {})
        return time.monotonic() - started

    def _finish(self, image: Image, services: Mapping[str, str], deadline: Deadline) -> Callable[[str], None]:
        def finish(reference: str) -> None:
            if reference == image.name:
                return
            if image.name in services:
                self._build(image, services, deadline, {"PYTHON_IMAGE": reference})
            else:
                self._api.tag(reference, image.name, deadline)

        return finish

    def _context(self, image: Image) -> Path | None:
        directory = self._directory / "images" / image.name.rpartition("/")[2].replace(":", "-")
        return directory if directory.is_dir() else None

    def _build(self, image: Image, services: Mapping[str, str], deadline: Deadline, environ: Mapping[str, str]) -> None:
        name = image.name
        if name not in services:
            raise ImageMissingError(
                f"no service of {BUILD_FILE} makes the image {name}", where=str(self._directory / BUILD_FILE), hint="Run the command again."
            )
        lines: list[str] = []

        def told(line: str) -> None:
            lines.append(line)
            said = output_lines([line])[0]
            if said and not said.startswith(("gym-compose-lock", "DONE", "CACHED", "sha256:")):
                self._last_line[name] = said[:_SHOWN_CHARACTERS]

        result = self._compose.build(
            self._directory / BUILD_FILE,
            services[name],
            deadline,
            environ={**self._environ, **environ},
            stream=told,
            cancel=self._cancel,
        )
        if not result.ok:
            raise self._failed(image, result.exit_code, result.stderr, lines)
        printed = printed_lock(lines) if image.lock_name else None
        if printed is not None:
            self._printed[name] = printed

    def _failed(self, image: Image, code: int, stderr: str, output: Sequence[str]) -> GymComposeError:
        servers = needed_by(image.name, self._deployment)
        explained = explain(image, output, servers)
        if explained is not None:
            return explained
        lines = tuple(output[-max(1, self._settings.build_tail_lines) :])
        known = failure.recognise(stderr, self._compose.redactor, details=lines)
        # A Dockerfile's own words ("no such image", "permission denied") are no fault of the engine; a full disk or a dead engine is.
        if known is not None and not isinstance(known, ImageMissingError) and known.exit_code == 4 and "RUN" not in stderr:
            return known
        return ImageBuildError(
            f"the image could not be built (exit code {code})" + (f"; it is for {', '.join(servers)}" if servers else ""),
            where=image.name,
            hint=f"Its build context is in {self._directory / 'images'}. The last lines of its output:",
            details=lines,
        )


def ready(waiting: Iterable[Image], todo: set[str]) -> list[Image]:
    """Those whose parents are all there, in the deployment's order (base first). Nothing else may be built yet."""
    return [image for image in waiting if not any(name in todo for name in image.depends_on if name != image.name)]


def needed_by(name: str, deployment: Deployment) -> tuple[str, ...]:
    """The instances whose image is this one or stands on it; empty when all of them do."""
    instances = [service for service in deployment.services if service.instance is not None]
    found = users(deployment).get(name, ())
    return found if len(found) < len(instances) or len(found) == 1 else ()


def build_services(file: Path) -> dict[str, str]:
    """``{image: service}`` of build.yaml. Raises ImageBuildError when it cannot be read."""
    try:
        document: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        services = document["services"]
        return {str(body["image"]): str(name) for name, body in services.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ImageBuildError(
            f"the build file cannot be read: {error}", where=str(file), hint="Run the command again; it is written anew."
        ) from error


def own_bytes(facts: Json, parents: Sequence[Json]) -> int | None:
    """What an image adds to the parent whose layers it starts with; None when none of ``parents`` is one (a base, an imported image)."""
    layers = list((facts.get("RootFS") or {}).get("Layers") or [])
    best: tuple[int, int] | None = None
    for parent in parents:
        below = list((parent.get("RootFS") or {}).get("Layers") or [])
        if below and layers[: len(below)] == below and (best is None or len(below) > best[0]):
            best = (len(below), int(facts.get("Size") or 0) - int(parent.get("Size") or 0))
    return best[1] if best is not None else None
