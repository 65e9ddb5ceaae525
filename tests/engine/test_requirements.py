"""Requirements, Debian packages and setup steps of one server, really built: what is installed, what is kept, what a failure says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.locks import lock_lines

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]
BUILD = 5


def requirements(cli: Any, text: str) -> None:
    (cli.cwd / "resources_servers" / "own_tool" / "requirements.txt").write_text(text)


def build(cli: Any, config: str, *more: str) -> Any:
    return cli("compose", "build", "--config", config, "--engine", "docker", *more, seconds=600)


def inside(image: str, script: str) -> str:
    done = subprocess.run(["docker", "run", "--rm", image, "sh", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_debian_packages_steps_and_locked_requirements(cli: Any) -> None:
    config = cli.small_config(compose={"servers": {"tool": {"apt": ["hello"], "run": ["hello > built.txt"]}}})
    requirements(cli, "gym-compose\nsix>=1.15,<1.17  # an older one than the newest\n")
    ended = build(cli, config, "--json", "--upgrade")  # an earlier run of this test may have left the image with other versions
    assert ended.code == 0, ended.text
    images = {image["name"]: image for image in json.loads(ended.stdout)}
    (name,) = [name for name, image in images.items() if image["kind"] == "server" and image["used_by"] == ["tool"] and "own" in name][-1:]
    script = (
        "cat /srv/gym/resources_servers/own_tool/built.txt /opt/gym/lock.txt; command -v gcc || command -v git || command -v uv || id -u"
    )
    assert inside(name, script).split("\n")[:3] == ["Hello, world!", "six==1.16.0", "10001"]
    assert any(
        image["kind"] == "base" and set(image["used_by"]) == {"tool", "agent", "policy_model", "environment"} for image in images.values()
    )

    (lock,) = (cli.cwd / ".gym" / "requirements.lock").glob("*.txt")
    assert lock_lines(lock.read_text()) == ("six==1.16.0",)
    assert f"its packages are locked by .gym/requirements.lock/{lock.name}" in cli("compose", "plan", "--config", config).text

    # A lock decides; where it says something else than the image that is there has, that and what stands on it are made again.
    lock.write_text("six==1.15.0\n")
    again = build(cli, config, "--json")
    assert again.code == 0, again.text
    rebuilt = {image["kind"] for image in json.loads(again.stdout) if image["built"]}
    assert rebuilt >= {"requirements", "server"}
    assert "packages" not in rebuilt
    assert inside(name, "cat /opt/gym/lock.txt") == "six==1.15.0\n"
    assert [image["built"] for image in json.loads(build(cli, config, "--json").stdout)].count(True) == 0

    assert build(cli, config, "--upgrade").code == 0
    assert lock_lines(Path(lock).read_text()) == ("six==1.16.0",)


def test_a_requirement_that_does_not_exist_is_named_with_its_line(cli: Any) -> None:
    config = cli.small_config()
    requirements(cli, "gym-compose\n\nno-such-package-xyz==9\n")
    ended = build(cli, config)
    assert ended.code == BUILD, ended.text
    assert "own_tool/requirements.txt:3: no-such-package-xyz==9 cannot be installed" in ended.stderr
    assert "Error: tool: " in ended.stderr
    assert "no-such-package-xyz was not found in the package registry" in ended.stderr


def test_an_address_that_a_build_does_not_reach_is_said_as_such(cli: Any) -> None:
    config = cli.small_config()
    requirements(cli, "gym-compose\nnone @ http://127.0.0.1:9/none-1.0-py3-none-any.whl\n")  # nobody listens there
    ended = build(cli, config)
    assert ended.code == BUILD, ended.text
    assert "own_tool/requirements.txt:2" in ended.stderr
    assert "the build does not reach where they come from" in ended.stderr


def test_a_debian_package_that_does_not_exist_is_named(cli: Any) -> None:
    ended = build(cli, cli.small_config(compose={"servers": {"tool": {"apt": ["no-such-deb-xyz"]}}}))
    assert ended.code == BUILD, ended.text
    assert "there is no Debian package no-such-deb-xyz; it is for tool" in ended.stderr
