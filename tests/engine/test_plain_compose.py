"""After ``gym compose build`` the compose file stands alone: plain ``docker compose`` does the rest."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import httpx
import pytest
import yaml

from gym_compose.project.ports import free_port

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def test_plain_docker_compose_starts_shows_and_stops_what_was_built(cli: Any) -> None:
    port = free_port()
    built = cli("compose", "build", "--config", cli.small_config(), "-p", "plain-test", f"++head_server.port={port}")
    assert built.code == 0, built.text
    file = cli.cwd / ".gym" / "plain-test" / "compose.yaml"
    document = yaml.safe_load(file.read_text())
    assert not any("build" in service for service in document["services"].values())
    assert all(":" in service["image"] for service in document["services"].values())

    def compose(*arguments: str) -> str:
        done = subprocess.run(
            ["docker", "compose", "-f", str(file), *arguments], capture_output=True, text=True, check=False, env=cli.environ
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    compose("config", "--quiet")
    try:
        compose("up", "--detach")
        address = compose("port", "head", "11001").strip()
        assert address == f"127.0.0.1:{port}"

        def ready() -> bool:
            try:
                return httpx.get(f"http://{address}/health", trust_env=False).status_code == 200
            except httpx.HTTPError:
                return False

        cli.wait_for(ready, "the head's 200")
        listed = [json.loads(line) for line in compose("ps", "--format", "json").splitlines() if line]
        assert {entry["Service"] for entry in listed} == {"head", "tool", "agent", "policy_model", "environment"}
        assert "startup complete" in compose("logs", "tool")
        code = "import urllib.request as r; print(r.urlopen('http://policy-model.gym:8000/', timeout=5).status)"
        assert compose("exec", "-T", "agent", "/opt/gym/bin/python", "-c", code).strip() == "200"
        restarted = cli("compose", "ps", "--json")
        assert {state["status"] for state in json.loads(restarted.stdout)} == {"running"}
    finally:
        compose("down")
    assert cli.leftovers() == "nothing is left"


def test_the_config_command_prints_that_file_and_writes_none(cli: Any) -> None:
    config = cli.small_config()
    shown = cli("compose", "config", "--config", config)
    assert shown.code == 0, shown.text
    assert not (cli.cwd / ".gym").exists()
    assert set(yaml.safe_load(shown.stdout)["services"]) == {"head", "tool", "agent", "policy_model", "environment", "driver"}
