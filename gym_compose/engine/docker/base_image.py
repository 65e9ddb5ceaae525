"""The base image, which no Dockerfile of ours can start from nothing: an official Python image where a registry answers, else the same
thing made from Debian packages (design decision 11). The setting ``base_image`` chooses: auto, pull, debootstrap, or any reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from gym_compose.compiler.deployment import Image
from gym_compose.engine.command import run_command
from gym_compose.engine.docker.api import DockerApi
from gym_compose.engine.errors import BaseImageError, EngineError, ImageMissingError
from gym_compose.engine.interface import Report
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

PYTHON_IMAGE = "python:3.13-slim"
_SCRIPT = Path("images") / "base" / "debootstrap.sh"
_NEEDS_ROOT, _NEEDS_PROGRAM = 3, 4  # exit codes of the script
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"  # debootstrap stands there, and an ordinary user's PATH leaves it out


class BaseImage:
    """Makes one image of kind ``base`` by whatever way the setting allows."""

    def __init__(self, api: DockerApi, environ: Mapping[str, str], settings: Settings, redactor: Redactor) -> None:
        self._api = api
        self._environ = environ
        self._settings = settings
        self._redactor = redactor

    def make(
        self, image: Image, context: Path | None, finish: Callable[[str], None], deadline: Deadline, report: Report, cancel: threading.Event
    ) -> None:
        """Make ``image``. ``finish`` turns a pulled image (by its reference) into it; ``context`` may hold the script.

        Raises BaseImageError that says every way that was tried; without root its hint is the one command to run.
        """
        wanted = self._settings.base_image
        bounded = deadline.within(self._settings.base_image_seconds, f"the base image {image.name}")
        if wanted == "debootstrap":
            self._debootstrap(image.name, context, bounded, report, cancel)
            return
        reference = PYTHON_IMAGE if wanted in {"auto", "pull"} else wanted
        try:
            self._have(reference, bounded, report)
        except GymComposeError as error:
            if wanted != "auto":
                raise BaseImageError(
                    f"no base image: {error.message}",
                    where="setting base_image",
                    hint="Is the registry reachable? GYM_COMPOSE_BASE_IMAGE=debootstrap makes it from Debian packages instead.",
                ) from error
            report(f"{error.message.splitlines()[0]}; making the base image from Debian packages")
            self._debootstrap(image.name, context, bounded, report, cancel)
            return
        finish(reference)

    def _have(self, reference: str, deadline: Deadline, report: Report) -> None:
        if self._api.image(reference, deadline) is not None:
            return
        report(f"pulling {reference}")
        pull(self._api, reference, deadline)

    def _debootstrap(self, name: str, context: Path | None, deadline: Deadline, report: Report, cancel: threading.Event) -> None:
        script = find_script(context)
        report(f"making {name} from Debian packages (about a minute)")
        path = f"{self._environ.get('PATH', '')}:{SBIN}"
        result = run_command(
            ["bash", str(script), "--import", name],
            environ={**self._environ, "PATH": path},
            cwd=script.parent,
            deadline=deadline,
            redactor=self._redactor,
            cancel=cancel,
            kill_grace_seconds=self._settings.kill_grace_seconds,
        )
        if result.ok:
            return
        said = [line for line in result.stderr.strip().splitlines() if line.strip()]
        if result.exit_code in {_NEEDS_ROOT, _NEEDS_PROGRAM} and said:
            # The script's last line is the one command that mends it; the lines before say why.
            raise BaseImageError(
                self._redactor.text(" ".join(said[:-1]) or "the base image cannot be made here"),
                where=name,
                hint=self._redactor.text(said[-1]),
            )
        raise BaseImageError(
            f"the base image could not be made from Debian packages (exit code {result.exit_code})",
            where=str(script),
            hint="Does apt work on this machine? GYM_COMPOSE_BASE_IMAGE=<image> takes one that you have.",
            details=result.tail(self._settings.build_tail_lines),
        )


def pull(api: DockerApi, reference: str, deadline: Deadline) -> None:
    """Pull an image through the engine. Raises ImageMissingError or what the engine's text is recognised as.

    A pull takes as long as it takes, so the stream's own client has no read timeout; the deadline is looked at between its messages.
    """
    client = api.stream_client(deadline)
    repository, tag = split_reference(reference)
    try:
        for message in api.mapped(lambda: client.pull(repository, tag=tag, stream=True, decode=True), f"pull {reference}"):
            if "error" in message:
                raise _not_pulled(reference, api.redactor.text(str(message["error"])))
            if deadline.expired:
                raise _not_pulled(reference, f"not within {deadline.purpose or 'its time'}")
    except (EngineError, OSError, ValueError) as error:
        # The registry's refusal, or a stream that broke off. What the engine itself lacks (disk, permission) is another class and passes.
        said = getattr(error, "message", str(error))
        raise _not_pulled(reference, said.removeprefix(f"cannot pull {reference}: ")) from error
    finally:
        client.close()
    if api.image(reference, deadline) is None:
        raise _not_pulled(reference, "it is not there afterwards")


def _not_pulled(reference: str, reason: str) -> ImageMissingError:
    return ImageMissingError(f"the image {reference} cannot be pulled: {reason}", hint="Is its registry reachable from here?")


def split_reference(reference: str) -> tuple[str, str | None]:
    """Repository and tag (``latest`` when there is none); a digest stays with its repository and has no tag."""
    if "@" in reference:
        return reference, None
    head, slash, last = reference.rpartition("/")
    name, colon, tag = last.partition(":")
    return f"{head}{slash}{name}", tag if colon else "latest"


def find_script(context: Path | None) -> Path:
    """debootstrap.sh: of the image's own context when it holds one, else of the installation (checkout or wheel).

    Raises BaseImageError when neither is there.
    """
    package = Path(__file__).resolve().parents[2]
    candidates = [package.parent / _SCRIPT, package / "_assets" / _SCRIPT]
    if context is not None:
        candidates.insert(0, context / _SCRIPT.name)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise BaseImageError("debootstrap.sh is missing from this installation", where=str(package), hint="Reinstall gym-compose.")
