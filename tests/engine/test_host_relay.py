"""A model endpoint that listens on this host's loopback interface alone is reached over the host relay (design decision 16)."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gym_compose.compiler.errors import CompileError
from gym_compose.testing import GymDeployment

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CONFIG = """
policy_model:
  responses_api_models:
    openai_model: {entrypoint: app.py, openai_base_url: "http://localhost:PORT/v1", openai_api_key: key, openai_model: tiny}
tool:
  resources_servers:
    example_single_tool_call: {entrypoint: app.py, domain: agent}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: tool}
      model_server: {type: responses_api_models, name: policy_model}
environment:
  environment_servers:
    legacy_agent: {entrypoint: app.py, agent_server: {type: responses_api_agents, name: agent}}
"""
ROW = {"responses_create_params": {"input": "Say something."}}


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Knows one answer."""

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": []})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        content = [{"type": "output_text", "text": "from loopback", "annotations": []}]
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1, "total_tokens": 2}
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
        body = {"id": "resp_1", "object": "response", "created_at": 0, "model": "tiny", "status": "completed", "usage": usage}
        self._answer({**body, "output": [message], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def loopback_port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_rollout_goes_over_the_relay_and_nothing_is_left(loopback_port: int, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace("PORT", str(loopback_port)))
    gym = GymDeployment("c.yaml", engine="docker", cwd=tmp_path)
    with gym:
        relay = gym.project.deployment.service("host-relay")
        assert relay.command[-1] == str(loopback_port)
        (record,) = gym.collect([ROW], agent_name="agent")
        assert record["response"]["output"][-1]["content"][0]["text"] == "from loopback"
        assert f":{loopback_port}" in gym.logs("host-relay")
        assert gym.stop().killed == ()
    assert not gym.leftovers()


def test_it_may_be_forbidden(loopback_port: int, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace("PORT", str(loopback_port)) + "compose: {host_relay: false}\n")
    with pytest.raises(CompileError, match=f"port {loopback_port} of this host is listened on at loopback alone"):
        GymDeployment("c.yaml", engine="docker", cwd=tmp_path).start()
