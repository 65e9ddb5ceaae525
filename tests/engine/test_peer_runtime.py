"""NeMo Gym's own servers, unmodified, one container each: its four-server example, through our driver and through its own client.

``GYM_COMPOSE_PEER_ROOT``: an unpacked nemo-gym 0.7.0 wheel (default: ``.cache/peer``, downloaded with pip). ``GYM_COMPOSE_SHARED``: the
directory that holds ``golden`` and ``tools`` (default: ``../shared``). Without them the tests skip; with ``GYM_COMPOSE_REQUIRE_PEER=1``
they fail.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.peer.beside import settled
from gym_compose.testing import GymDeployment
from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
PEER = "nemo-gym==0.7.0"
SITE = "/opt/gym/lib/python3.13/site-packages"
AGENT = "example_single_tool_call_simple_agent"
CONFIG = """
config_paths:
- resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml
- responses_api_models/openai_model/configs/openai_model.yaml
policy_base_url: http://127.0.0.1:PORT/v1
policy_api_key: marker-peer-key-90ab
policy_model_name: mock
"""


def missing(what: str) -> None:
    if os.environ.get("GYM_COMPOSE_REQUIRE_PEER") == "1":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module")
def peer_root() -> Path:
    given = os.environ.get("GYM_COMPOSE_PEER_ROOT")
    root = Path(given).resolve() if given else ROOT / ".cache" / "peer"
    if not given and not (root / "nemo_gym").is_dir():
        wheels = root.parent / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.13.14"]
        done = subprocess.run([*command, "--dest", str(wheels), PEER], capture_output=True, text=True, timeout=300, check=False)
        found = sorted(wheels.glob("nemo_gym-*.whl"))
        if done.returncode != 0 or not found:
            missing(f"{PEER} cannot be downloaded: {done.stderr.strip()[-300:]}")
        with zipfile.ZipFile(found[0]) as wheel:
            wheel.extractall(root)
    return root


@pytest.fixture(scope="module")
def shared_directory() -> Path:
    directory = Path(os.environ.get("GYM_COMPOSE_SHARED", ROOT.parent / "shared"))
    if not (directory / "tools" / "mock_openai.py").is_file():
        missing(f"no tools and golden data at {directory}")
    return directory


@pytest.fixture(scope="module")
def mock_port(shared_directory: Path) -> Iterator[int]:
    """The port of the model endpoint that the golden run had, on every address of this host."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "mock_openai:app", "--host", "0.0.0.0", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=shared_directory / "tools")
    try:
        end = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, "the mock ended"
                assert time.monotonic() < end, "the mock does not answer"
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def started(cwd: Path, root: Path, port: int, extra: str) -> GymDeployment:
    (cwd / "four.yaml").write_text(CONFIG.replace("PORT", str(port)) + extra)
    return GymDeployment("four.yaml", engine="docker", cwd=cwd, roots=[root])


@pytest.fixture(scope="module")
def peer(peer_root: Path, mock_port: int, tmp_path_factory: pytest.TempPathFactory, docker_error: str | None) -> Iterator[GymDeployment]:
    if docker_error is not None:
        pytest.skip(docker_error)
    gym = started(tmp_path_factory.mktemp("peer"), peer_root, mock_port, "compose: {runtime: nemo-gym, publish: [environment]}\n")
    with gym:
        yield gym
        assert gym.stop().killed == ()  # NeMo Gym kills three of these four
    assert not gym.leftovers(), str(gym.leftovers())


def read(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def in_order(records: list[dict[str, Any]]) -> list[Any]:
    return [settled(record) for record in sorted(records, key=lambda record: (record["_ng_task_index"], record["_ng_rollout_index"]))]


def docker(*arguments: str, seconds: float = 120) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_servers_give_the_records_that_it_gives_itself(peer: GymDeployment, shared_directory: Path, tmp_path: Path) -> None:
    golden = shared_directory / "golden" / "peer_run"
    output = tmp_path / "rollouts.jsonl"
    records = peer.collect(golden / "rows.jsonl", output=output, num_repeats=2, agent_name=AGENT)
    assert in_order(records) == in_order(read(golden / "example_single_tool_call" / "rollouts.jsonl"))
    metrics = orjson.loads((tmp_path / "rollouts_aggregate_metrics.json").read_bytes())
    assert metrics == orjson.loads((golden / "example_single_tool_call" / "rollouts_aggregate_metrics.json").read_bytes())


@pytest.fixture
def client_directory(shared_directory: Path, tmp_path: Path) -> Path:
    """Where the peer's client works, with the rows of the golden run; another user writes into it."""
    work = tmp_path / "client"
    work.mkdir()
    work.chmod(0o777)
    (work / "rows.jsonl").write_bytes((shared_directory / "golden" / "peer_run" / "rows.jsonl").read_bytes())
    return work


def in_peers_environment(peer: GymDeployment, network: str, work: Path, *command: str) -> str:
    """A command of the peer's own environment. On ``host`` it stands in this host's network namespace: it reaches what is published and
    nothing else of ours (this host's own Python is too old to hold nemo-gym)."""
    image = peer.project.deployment.service("policy_model").image
    return docker("run", "--rm", "--network", network, "-v", f"{work}:/w", "-w", "/w", image, *command, seconds=300)


def where_from(peer: GymDeployment, side: str) -> tuple[str, str, int]:
    """Network, head server's host and port for the peer's client: on the servers' network, or on this host."""
    if side == "network":
        return f"{peer.name}_servers", "head.gym", 11000
    return "host", "127.0.0.1", int(peer.head_url.rpartition(":")[2])


@pytest.mark.parametrize("side", ["network", "host"])
def test_its_own_client_works_against_our_head_server(
    peer: GymDeployment, shared_directory: Path, client_directory: Path, side: str
) -> None:
    network, host, port = where_from(peer, side)
    client = ["/opt/gym/bin/gym", "eval", "run", "--no-serve", "--agent", AGENT, "--input", "rows.jsonl", "--num-repeats", "2"]
    where = ["--output", "out.jsonl", f"++head_server.host={host}", f"++head_server.port={port}"]
    in_peers_environment(peer, network, client_directory, *client, *where)
    golden = shared_directory / "golden" / "peer_run" / "example_single_tool_call"
    assert in_order(read(client_directory / "out.jsonl")) == in_order(read(golden / "rollouts.jsonl"))


SERVER_CLIENT = """
import asyncio, json
from nemo_gym.server_utils import BaseServerConfig, ServerClient

async def main():
    client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=PORT))
    with open("rows.jsonl") as rows:
        row = json.loads(rows.readline())
    answer = await client.post(server_name="example_single_tool_call_environment_server", url_path="/run", json=row)
    with open("answer.json", "w") as file:
        json.dump({"status": answer.status, "body": await answer.json()}, file)

asyncio.run(main())
"""


def test_its_own_server_client_gets_a_rollout_from_the_host(peer: GymDeployment, client_directory: Path) -> None:
    _, _, port = where_from(peer, "host")
    (client_directory / "ask.py").write_text(SERVER_CLIENT.replace("PORT", str(port)))
    in_peers_environment(peer, "host", client_directory, "/opt/gym/bin/python", "ask.py")
    answer = orjson.loads((client_directory / "answer.json").read_bytes())
    assert answer["status"] == 200
    assert answer["body"]["reward"] == 1.0
    assert [item["type"] for item in answer["body"]["response"]["output"]][:2] == ["function_call", "function_call_output"]


def test_each_server_is_a_hardened_container_without_the_key_of_others_and_without_ray(peer: GymDeployment) -> None:
    for service in peer.project.deployment.services:
        if service.role != "server":
            continue
        container = f"{peer.name}-{service.name}-1"
        facts = orjson.loads(docker("inspect", container))[0]
        assert facts["HostConfig"]["ReadonlyRootfs"]
        assert facts["Config"]["User"] not in ("", "0", "root")
        assert "marker-peer-key-90ab" not in docker("inspect", container)
        assert service.slice is not None
        assert service.slice.server_dir.startswith(SITE)
        processes = docker("top", container, "-eo", "pid,args")
        assert "raylet" not in processes
        assert "gcs_server" not in processes
        has_key = service.name == "policy_model"
        assert ("marker-peer-key-90ab" in docker("exec", container, "cat", "/run/secrets/slice")) == has_key


def test_the_image_has_neither_compiler_nor_git_and_its_directories_are_writable_where_they_must(peer: GymDeployment) -> None:
    container = f"{peer.name}-example_single_tool_call-1"
    directory = f"{SITE}/resources_servers/example_single_tool_call"
    script = (
        f"command -v gcc || command -v git || command -v uv || touch {directory}/cache/x {directory}/outputs/x && ! touch {directory}/x"
    )
    said = docker("exec", container, "sh", "-c", script)
    assert said == ""


TYPES = {
    "example_single_tool_call": "resources_servers/example_single_tool_call",
    AGENT: "responses_api_agents/simple_agent",
    "example_single_tool_call_environment_server": "environment_servers/legacy_agent",
    "policy_model": "responses_api_models/openai_model",
}


@pytest.mark.parametrize(
    "peers",
    [
        pytest.param({AGENT}, id="its agent between our environment server, resources server and model"),
        pytest.param({"example_single_tool_call", "example_single_tool_call_environment_server"}, id="our agent between its servers"),
    ],
)
def test_native_and_peer_servers_work_together(
    peers: set[str], peer_root: Path, mock_port: int, shared_directory: Path, tmp_path: Path
) -> None:
    """Without the runtime key ours are taken where we have one; here ``peers`` are made copies in the user's own tree."""
    for name in peers:
        own = tmp_path / TYPES[name]
        own.mkdir(parents=True)
        for file in ("app.py", "requirements.txt"):
            (own / file).write_bytes((peer_root / TYPES[name] / file).read_bytes())
    golden = shared_directory / "golden" / "peer_run"
    with started(tmp_path, peer_root, mock_port, "") as gym:
        runtimes = {service.name: service.slice.runtime for service in gym.project.deployment.services if service.slice}
        assert runtimes == {name: "nemo-gym" if name in peers else "native" for name in TYPES}
        records = gym.collect(golden / "rows.jsonl", num_repeats=1, agent_name=AGENT)
        assert [record["reward"] for record in records] == [1.0] * len(read(golden / "rows.jsonl"))
        report = gym.project.down(Deadline.after(120, "down"), lambda _: None)
        assert not report.killed
