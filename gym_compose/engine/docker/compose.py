"""The verbs of ``docker compose``: one thin function each, all through ``Compose.command``, where flags, environment, time and retry live.

Nothing of the host reaches the compose file: ``--env-file /dev/null`` keeps a stray ``.env`` out, COMPOSE_* variables are dropped, and the
CLI sees only the variables that it needs itself (field-notes B3, A5.1).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym_compose.engine.command import CommandResult, Stream, run_command
from gym_compose.engine.docker import failure
from gym_compose.engine.docker.endpoint import Endpoint
from gym_compose.engine.errors import BindSourceError, CommandNotFoundError, ComposeMissingError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

MINIMUM_COMPOSE = (2, 20)

IDEMPOTENT = frozenset({"version", "config", "down", "up"})
"""Verbs that may be repeated when an attempt hung or the engine was busy. ``run`` is not one: it would start a second driver."""

# What the CLI and its builder read for themselves. Build arguments without a value in build.yaml are taken from here too.
_KEPT = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "TERM",
    }
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"}
)
_KEPT_PREFIXES = ("DOCKER_", "BUILDKIT_", "BUILDX_", "LC_", "PIP_", "UV_")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Volume:
    """A bind mount of ``run``. The short syntax cannot hold a ``:`` in a path."""

    source: str
    target: str
    read_only: bool

    def argument(self) -> str:
        """``source:target[:ro]``. Raises InvalidInputError for a path with ``:`` and BindSourceError for a source that is not there.

        Docker would make a root-owned directory in its place (field-notes B25).
        """
        if ":" in self.source:
            raise InvalidInputError("a path that a container mounts must not contain ':'", where=self.source, hint="Use another directory.")
        if not Path(self.source).exists():
            raise BindSourceError("a file or directory to mount is not there", where=self.source)
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


class Compose:
    """``docker compose`` against one engine. Each verb returns the result of a command that ended with 0 or raises."""

    def __init__(self, environ: Mapping[str, str], endpoint: Endpoint, settings: Settings, redactor: Redactor) -> None:
        self.environ = cli_environment(environ, endpoint)
        self._settings = settings
        self.redactor = redactor

    # The one entry

    def command(
        self,
        project: str | None,
        file: Path | None,
        verb: Sequence[str],
        deadline: Deadline,
        *,
        flags: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        attempt_seconds: float | None = None,
        stream: Stream | None = None,
        cancel: threading.Event | None = None,
    ) -> CommandResult:
        """Run ``docker compose [flags] VERB``; ``file`` None works on what bears the project's label.

        Raises CommandNotFoundError without a docker CLI, CommandTimeoutError, CommandCancelledError. The exit code is for the
        caller to judge.
        """
        argv = ["docker", "compose", "--ansi", "never"]
        if project is not None:
            argv += ["-p", project]
        if file is not None:
            argv += ["-f", str(file), "--project-directory", str(file.parent), "--env-file", "/dev/null"]
        argv += [*flags, *verb]
        retries = self._settings.command_retries if verb[0] in IDEMPOTENT else 0
        return run_command(
            argv,
            environ={**self.environ, **(environ or {})},
            cwd=file.parent if file is not None else None,
            deadline=deadline,
            redactor=self.redactor,
            retries=retries,
            attempt_seconds=attempt_seconds if attempt_seconds is not None else self._settings.command_attempt_seconds if retries else None,
            transient=lambda result: not result.ok and failure.is_transient(result.stderr),
            stream=stream,
            cancel=cancel,
            kill_grace_seconds=self._settings.kill_grace_seconds,
        )

    def error(self, result: CommandResult, message: str, *, where: str | None = None) -> GymComposeError:
        """What a failed command means: what ``failure`` recognises in its stderr, else a CommandError with its last lines."""
        return failure.recognise(result.stderr, self.redactor, details=result.tail(10)) or result.error(message, where=where)

    # Verbs

    def version(self, deadline: Deadline) -> tuple[int, int, int]:
        """The plugin's version. Raises ComposeMissingError when there is none or it is too old, DockerUnavailableError without a CLI."""
        try:
            result = self.command(None, None, ["version", "--short"], deadline)
        except CommandNotFoundError as error:
            raise failure.not_installed() from error
        match = _VERSION.match(result.stdout.strip()) if result.ok else None
        needed = ".".join(map(str, MINIMUM_COMPOSE))
        if match is None:
            raise ComposeMissingError(
                "`docker compose` does not work: the compose plugin is missing",
                hint=f"Install the docker compose plugin {needed} or newer (in a checkout: make setup); compose v1 will not do.",
                details=result.tail(3),
            )
        found = (int(match[1]), int(match[2]), int(match[3] or 0))
        if found[:2] < MINIMUM_COMPOSE:
            raise ComposeMissingError(
                f"`docker compose` is {'.'.join(map(str, found))}", hint=f"Version {needed} or newer is needed; update the plugin."
            )
        return found

    def config(self, project: str, file: Path, deadline: Deadline, *, arguments: Sequence[str] = ("--quiet",)) -> str:
        """Let compose read the file; its rendering when ``arguments`` ask for it (``--format json``)."""
        result = self.command(project, file, ["config", *arguments], deadline, flags=("--profile", "*"))
        if not result.ok:
            raise self.error(result, "compose refuses the file", where=str(file))
        return result.stdout

    def up(self, project: str, file: Path, deadline: Deadline, *, services: Sequence[str] = (), stream: Stream | None = None) -> None:
        """Create, recreate and start what differs; no build, no pull, no orphans left. Without ``services`` all that have no profile."""
        bounded = deadline.within(self._settings.compose_create_seconds, "containers to be created")
        verb = ["up", "--detach", "--no-build", "--pull", "never", "--remove-orphans", "--quiet-pull", *services]
        result = self.command(
            project,
            file,
            verb,
            bounded,
            flags=("--progress", "plain", "--parallel", str(self._settings.docker_parallel)),
            attempt_seconds=self._settings.compose_create_seconds,
            stream=stream,
        )
        if not result.ok:
            raise self.error(result, "the containers could not be started", where=f"project {project}")

    def down(self, project: str, file: Path | None, deadline: Deadline, *, stream: Stream | None = None) -> CommandResult:
        """Remove everything of the project, drivers and orphans too: both flags are needed for those (platform.md).

        The result is returned, failed or not: teardown goes on by label.
        """
        return self.command(
            project, file, ["down", "--remove-orphans"], deadline, flags=("--profile", "*", "--progress", "plain"), stream=stream
        )

    def run_detached(
        self,
        project: str,
        file: Path,
        service: str,
        deadline: Deadline,
        *,
        name: str,
        user: str | None = None,
        volumes: Sequence[Volume] = (),
        labels: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> str:
        """``run -d``: a one-off container of ``service`` that outlives this command. Returns its id or name as compose prints it.

        ``environment`` must hold no secret: it stands in argv.
        """
        verb = ["run", "--detach", "--no-deps", "--no-TTY", "--quiet-pull", "--name", name]
        if user is not None:
            verb += ["--user", user]
        for volume in volumes:
            verb += ["--volume", volume.argument()]
        for key, value in sorted((labels or {}).items()):
            verb += ["--label", f"{key}={value}"]
        for key, value in sorted((environment or {}).items()):
            verb += ["--env", f"{key}={value}"]
        result = self.command(
            project, file, [*verb, service, *arguments], deadline.within(self._settings.compose_create_seconds), flags=("--profile", "*")
        )
        if not result.ok:
            raise self.error(result, "the container could not be started", where=f"services/{service}")
        return result.stdout.strip().splitlines()[-1] if result.stdout.strip() else name

    def build(
        self,
        file: Path,
        service: str,
        deadline: Deadline,
        *,
        environ: Mapping[str, str] | None = None,
        stream: Stream | None = None,
        cancel: threading.Event | None = None,
    ) -> CommandResult:
        """Build one image through the engine's BuildKit. The result is returned: its output is the error's text."""
        return self.command(
            None,
            file,
            ["build", service],
            deadline,
            flags=("--progress", "plain"),
            environ={"DOCKER_BUILDKIT": "1", "COMPOSE_BAKE": "false", **(environ or {})},
            stream=stream,
            cancel=cancel,
        )


def cli_environment(environ: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """What the docker CLI gets of the environment: what it needs, the engine's address, and no COMPOSE_* (a foreign project or profile)."""
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    kept.pop("DOCKER_CONTEXT", None)
    kept["DOCKER_HOST"] = endpoint.url
    return kept
