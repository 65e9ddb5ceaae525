"""Servers that are built from a Dockerfile of their own, in any language: HTTP is the only contract (design decision 2)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

SERVERS = Path(__file__).parent / "servers"
NOT_READY, BUILD = 6, 5
TOOL = {
    "type": "function",
    "name": "add",
    "description": "The sum of two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    "strict": True,
}


def put(cwd: Path, name: str, **files: str) -> Path:
    """A resources server in the user's tree, made of ``files`` (``Dockerfile="…"``) or copied from ``servers/``."""
    directory = cwd / "resources_servers" / name
    if files:
        directory.mkdir(parents=True)
        for file, text in files.items():
            (directory / file).write_text(text)
    else:
        shutil.copytree(SERVERS / "resources_servers" / name, directory)
    return directory


def config(cwd: Path, tool: str, **top: Any) -> str:
    """A config with the resources server ``tool`` (an instance of that name) and native servers around it."""
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": tool},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    document = {
        tool: {
            "resources_servers": {tool: {"entrypoint": "Dockerfile", "domain": "math", "reward": 0.5, "api_key": "marker-own-key-3c1f"}}
        },
        "agent": {"responses_api_agents": {"simple_agent": agent}},
        "policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "rule": "first_tool_call", "text": "done"}}},
        "environment": {
            "environment_servers": {
                "legacy_agent": {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": "agent"}}
            }
        },
        **top,
    }
    (cwd / "own.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return "own.yaml"


def test_a_server_in_another_language_answers_a_whole_rollout(gym_deployment: Any, tmp_path: Path) -> None:
    directory = put(tmp_path, "perl_adder")
    (directory / "notes.md").write_text("left out by .dockerignore\n")
    gym = gym_deployment(config(tmp_path, "perl_adder"), engine="docker", cwd=tmp_path)
    row = {"responses_create_params": {"input": [{"role": "user", "content": "Add."}], "tools": [TOOL]}, "agent_ref": {"name": "agent"}}
    records = gym.collect([row, row], num_repeats=2)
    assert [record["reward"] for record in records] == [0.5] * 4  # its own config reached it
    assert all(len(record["sums"]) == 1 for record in records)  # one session each
    assert gym.last_summary is not None

    service = gym.project.deployment.service("perl_adder")
    container = gym.docker.api.inspect(gym.observe().state("perl_adder").identity, Deadline.after(20))
    assert container["Config"]["Cmd"] == ["perl", "app.pl"]
    assert container["HostConfig"]["ReadonlyRootfs"]
    assert "marker-own-key-3c1f" not in str(container)
    assert "marker-own-key-3c1f" in gym.exec("perl_adder", "cat", "/run/secrets/config").stdout
    listed = gym.exec("perl_adder", "ls", "-A", "/server").stdout.split()
    assert sorted(listed) == [".dockerignore", "Dockerfile", "app.pl"]

    # What .dockerignore leaves out changes nothing; what it does not changes this image.
    (directory / "notes.md").write_text("other words\n")
    assert gym.load().deployment.service("perl_adder").image == service.image
    (directory / "app.pl").write_text((directory / "app.pl").read_text() + "# edited\n")
    assert gym.load().deployment.service("perl_adder").image != service.image


def test_one_that_does_not_listen_where_it_should_is_named_with_what_it_listens_on(cli: Any) -> None:
    text = "ARG GYM_BASE\nFROM ${GYM_BASE}\n"
    serve = "h.HTTPServer(('127.0.0.1', 9123), h.SimpleHTTPRequestHandler).serve_forever()"
    script = f"import http.server as h; print('here I am', flush=True); {serve}"
    put(cli.cwd, "shy", Dockerfile=text + f'CMD ["python3", "-c", "{script}"]\n')
    ended = cli(
        "compose", "up", "-d", "--config", config(cli.cwd, "shy", server_spinup_timeout_seconds=6), "--engine", "docker", seconds=550
    )
    assert ended.code == NOT_READY, ended.text
    assert "shy" in ended.stderr
    assert "it listens on 127.0.0.1:9123 only" in ended.stderr
    assert "port 8000" in ended.stderr
    assert "here I am" in ended.stderr
    assert cli.leftovers() == "nothing is left"


def test_one_that_cannot_be_built_shows_the_end_of_its_output(cli: Any) -> None:
    put(cli.cwd, "broken", Dockerfile="ARG GYM_BASE\nFROM ${GYM_BASE}\nRUN echo about to fail && exit 7\n")
    ended = cli("compose", "up", "-d", "--config", config(cli.cwd, "broken"), "--engine", "docker", seconds=550)
    assert ended.code == BUILD, ended.text
    assert "broken" in ended.stderr
    assert "about to fail" in ended.stderr
    assert not cli.projects() or cli.leftovers() == "nothing is left"


def test_an_image_that_is_named_runs_as_it_is_and_one_that_is_nowhere_is_an_error(cli: Any) -> None:
    named = config(cli.cwd, "judge", compose={"servers": {"judge": {"image": "localhost:1/judge-nowhere:1"}}})
    ended = cli("compose", "up", "-d", "--config", named, "--engine", "docker", seconds=550)
    assert ended.code == BUILD, ended.text
    assert "localhost:1/judge-nowhere:1 cannot be pulled" in ended.stderr
    assert "judge" in ended.stderr
