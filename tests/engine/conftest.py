"""Deployments that the tests here share, the command line as a process, and the count of what is left.

Without Docker the tests marked ``docker`` skip; with GYM_COMPOSE_REQUIRE_DOCKER=1 they fail.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gym_compose.engine.select import select_engine
from gym_compose.project.directory import projects_under
from gym_compose.testing import GymDeployment, find_leftovers, reap
from gym_compose.testing.plugin import gym_deployment, gym_reaper, gym_session_deployment  # noqa: F401  where the entry point is not installed
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import PrerequisiteError
from gym_compose.wire.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "servers" / "resources_servers" / "reasoning_gym" / "data"
PREPARE = DATA.parent / "prepare.py"
FAMILIES = ("chain_sum", "letter_counting")


# Docker, or not


@pytest.fixture(scope="session")
def docker_error() -> str | None:
    """Why Docker cannot be used here; None when it can."""
    try:
        select_engine("docker", environ=os.environ, settings=Settings.from_environ(os.environ), deadline=Deadline.after(30, "Docker"))
    except PrerequisiteError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def _docker_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("docker") is None:
        return
    error = request.getfixturevalue("docker_error")
    if error is None:
        return
    if os.environ.get("GYM_COMPOSE_REQUIRE_DOCKER") == "1":
        pytest.fail(f"Docker is required: {error}")
    pytest.skip(error)


# Rows


@pytest.fixture(scope="session")
def demo_data() -> dict[str, Path]:
    """The quickstart's datasets by name (``chain_sum``, ``chain_sum_flat``, …), made where they are not there yet."""
    files = {stem: DATA / f"{stem}.jsonl" for family in FAMILIES for stem in (family, f"{family}_flat")}
    if not all(file.is_file() for file in (*files.values(), DATA / "answers.jsonl")):
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, str(PREPARE), "--demo"], check=True, env=environ, capture_output=True)
    return files


@pytest.fixture(scope="session")
def rows(demo_data: dict[str, Path]) -> Callable[..., list[dict[str, Any]]]:
    """``rows("chain_sum", …, each=10)``: the first rows of each dataset."""

    def read(*names: str, each: int = 50) -> list[dict[str, Any]]:
        return [orjson.loads(line) for name in names for line in demo_data[name].read_bytes().splitlines()[:each]]

    return read


@pytest.fixture
def tree_open_to_others() -> Iterator[None]:
    """Another user can reach this tree while a test lasts: a clone below a directory of mode 0700 is not theirs to enter."""
    closed = [(place, place.stat().st_mode) for place in ROOT.parents if not place.stat().st_mode & stat.S_IXOTH]
    for place, mode in closed:
        place.chmod(mode | stat.S_IXOTH)
    yield
    for place, mode in closed:
        place.chmod(mode)


# An endpoint of this host


class _Endpoint(http.server.BaseHTTPRequestHandler):
    """An OpenAI look-alike that knows one answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        content = [{"type": "output_text", "text": "outside", "annotations": []}]
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1, "total_tokens": 2}
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
        body = {"id": "resp_1", "object": "response", "created_at": 0, "model": "tiny", "status": "completed", "usage": usage}
        body |= {"output": [{**message, "content": content}], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        self._answer(body)

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture(scope="session")
def endpoint() -> Iterator[int]:
    """The port of a model endpoint that listens on every address of this host."""
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), _Endpoint)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


# The shared deployment


@dataclass(frozen=True)
class Shared:
    """One running deployment for all tests that only look: the quickstart's servers, the same tasks over a relay, a model endpoint
    outside with credentials, and a server of the user's own tree. ``secrets`` are the three marker values by kind."""

    gym: GymDeployment
    cwd: Path
    secrets: dict[str, str]
    endpoint: int

    @property
    def server_file(self) -> Path:
        """The user's own server, which a test may edit."""
        return self.cwd / "resources_servers" / "own_tool" / "app.py"


SECRETS = {"api_key": "marker-api-key-5f1d0c", "url": "marker-url-key-77ab31", "list": "marker-list-item-c04e9d"}

EXTRA = """
flat_environment:
  environment_servers:
    legacy_agent: {entrypoint: app.py, agent_server: {type: responses_api_agents, name: reasoning_gym_simple_agent}}

own_tool:
  resources_servers:
    own_tool:
      entrypoint: app.py
      domain: agent
      password: [first, MARKER_LIST]

outside_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: http://127.0.0.1:PORT/v1?api_key=MARKER_URL
      openai_api_key: ${policy_api_key}
      openai_model: tiny

outside_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: own_tool}
      model_server: {type: responses_api_models, name: outside_model}

outside_environment:
  environment_servers:
    legacy_agent: {entrypoint: app.py, agent_server: {type: responses_api_agents, name: outside_agent}}
"""


def own_server(cwd: Path, name: str = "own_tool") -> Path:
    """A copy of an example server in the user's own tree; its directory."""
    target = cwd / "resources_servers" / name
    shutil.copytree(
        ROOT / "servers" / "resources_servers" / "example_single_tool_call",
        target,
        ignore=shutil.ignore_patterns("tests", "__pycache__", "data"),
    )
    return target


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest, demo_data: dict[str, Path], endpoint: int, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    cwd = tmp_path_factory.mktemp("shared")
    own_server(cwd)
    (cwd / "env.yaml").write_text(f"policy_api_key: {SECRETS['api_key']}\n")
    text = EXTRA.replace("MARKER_URL", SECRETS["url"]).replace("MARKER_LIST", SECRETS["list"]).replace("PORT", str(endpoint))
    (cwd / "extra.yaml").write_text(text)
    start = request.getfixturevalue("gym_session_deployment")
    gym = start([ROOT / "configs" / "quickstart.yaml", "extra.yaml"], engine="docker", cwd=cwd)
    return Shared(gym, cwd, SECRETS, endpoint)


# The command line as a process


@dataclass
class Ended:
    """How a command ended; ``text`` is stdout and stderr together."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


@dataclass
class Cli:
    """``gym-compose`` in a directory, as a process of its own. ``prefix`` is put before the command (``setpriv …``)."""

    cwd: Path
    environ: dict[str, str]
    prefix: Sequence[str] = ()
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *arguments: str, seconds: float = 240, **environ: str) -> Ended:
        process = self.start(*arguments, **environ)
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            pytest.fail(f"gym-compose {' '.join(arguments)} took longer than {seconds} s:\n{stdout}{stderr}")
        ended = Ended(process.returncode, stdout, stderr)
        assert "Traceback (most recent call last)" not in ended.text, ended.text
        return ended

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """A command that runs on; in a process group of its own, so that a signal reaches it alone."""
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "gym_compose.cli.main", *arguments],
            cwd=self.cwd,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    @staticmethod
    def read_until(stream: Any, words: str, seconds: float = 120) -> str:
        """Lines of a process's output until one holds ``words``."""
        seen: list[str] = []
        done = threading.Event()

        def read() -> None:
            for line in stream:
                seen.append(line)
                if words in line:
                    break
            done.set()

        threading.Thread(target=read, daemon=True).start()
        assert done.wait(seconds), f"{words!r} did not come within {seconds} s: {''.join(seen)}"
        assert seen, "the output ended without a line"
        assert words in seen[-1], f"{words!r} never came: {''.join(seen)}"
        return "".join(seen)

    @staticmethod
    def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.1)

    def small_config(self, *, tool: str = "own_tool", name: str = "small.yaml", block: dict[str, Any] | None = None, **top: Any) -> str:
        """A config of four servers, one of them (instance ``tool``) in the user's own tree, with a model that needs nothing; its name."""
        if not (self.cwd / "resources_servers" / tool).is_dir():
            own_server(self.cwd, tool)
        agent = {
            "entrypoint": "app.py",
            "resources_server": {"type": "resources_servers", "name": "tool"},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
        }
        model = {"entrypoint": "app.py", "rule": "first_tool_call", "text": "done"}
        relay = {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": "agent"}}
        config = {
            "tool": {"resources_servers": {tool: {"entrypoint": "app.py", "domain": "agent", **(block or {})}}},
            "agent": {"responses_api_agents": {"simple_agent": agent}},
            "policy_model": {"responses_api_models": {"scripted_model": model}},
            "environment": {"environment_servers": {"legacy_agent": relay}},
            **top,
        }
        (self.cwd / name).write_text(yaml.safe_dump(config, sort_keys=False))
        return name

    def projects(self) -> list[str]:
        return [directory.project for directory in projects_under(self.cwd)]

    def leftovers(self) -> str:
        """What is left of all projects of this directory."""
        found = [find_leftovers(project, environ=self.environ) for project in self.projects()]
        return "; ".join(str(left) for left in found if left) or "nothing is left"

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
            process.communicate()


@pytest.fixture
def cli(request: pytest.FixtureRequest, tmp_path: Path, demo_data: dict[str, Path]) -> Iterator[Cli]:
    """The command line in an empty directory. At the end everything that it started has to be gone."""
    request.getfixturevalue("gym_reaper")
    runner = Cli(tmp_path, {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"})
    yield runner
    runner.close()
    left = runner.leftovers()
    reap(tmp_path, environ=runner.environ)  # so that one fault does not make others
    assert left == "nothing is left"
