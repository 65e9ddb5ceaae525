"""A fresh machine: the tree copied into a clean container (no caches, no home), and the set-up there."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.assets import read_assets
from gym_compose.compiler.images import base_image
from gym_compose.wire.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {".venv", ".gym", ".git", ".cache", "results", "outputs", "build", "dist"}
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)


def docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"docker {arguments[0]}:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture
def machine(shared: Any, tmp_path: Path) -> Iterator[str]:
    """A running container of the base image with the tree in /src, an unknown user's HOME, and nothing else; its name."""
    base = base_image(read_assets(ROOT), Settings.from_environ(os.environ).base_image).name
    archive = tmp_path / "tree.tar"

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(member.name).parts
        hidden = any(part in LEFT_OUT or part == "__pycache__" or part.endswith("_cache") for part in parts)
        return None if hidden or member.name.endswith(".pyc") else member

    with tarfile.open(archive, "w") as tar:
        tar.add(ROOT, arcname="src", filter=wanted)
    name = f"gym-clean-setup-{secrets.token_hex(3)}"
    environ = [option for variable in PASSED_ON if variable in os.environ for option in ("--env", variable)]
    certificates = ["--volume", f"{CA_BUNDLE}:{CA_BUNDLE}:ro", "--env", f"PIP_CERT={CA_BUNDLE}"] if Path(CA_BUNDLE).is_file() else []
    docker("run", "--detach", "--init", "--user", "0", "--name", name, *environ, *certificates, base, "sleep", "1800")
    try:
        with archive.open("rb") as stream:
            subprocess.run(["docker", "cp", "-", f"{name}:/"], stdin=stream, check=True, capture_output=True)
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def test_the_setup_works_in_a_clean_container_and_the_demo_runs_there_as_processes(machine: str) -> None:
    assert shutil.which("docker")
    tools = "apt-get update -q >/dev/null && apt-get install -q --yes --no-install-recommends make >/dev/null"
    docker("exec", machine, "sh", "-c", tools)
    output = docker("exec", "--workdir", "/src", machine, "make", "setup")
    assert "as processes" in output
    again = docker("exec", "--workdir", "/src", machine, "make", "setup")
    assert "installing" not in again, "the second set-up did it all again"
    shown = docker(
        "exec",
        "--workdir",
        "/src",
        machine,
        ".venv/bin/gym-compose",
        "compose",
        "plan",
        "--config",
        "configs/quickstart.yaml",
        "--engine",
        "process",
    )
    assert "reasoning_gym" in shown
    demo = docker("exec", "--workdir", "/src", machine, "make", "demo")
    assert "rollouts.jsonl" in demo
    lines = docker("exec", machine, "sh", "-c", "wc -l < /src/results/demo/rollouts.jsonl")
    assert lines.strip() == "200"
    left = docker("exec", machine, "sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert "gym_compose.serving.launch --slice" not in left
