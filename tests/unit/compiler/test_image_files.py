"""The files under images/: what holds for every Dockerfile, the pins of the native runtime, the base script's exits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILES = sorted((ROOT / "images").rglob("*Dockerfile"))
SCRIPT = ROOT / "images" / "base" / "debootstrap.sh"
SLIM = {"aiohttp", "fastapi", "httptools", "itsdangerous", "orjson", "pydantic", "pyyaml", "uvicorn"}
"""What serving, controller, driver and wire import (design, the native runtime)."""


def pins() -> dict[str, Version]:
    lines = (ROOT / "images/native/requirements.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {item.name.lower(): Version(str(item.specifier).removeprefix("==")) for item in found}


def test_the_native_runtimes_pins_are_exact_and_within_what_the_distribution_asks_for() -> None:
    chosen = pins()
    assert chosen.keys() >= SLIM
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        wanted = Requirement(line)
        if wanted.name.lower() in SLIM:
            assert wanted.specifier.contains(chosen[wanted.name.lower()], prereleases=True), line


def test_nothing_heavy_is_pinned_into_every_server() -> None:
    assert not pins().keys() & {"omegaconf", "hydra-core", "docker", "rich", "httpx", "ray", "pip"}


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_dockerfile_fetches_no_frontend_names_no_host_and_leaves_root(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"^#\s*syntax\s*=", text, re.MULTILINE)  # a frontend image would come from a registry
    assert "://" not in text
    final = text[text.rindex("\nFROM ") :]
    assert not re.search(r"^ARG PIP_", final, re.MULTILINE), "an index URL would stand in the image's history"
    if file.parent.name not in {"base", "build"}:
        users = re.findall(r"^USER (\S+)", final, re.MULTILINE)
        assert users[-1:] in ([], ["10001:10001"])  # none: that of the parent, which is not root


def test_no_final_image_but_the_build_image_gets_a_compiler_or_git() -> None:
    for file in DOCKERFILES:
        if file.parent.name not in {"build", "system"}:  # system: Debian packages that the user asks for by name
            assert not re.search(r"\b(apt-get|gcc|git)\b", re.sub(r"^#.*$", "", file.read_text(), flags=re.MULTILINE)), file


@pytest.mark.parametrize("script", sorted((ROOT / "images").rglob("*.sh")), ids=lambda file: file.name)
def test_scripts_are_valid_bash(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["--import"], ["--what"], ["a", "b"], ["--check", "x"]])
def test_the_base_script_says_how_it_is_used(arguments: list[str]) -> None:
    result = subprocess.run(["bash", str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "usage:" in result.stderr


def test_an_ordinary_user_is_told_the_one_command() -> None:
    argv = ["bash", str(SCRIPT), "--import", "gym-compose/base:0"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed")
        argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *argv]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert result.stderr.splitlines()[-1] == f"Run once: sudo bash {SCRIPT} --import gym-compose/base:0"


def test_a_missing_debootstrap_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user is told to become root first")
    for name in ("bash", "id", "realpath"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    result = subprocess.run(["bash", str(SCRIPT), "--check"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert result.returncode == 4
    assert "apt-get install" in result.stderr.splitlines()[-1]


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("needs root and debootstrap")
    (tmp_path / "precious").write_text("x")
    result = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path)], env={"PATH": f"{os.environ['PATH']}:/usr/sbin"}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def locks() -> list[Path]:
    return sorted((ROOT / "images" / "nemo-gym").glob("[0-9]*.txt"))


@pytest.mark.parametrize("file", locks(), ids=lambda file: file.name)
def test_a_lock_of_the_nemo_gym_runtime_has_exact_versions_and_what_the_launcher_imports(file: Path) -> None:
    found = [Requirement(line) for line in file.read_text().splitlines()]
    versions = {item.name.lower(): str(item.specifier) for item in found}
    assert all(re.fullmatch(r"==[^*,]+", text) for text in versions.values())
    assert versions["nemo-gym"] == "==" + file.stem.split("-")[0]
    assert versions.keys() >= {"pydantic", "orjson", "defusedxml", "ray", "openai"}


def test_the_lock_with_the_sandbox_extra_is_the_plain_one_and_more() -> None:
    plain, sandbox = (set((ROOT / "images" / "nemo-gym" / name).read_text().splitlines()) for name in ("0.7.0.txt", "0.7.0-sandbox.txt"))
    assert plain < sandbox
    assert {line.split("==")[0] for line in sandbox - plain} >= {"tenacity", "opensandbox", "daytona", "e2b", "boto3"}
