"""The main job once more as an ordinary user with the right to use Docker: root hides faults of file ownership."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gym_compose.testing import find_leftovers

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; others are one"),
]
ROOT = Path(__file__).resolve().parents[2]
UID = 12345


@pytest.fixture
def user(cli: Any, tree_open_to_others: None) -> Any:
    """The command line as uid 12345, in the group of the Docker socket, with a home of its own."""
    group = Path("/var/run/docker.sock").stat().st_gid
    home = cli.cwd / "home"
    plugins = home / ".docker" / "cli-plugins"
    plugins.mkdir(parents=True)
    own = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins" / "docker-compose"
    if own.is_file():  # else it is installed for everybody
        shutil.copy(own.resolve(), plugins / "docker-compose")
    for place in (cli.cwd, *cli.cwd.rglob("*")):
        os.chown(place, UID, UID)
    for parent in cli.cwd.parents:
        if parent == Path("/tmp"):
            break
        parent.chmod(parent.stat().st_mode | 0o011)
    cli.prefix = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--groups", str(group))
    cli.environ = {**cli.environ, "HOME": str(home), "USER": "somebody", "PYTHONDONTWRITEBYTECODE": "1"}
    cli.environ.pop("DOCKER_CONFIG", None)
    yield cli
    cli.prefix = ()
    cli.environ["HOME"] = os.environ.get("HOME", "/root")


def test_the_main_job_as_an_ordinary_user(user: Any) -> None:
    arguments = ["--config", str(ROOT / "configs" / "quickstart.yaml"), "--engine", "docker"]
    ended = user(
        "eval", "run", *arguments, "--split", "train", "--num-repeats", "2", "--concurrency", "32", "--output", "out/rollouts.jsonl"
    )
    assert ended.code == 0, ended.text
    output = user.cwd / "out" / "rollouts.jsonl"
    assert len(output.read_bytes().splitlines()) == 200
    for file in (user.cwd / "out").rglob("*"):
        assert file.stat().st_uid == UID, file
    assert user.leftovers() == "nothing is left"


def test_servers_run_as_the_user_who_started_them_and_only_they_read_their_secrets(user: Any) -> None:
    config = user.small_config()
    up = user("compose", "up", "-d", "--config", config, "-p", "ordinary", "--engine", "docker")
    assert up.code == 0, up.text
    directory = user.cwd / ".gym" / "ordinary"
    for file in (directory / "slices").glob("*/secret.json"):
        status = file.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (UID, UID, 0o400)
    assert directory.stat().st_mode & 0o777 == 0o700
    example = ROOT / "servers" / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"
    ended = user("eval", "run", "--no-serve", "--input", str(example), "--output", "o.jsonl", "--agent", "agent", "--limit", "2")
    assert ended.code == 0, ended.text
    assert (user.cwd / "o.jsonl").stat().st_uid == UID
    states = json.loads(user("compose", "ps", "--json").stdout)
    assert {state["status"] for state in states} == {"running"}
    down = user("compose", "down")
    assert down.code == 0, down.text
    assert not find_leftovers("ordinary", environ=user.environ)
