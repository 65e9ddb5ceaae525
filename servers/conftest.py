"""For the tests of the server directories: their sibling modules import by plain name, as they do beside a running app.py."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from gym_compose import __version__
from gym_compose.serving.client import HttpClient
from gym_compose.wire.slice import PublicSlice

SERVERS = Path(__file__).resolve().parent

for _requirements in sorted(SERVERS.glob("*/*/requirements.txt")):
    if str(_requirements.parent) not in sys.path:
        sys.path.append(str(_requirements.parent))


def _load(directory: str) -> ModuleType:
    name = directory.replace("/", "_") + "_app"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SERVERS / directory / "app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        # A running app.py has its own directory first, and task_data.py is a name that every directory may use.
        sys.path.insert(0, str(SERVERS / directory))
        sys.modules.pop("task_data", None)
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(SERVERS / directory))
    return sys.modules[name]


@pytest.fixture(scope="session")
def load_app() -> Callable[[str], ModuleType]:
    """``load_app("resources_servers/reasoning_gym")``: the module app.py, under a name of its own."""
    return _load


@dataclass
class ServerStack:
    """Servers as processes of this host, each started by the launcher from a slice of its own."""

    directory: Path
    config: dict[str, Any] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, blocks: dict[str, Any], *, seconds: float = 60.0) -> None:
        """Start the instances of a merged config: ``{instance: {server type: {implementation: block}}}``. Returns when all answer."""
        for outer in blocks.values():
            for inner in outer.values():
                for block in inner.values():
                    block |= {"entrypoint": "app.py", "host": "127.0.0.1", "port": free_port()}
        self.config = {**blocks, "head_server": {"host": "127.0.0.1", "port": 11000}, "dry_run": False}
        for instance, outer in blocks.items():
            ((server_type, inner),) = outer.items()
            ((implementation, _),) = inner.items()
            self._launch(instance, server_type, implementation)
        deadline = time.monotonic() + seconds
        for instance, process in self.processes.items():
            while not self._answers(instance):
                assert process.poll() is None, self.log(instance)
                assert time.monotonic() < deadline, f"{instance} does not answer: {self.log(instance)}"
                time.sleep(0.05)

    def _launch(self, instance: str, server_type: str, implementation: str) -> None:
        public = PublicSlice(
            gym_compose=__version__,
            instance=instance,
            server_type=server_type,
            implementation=implementation,
            entrypoint="app.py",
            server_dir=str(SERVERS / server_type / implementation),
            runtime="native",
            config=self.config,
        )
        path = self.directory / f"{instance}.json"
        path.write_text(public.model_dump_json())
        environ = {**os.environ, "PYTHONPATH": str(SERVERS.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        with (self.directory / f"{instance}.log").open("wb") as log:
            command = [sys.executable, "-m", "gym_compose.serving.launch", "--slice", str(path)]
            self.processes[instance] = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def url(self, instance: str) -> str:
        block = next(iter(next(iter(self.config[instance].values())).values()))
        return f"http://{block['host']}:{block['port']}"

    def _answers(self, instance: str) -> bool:
        try:
            with urllib.request.urlopen(self.url(instance), timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def log(self, instance: str) -> str:
        return (self.directory / f"{instance}.log").read_text()

    def resident_megabytes(self, instance: str) -> float:
        status = Path(f"/proc/{self.processes[instance].pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024

    def stop(self) -> dict[str, int]:
        """Stop all with SIGTERM, and with SIGKILL what does not end; exit codes by instance."""
        for process in self.processes.values():
            process.terminate()
        codes: dict[str, int] = {}
        for instance, process in self.processes.items():
            try:
                codes[instance] = process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[instance] = process.wait()
        return codes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ServerStack]:
    """A stack to ``start``; stopped at the end, every server with exit code 0."""
    stack = ServerStack(tmp_path)
    try:
        yield stack
    finally:
        codes = stack.stop()
    assert set(codes.values()) <= {0}, {name: stack.log(name) for name, code in codes.items() if code}


MOCK_ENDPOINT = SERVERS.parents[1] / "shared" / "tools" / "mock_openai.py"


@pytest.fixture
def mock_endpoint(tmp_path: Path) -> Iterator[str]:
    """``base_url`` of the endpoint that the golden runs were made with: one tool call, then a text."""
    if not MOCK_ENDPOINT.is_file():
        pytest.skip(f"no mock endpoint at {MOCK_ENDPOINT}")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "mock_openai:app", "--app-dir", str(MOCK_ENDPOINT.parent), "--port", str(port)]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with (tmp_path / "mock.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "mock.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(timeout=15)


ServerFactory = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def serve(load_app: Callable[[str], ModuleType]) -> AsyncIterator[ServerFactory]:
    """``serve("resources_servers/x", "ClassName", {block}, peers={name: url})``: a client of the application, without a process."""
    clients: list[httpx.AsyncClient] = []
    pools: list[HttpClient] = []

    def make(
        directory: str, class_name: str, block: dict[str, Any], *, instance: str = "served", peers: dict[str, str] | None = None
    ) -> Any:
        server_type, implementation = directory.split("/")
        address = {"entrypoint": "app.py", "host": "served", "port": 80}
        merged: dict[str, Any] = {instance: {server_type: {implementation: {**block, **address}}}, "dry_run": False}
        for name, url in (peers or {}).items():
            host, _, port = url.removeprefix("http://").partition(":")
            merged.setdefault(name, {"peer": {"peer": {"host": host, "port": int(port)}}})
            if name == instance:
                merged[name][server_type][implementation] |= {"host": host, "port": int(port)}
        http = HttpClient()
        pools.append(http)
        server = getattr(load_app(directory), class_name).from_config(merged, instance, environ={}, http=http)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=server.app(), raise_app_exceptions=False), base_url="http://served")
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()
    for pool in pools:
        await pool.close()
