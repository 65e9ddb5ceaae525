"""What `gym compose doctor` asks a Docker engine: what it is, whether its builder builds, whether it reaches a registry."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.engine.docker.api import DockerApi, NotFoundInDockerError
from gym_compose.engine.docker.compose import Compose
from gym_compose.engine.errors import ImageBuildError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.settings import Settings

TRIAL_IMAGE = "gym-compose/doctor:trial"
# BuildKit alone knows --chmod; nothing is pulled, nothing is run.
_TRIAL = "FROM scratch\nCOPY --chmod=0444 file /file\n"
_TRIAL_FILE = f"name: gym-compose-doctor\nservices:\n  trial: {{image: '{TRIAL_IMAGE}', build: {{context: .}}}}\n"


@dataclass(frozen=True)
class EngineFacts:
    """Of `docker info`. ``images_directory`` is where the engine keeps images, which may be on another file system than ours."""

    version: str
    api: tuple[int, int]
    cgroup: str
    storage: str
    images_directory: Path
    cpus: int
    memory_bytes: int

    @classmethod
    def of(cls, info: Mapping[str, Any], api: tuple[int, int]) -> EngineFacts:
        """Engines before 20.10 do not name their cgroup version: it is 1."""
        driver = f" ({info['CgroupDriver']})" if info.get("CgroupDriver") else ""
        return cls(
            version=str(info.get("ServerVersion", "?")),
            api=api,
            cgroup=f"v{info.get('CgroupVersion') or 1}{driver}",
            storage=str(info.get("Driver", "?")),
            images_directory=Path(str(info.get("DockerRootDir") or "/var/lib/docker")),
            cpus=int(info.get("NCPU") or 0),
            memory_bytes=int(info.get("MemTotal") or 0),
        )


def engine_facts(api: DockerApi, deadline: Deadline) -> EngineFacts:
    """Raises DockerUnavailableError with the reason and its fix."""
    version = api.ping(deadline)
    return EngineFacts.of(api.info(deadline), version)


def registry_answer(api: DockerApi, reference: str, deadline: Deadline) -> str:
    """What the registry says of ``reference``: ``has it`` or ``does not have it``. Raises the engine's error where it cannot be reached."""
    try:
        api.distribution(reference, deadline)
    except NotFoundInDockerError:
        return "does not have it"
    return "has it"


def trial_build(api: DockerApi, compose: Compose, settings: Settings, deadline: Deadline) -> float:
    """Build an image of one file with BuildKit and remove it; the seconds it took. Raises ImageBuildError with the builder's words."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gym-compose-doctor-") as directory:
        context = Path(directory)
        for name, text in (("Dockerfile", _TRIAL), ("file", "built\n"), ("build.yaml", _TRIAL_FILE)):
            (context / name).write_text(text, encoding="utf-8")
        result = compose.build(context / "build.yaml", "trial", deadline)
    try:
        if not result.ok:
            raise ImageBuildError(
                f"the builder cannot build an image of one file (exit code {result.exit_code})",
                hint="gym compose needs BuildKit: an engine from 20.10 on has it; compose v5 and newer want the buildx plugin too.",
                details=result.tail(settings.build_tail_lines),
            )
        return time.monotonic() - started
    finally:
        api.remove_image(TRIAL_IMAGE, deadline)
