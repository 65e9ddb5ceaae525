"""What is looked at on this host, whichever engine: Python, whose ``gym`` is called, the CA bundle, disk for projects."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gym_compose import __version__
from gym_compose.doctor.check import Check
from gym_compose.project.directory import GYM_DIRECTORY
from gym_compose.project.options import CA_VARIABLES, ca_bundle

GIBIBYTE = 2**30
LEAST_FREE_BYTES = 1 * GIBIBYTE
"""Below this nothing of use fits: the base and the native runtime alone take 0.3 GB."""
GOOD_FREE_BYTES = 8 * GIBIBYTE
"""What NeMo Gym's runtime (1.4 GB), a few requirement sets and the builder's cache of them take."""
_SCRIPT_BYTES = 4096


@dataclass(frozen=True)
class Host:
    """Where the command runs. ``python`` is this process's interpreter."""

    environ: Mapping[str, str]
    cwd: Path
    python: Path

    @property
    def path(self) -> str:
        return self.environ.get("PATH", "")


def host_checks(host: Host) -> Iterator[Check]:
    """All of them, in the order in which they are shown."""
    yield python_check(host)
    yield command_check(host)
    yield ca_check(host)
    yield disk_check("disk for projects", host.cwd, f"{host.cwd / GYM_DIRECTORY}")


def python_check(host: Host) -> Check:
    """Which Python and which packages this command is of. One that is too old could not have come here."""
    beside = "NeMo Gym beside it" if importlib.util.find_spec("nemo_gym") is not None else "without NeMo Gym"
    return Check("Python", "ok", f"{platform.python_version()} at {host.python}: gym_compose {__version__}, {beside}")


def command_check(host: Host) -> Check:
    """Whose ``gym`` a shell would find: both packages install one, and who was installed last has it."""
    name = "gym on PATH"
    found = shutil.which("gym", path=host.path)
    other = shutil.which("gym-compose", path=host.path)
    if found is None:
        where = f"only gym-compose ({other})" if other else "nor is gym-compose"
        return Check(name, "warn", f"gym is not on PATH, {where}", f"Put it first: export PATH={host.python.parent}:$PATH")
    owner = owner_of(Path(found))
    if owner == "ours":
        if Path(found).parent == host.python.parent:
            return Check(name, "ok", f"ours ({found})")
        return Check(
            name,
            "warn",
            f"{found} is gym_compose's of another environment than this command's ({host.python.parent})",
            f"If that is not meant: export PATH={host.python.parent}:$PATH",
        )
    whose = "NeMo Gym's own" if owner == "nemo-gym" else "neither ours nor NeMo Gym's"
    return Check(
        name,
        "warn",
        f"{found} is {whose}",
        f"gym-compose is always ours ({other or host.python.parent / 'gym-compose'}). "
        "To have gym as well: pip install --force-reinstall --no-deps gym-compose, in the environment that comes first on PATH.",
    )


def owner_of(script: Path) -> str:
    """``ours``, ``nemo-gym`` or ``another``: by what the script imports."""
    try:
        with script.open("rb") as stream:
            text = stream.read(_SCRIPT_BYTES)
    except OSError:
        return "another"
    if b"gym_compose" in text:
        return "ours"
    return "nemo-gym" if b"nemo_gym" in text else "another"


def ca_check(host: Host) -> Check:
    """Which CA bundle image builds get, so that they reach an index behind this host's proxy."""
    name = "CA bundle"
    missing = [f"{key}={value}" for key in CA_VARIABLES if (value := host.environ.get(key)) and not Path(value).is_file()]
    found = ca_bundle(host.environ)
    if missing:
        return Check(name, "warn", f"{', '.join(missing)}: no such file; {found or 'none'} is used", "Correct the variable or unset it.")
    if found is None:
        return Check(
            name, "warn", "none found: image builds have the base's alone", "Name the file in SSL_CERT_FILE, or install ca-certificates."
        )
    return Check(name, "ok", found)


def disk_check(name: str, place: Path, shown: str) -> Check:
    """Free space of the file system that holds ``place``, or will."""
    existing = next(path for path in (place, *place.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    said = f"{free / GIBIBYTE:.1f} GiB free ({shown})"
    if free < LEAST_FREE_BYTES:
        return Check(name, "fail", said, "Free some: docker system df shows what images and the builder's cache take.")
    if free < GOOD_FREE_BYTES:
        return Check(
            name, "warn", said, f"NeMo Gym's runtime with a few servers' requirements takes about {GOOD_FREE_BYTES // GIBIBYTE} GiB."
        )
    return Check(name, "ok", said)
