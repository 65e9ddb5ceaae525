"""The head server's answers on both listeners, and its process (contract-config 3; design decisions 7, 9, 15)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gym_compose.controller.document import read_document, read_secret, reveal
from gym_compose.controller.head import Listening, serve
from gym_compose.controller.views import config_text
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.head import HeadDocument, HeadSecret
from gym_compose.wire.settings import Settings
from gym_compose.wire.slice import SecretValue

INSTANCE_KEYS = [
    *("config_path", "dir_path", "entrypoint", "host", "name", "pid", "port"),
    *("process_name", "server_type", "start_time", "status", "uptime_seconds", "url"),
]


def head_document(port: int, directory: Path, **changes: Any) -> dict[str, Any]:
    return {
        "gym_compose": "0.1.0",
        "project": "demo",
        "engine": "docker",
        "config": {
            "z_env": {"environment_servers": {"legacy_agent": {"entrypoint": "app.py", "host": "z-env.gym", "port": 8000}}},
            "policy": {"responses_api_models": {"m": {"api_key": "****", "host": "policy.gym", "port": 8000}}},
            "policy_api_key": "****",
            "head_server": {"host": "head.gym", "port": 11000},
            "dry_run": False,
        },
        "instances": [
            {
                "config_path": name,
                "dir_path": f"/srv/gym/x/{name}",
                "entrypoint": "app.py",
                "host": "127.0.0.1",
                "name": "impl",
                "pid": None,
                "port": port,
                "process_name": name,
                "server_type": "environment_servers",
                "url": f"http://127.0.0.1:{port}",
            }
            for name in ("z_env", "policy")
        ],
        "server_spinup_timeout_seconds": 60,
        "model_endpoint_readiness_timeout_seconds": 0,
        "listen": {"host": "127.0.0.1", "port": 0},
        "listen_published": {"host": "127.0.0.1", "port": 0},
        "published_file": str(directory / "addresses.json"),
        **changes,
    }


class Server:
    """The one server that all instances point at; it can be taken away and brought back."""

    def __init__(self) -> None:
        self.port = 0
        self.runner: web.AppRunner | None = None

    async def start(self) -> None:
        self.runner = web.AppRunner(web.Application(), access_log=None, shutdown_timeout=0.1)  # answers 404: that is an answer
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None


@asynccontextmanager
async def heading(document: dict[str, Any], secret: HeadSecret | None = None) -> AsyncIterator[Listening]:
    stop = asyncio.Event()
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        serve(
            HeadDocument.model_validate(document),
            secret or HeadSecret(),
            Settings(),
            stop,
            log=lambda _line: None,
            on_listening=listening.set_result,
        )
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    yield await listening
    stop.set()
    await asyncio.wait_for(task, 5)


async def get(address: str | None, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        assert response.content_type == "application/json"
        return response.status, orjson.loads(await response.read())


async def until_status(address: str, status: int, seconds: float = 5) -> Any:
    async with asyncio.timeout(seconds):
        while (answer := await get(address, "/health"))[0] != status:
            await asyncio.sleep(0.05)
    return answer[1]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    await made.stop()


async def test_health_is_503_with_who_is_missing_and_then_200(server: Server, tmp_path: Path) -> None:
    await server.stop()
    async with heading(head_document(server.port, tmp_path)) as at:
        for path in ("/", "/livez"):
            assert await get(at.inside, path) == (200, {"status": "ok"})
        for path in ("/readyz", "/healthz", "/health"):
            status, body = await get(at.inside, path)
            assert (status, body["status"], [item["name"] for item in body["waiting"]]) == (503, "starting", ["z_env", "policy"])
        await server.start()
        body = await until_status(at.inside, 200)
        assert next(iter(body.items())) == ("status", "ok")
        assert (await get(at.published, "/readyz"))[0] == 200


async def test_a_failed_phase_is_503_and_says_why(server: Server, tmp_path: Path) -> None:
    await server.stop()
    async with heading(head_document(server.port, tmp_path, server_spinup_timeout_seconds=0.2)) as at:
        async with asyncio.timeout(5):
            while (answer := await get(at.inside, "/health"))[1]["status"] != "failed":
                await asyncio.sleep(0.05)
        assert answer[0] == 503
        assert "z_env (connection refused)" in answer[1]["error"]


async def test_a_server_that_stops_answering_is_marked_within_3_s_with_since_and_recovers(server: Server, tmp_path: Path) -> None:
    async with heading(head_document(server.port, tmp_path)) as at:
        await until_status(at.inside, 200)
        await server.stop()
        gone = time.time()
        async with asyncio.timeout(3):
            while (await get(at.inside, "/server_instances"))[1][0]["status"] != "unreachable":
                await asyncio.sleep(0.05)
        _, (first, _) = await get(at.inside, "/server_instances")
        assert gone - 0.1 <= first["unreachable_since"] <= time.time()
        assert (await get(at.inside, "/health"))[0] == 200
        await server.start()
        async with asyncio.timeout(5):
            while (await get(at.inside, "/health"))[1]["unreachable"]:
                await asyncio.sleep(0.05)
        assert list((await get(at.inside, "/server_instances"))[1][0]) == INSTANCE_KEYS


async def test_a_server_that_hangs_is_marked_within_3_s(tmp_path: Path) -> None:
    hang, over = asyncio.Event(), asyncio.Event()
    talks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        talks.add(talk)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                if hang.is_set():
                    await over.wait()
                    break
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        writer.close()

    hanging = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with heading(head_document(hanging.sockets[0].getsockname()[1], tmp_path)) as at:
        await until_status(at.inside, 200)
        hang.set()
        async with asyncio.timeout(3):
            while not (await get(at.inside, "/health"))[1]["unreachable"]:
                await asyncio.sleep(0.05)
    over.set()
    await asyncio.gather(*talks)
    hanging.close()


async def test_the_inner_listener_has_addresses_and_no_secret(server: Server, tmp_path: Path) -> None:
    async with heading(head_document(server.port, tmp_path)) as at:
        _, text = await get(at.inside, "/global_config_dict_yaml")
        assert isinstance(text, str)
        assert yaml.safe_load(text) == head_document(server.port, tmp_path)["config"]
        assert list(yaml.safe_load(text)) == ["z_env", "policy", "policy_api_key", "head_server", "dry_run"]
        _, instances = await get(at.inside, "/server_instances")
        assert [list(instance) for instance in instances] == [INSTANCE_KEYS] * 2
        assert instances[0]["url"] == f"http://127.0.0.1:{server.port}"
        assert isinstance(instances[0]["start_time"], float)
        assert await get(at.inside, "/gym_compose") == (200, {"gym_compose": "0.1.0", "project": "demo", "engine": "docker"})


async def test_secrets_are_revealed_inside_only(server: Server, tmp_path: Path) -> None:
    values = (
        SecretValue(path=("policy", "responses_api_models", "m", "api_key"), value="K1"),
        SecretValue(path=("policy_api_key",), value="K2"),
    )
    async with heading(head_document(server.port, tmp_path), HeadSecret(values=values)) as at:
        inside = yaml.safe_load((await get(at.inside, "/global_config_dict_yaml"))[1])
        assert inside["policy"]["responses_api_models"]["m"]["api_key"] == "K1"
        assert inside["policy_api_key"] == "K2"
        for path in ("/global_config_dict_yaml", "/server_instances", "/health", "/gym_compose"):
            answer = str(await get(at.published, path))
            assert "K1" not in answer
            assert "K2" not in answer


async def test_the_published_listener_has_host_addresses_of_what_is_published(server: Server, tmp_path: Path) -> None:
    async with heading(head_document(server.port, tmp_path)) as at:
        _, before = await get(at.published, "/server_instances")
        assert [(i["process_name"], i["host"], i["port"], i["url"]) for i in before] == [
            ("z_env", None, None, None),
            ("policy", None, None, None),
        ]
        (tmp_path / "addresses.json").write_text('{"z_env": "127.0.0.1:32768"}')
        _, after = await get(at.published, "/server_instances")
        assert (after[0]["url"], after[1]["url"]) == ("http://127.0.0.1:32768", None)
        config = yaml.safe_load((await get(at.published, "/global_config_dict_yaml"))[1])
        assert config["z_env"]["environment_servers"]["legacy_agent"] == {"entrypoint": "app.py", "host": "127.0.0.1", "port": 32768}
        assert config["policy"]["responses_api_models"]["m"] == {"api_key": "****"}
        host, _, port = (at.published or "").rpartition(":")
        assert config["head_server"] == {"host": host, "port": int(port)}
        (tmp_path / "addresses.json").write_text('{"policy": "127.0.0.1:1"}')
        config = yaml.safe_load((await get(at.published, "/global_config_dict_yaml"))[1])
        assert "host" not in config["z_env"]["environment_servers"]["legacy_agent"]


async def test_one_listener_alone(server: Server, tmp_path: Path) -> None:
    async with heading(head_document(server.port, tmp_path, listen_published=None, published_file=None)) as at:
        assert at.published is None
        assert (await get(at.inside, "/livez"))[0] == 200


async def test_unknown_paths_and_methods_answer_json(server: Server, tmp_path: Path) -> None:
    async with heading(head_document(server.port, tmp_path)) as at:
        assert await get(at.inside, "/nope") == (404, {"detail": "Not Found"})
        async with aiohttp.ClientSession() as session, session.post(f"http://{at.inside}/health") as response:
            assert (response.status, await response.json()) == (405, {"detail": "Method Not Allowed"})
        _, schema = await get(at.inside, "/openapi.json")
        assert set(schema["paths"]) >= {"/", "/livez", "/readyz", "/healthz", "/health", "/global_config_dict_yaml", "/server_instances"}
        async with aiohttp.ClientSession() as session, session.get(f"http://{at.inside}/docs") as response:
            assert (response.status, response.content_type) == (200, "text/html")


async def test_a_port_that_is_taken(server: Server, tmp_path: Path) -> None:
    taken = head_document(server.port, tmp_path, listen={"host": "127.0.0.1", "port": server.port})
    with pytest.raises(PrerequisiteError, match="taken") as raised:
        async with heading(taken):
            raise AssertionError("it listens")
    assert raised.value.where == f"127.0.0.1:{server.port}"


class TestTheText:
    @given(
        st.dictionaries(
            st.text(min_size=1), st.text() | st.none() | st.booleans() | st.integers() | st.lists(st.text(), max_size=2), max_size=4
        )
    )
    def test_any_values_are_read_back_in_their_order(self, config: dict[str, Any]) -> None:
        plain = {key: value for key, value in config.items() if "${" not in str(value) and "${" not in key}
        read = yaml.safe_load(config_text(plain))
        assert read == plain
        assert list(read) == list(plain)

    @pytest.mark.parametrize(
        "text",
        [
            "1e3",
            "1_0",
            "1.5",
            ".5",
            "1e-5",
            "-1E+2",
            "on",
            "null",
            "~",
            "0x1f",
            "1:30",
            "2020-01-01",
            "${x}",
            "\\${x}",
            "\\\\${x}",
            "a ${b} c",
            "[",
            "a: b",
            "",
            " x",
            "é\n",
            ".inf",
            "nan",
            "12e",
        ],
    )
    def test_a_peers_client_reads_the_same_text(self, text: str) -> None:
        read = OmegaConf.create(config_text({"a": text, "list": [text], "nested": {"x": text}}))
        assert OmegaConf.to_container(read, resolve=True) == {"a": text, "list": [text], "nested": {"x": text}}


class TestDocuments:
    def test_a_secret_for_a_place_that_is_not_there(self) -> None:
        for path in (("a", "z"), ("b", 3), ("b", 0, "x"), ("q",)):
            with pytest.raises(InvalidInputError, match="does not hold"):
                reveal({"a": {}, "b": ["x"]}, (SecretValue(path=path, value="s3cret"),))

    def test_revealing_leaves_the_document_as_it_is(self) -> None:
        config: dict[str, Any] = {"a": ["****", {"k": "****"}]}
        assert reveal(config, (SecretValue(path=("a", 1, "k"), value="v"),)) == {"a": ["****", {"k": "v"}]}
        assert config == {"a": ["****", {"k": "****"}]}

    @pytest.mark.parametrize("text", ["{", "{}", '{"format": 7}', "[]"])
    def test_a_file_that_is_none_is_named_and_never_quoted(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "head.json"
        path.write_text(text)
        with pytest.raises(InvalidInputError) as raised:
            read_document(path)
        assert raised.value.where == str(path)
        path.write_text('{"values": [{"path": ["a"], "value": "s3cret", "extra": "s3cret"}]}')
        with pytest.raises(InvalidInputError) as raised:
            read_secret(path)
        assert "s3cret" not in str(raised.value)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="No such file"):
            read_document(tmp_path / "none")
        assert read_secret(None) == HeadSecret()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_process_stops_with_0_on_a_signal(server: Server, tmp_path: Path, number: signal.Signals) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "head.json"
    path.write_bytes(orjson.dumps(head_document(server.port, tmp_path, listen={"host": "127.0.0.1", "port": port})))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gym_compose.controller", "--document", str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        cwd="/",
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 20)
    assert f"http://127.0.0.1:{port}".encode() in line
    await until_status(f"127.0.0.1:{port}", 200)
    resident = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 70_000
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, err) == (0, b"")


async def test_a_process_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gym_compose.controller", "--document", str(tmp_path / "none")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 3
    assert err.decode() == f"Error: {tmp_path}/none: cannot be read: No such file or directory\n"
