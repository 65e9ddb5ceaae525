"""Rows of ``gym env status`` (contract-config 3.4)."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gym_compose.cli.status import probe, rows, show, uptime
from gym_compose.wire.head import HealthReport, InstanceHealth, InstanceRecord

KEYS = [
    "config_path", "dir_path", "entrypoint", "host", "name", "pid", "port", "process_name", "server_type", "start_time", "status",
    "uptime_seconds", "url",
]  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/missing" else 200)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_any_http_answer_is_success(server: str) -> None:
    assert probe(server, 2.0) == "success"
    assert probe(f"{server}/missing", 2.0) == "success"


def test_who_does_not_answer() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert probe(f"http://127.0.0.1:{port}", 1.0) == "connection_error"
        listening.listen()
        assert probe(f"http://127.0.0.1:{port}", 0.2) == "timeout"
    assert probe(None, 1.0) == "unknown_error"
    assert probe("nonsense", 1.0) == "unknown_error"


def record(name: str, url: str | None, start: float | None = 100.0) -> InstanceRecord:
    return InstanceRecord(
        config_path=name, dir_path="/d", entrypoint="app.py", host="h", name="impl", pid=7, port=1, process_name=name,
        server_type="resources_servers", start_time=start, url=url,
    )  # fmt: skip


def test_the_json_form(server: str) -> None:
    found = rows([record("a", server), record("b", None, None)], None, seconds=2.0, now=161.5)
    assert list(found[0]) == KEYS
    assert found[0] == {
        "config_path": None, "dir_path": None, "entrypoint": "app.py", "host": "h", "name": "impl", "pid": 7, "port": 1,
        "process_name": "a", "server_type": "resources_servers", "start_time": None, "status": "success", "uptime_seconds": 61.5,
        "url": server,
    }  # fmt: skip
    assert (found[1]["status"], found[1]["uptime_seconds"]) == ("unknown_error", None)


def test_a_server_that_is_not_published_counts_as_our_head_says() -> None:
    missing = InstanceHealth(name="b", kind="server", state="unreachable", url="http://b.gym:8000")
    health = HealthReport(status="ok", phase="ready", elapsed_seconds=1.0, unreachable=(missing,))
    found = rows([record("a", None), record("b", None)], health, seconds=1.0, now=0.0)
    assert [row["status"] for row in found] == ["success", "connection_error"]


def test_the_text_form(captured: Any) -> None:
    health = HealthReport(status="ok", phase="ready", elapsed_seconds=1.0)
    show(rows([record("a", None), record("b", "nonsense")], health, seconds=1.0, now=100.0), captured.console)
    lines = captured.stdout.splitlines()
    assert lines[0] == "[1] ✓ a (resources_servers/impl)"
    assert lines[2] == "[2] ✗ b (resources_servers/impl)"
    assert "'uptime': '0d 0h 0m 0.0s'" in lines[1]
    assert "'status': 'unknown_error'" in lines[3]
    assert lines[4] == "1 healthy, 1 unhealthy"


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "unknown"), (0.04, "0d 0h 0m 0.0s"), (93784.5, "1d 2h 3m 4.5s"), (-5.0, "0d 0h 0m 0.0s")]
)
def test_uptime(seconds: float | None, text: str) -> None:
    assert uptime(seconds) == text
