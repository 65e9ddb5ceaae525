"""What every server does: health, error shapes, cookies, the rollout prefix, config."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask
from starlette.responses import Response

from gym_compose.serving import Call, Endpoint, HTTPError, ResourcesServer, ResourcesServerConfig, Server, Verdict, catch_all_tool, tool
from gym_compose.serving.server import read_config
from gym_compose.wire.errors import InvalidInputError


class Numbers(BaseModel):
    count: int = Field(ge=0)
    label: str = "x"


class Probe(ResourcesServer):
    """Tools that fail in every way a handler can."""

    config: ResourcesServerConfig

    def setup(self) -> None:
        self.cancelled: list[str] = []
        self.began = asyncio.Event()
        self.order: list[str] = []
        self.add_tool("late", self.late)

    async def start(self) -> None:
        self.order.append("start")

    async def stop(self) -> None:
        self.order.append("stop")

    async def late(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    @tool
    async def add(self, body: Numbers, call: Call) -> Numbers:
        """Counts."""
        return body

    @tool
    async def text(self) -> str:
        return "plain"

    @tool("under another/name")
    async def renamed(self, body: Numbers | None = None) -> dict[str, Any]:
        return {"count": None if body is None else body.count}

    @tool
    async def broken(self) -> None:
        raise ValueError("no such thing")

    @tool
    async def teapot(self) -> None:
        raise HTTPError(418, {"why": "tea"}, headers={"X-Tea": "green"})

    @tool
    async def cancels(self) -> None:
        raise asyncio.CancelledError

    @tool
    async def slow(self) -> None:
        self.began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled.append("slow")
            raise

    @tool
    async def afterwards(self) -> Response:
        async def work() -> None:
            await asyncio.sleep(0.1)
            self.order.append("work")

        return Response(b"{}", background=BackgroundTask(work))

    @tool
    async def verify_too(self, call: Call) -> dict[str, Any]:
        return {"id": call.session_id, "rollout": call.rollout, "prefix": call.rollout_prefix}

    @tool("verify")
    async def hidden(self) -> str:
        return "never reached"

    @catch_all_tool
    async def anything(self, name: str, body: bytes) -> dict[str, Any]:
        return {"name": name, "length": len(body)}

    async def verify(self, body: Any, call: Call) -> Verdict:
        return Verdict(1.0)


HEALTH = ["/", "/health", "/healthz", "/livez", "/readyz"]
COOKIE = "Probe___probe"


@pytest.mark.parametrize("path", HEALTH)
async def test_health_is_200_and_mints_a_session(deploy: Any, path: str) -> None:
    servers = await deploy(probe=("rs", Probe, {"domain": "math"}))
    answer = await servers.get("probe", path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["set-cookie"].startswith(f"{COOKIE}=")
    assert answer.headers["vary"] == "Cookie"


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/nope", 405, {"detail": "Method Not Allowed"}),  # the catch-all tool is POST
        ("GET", "/nope/deeper", 404, {"detail": "Not Found"}),
        ("GET", "/verify", 405, {"detail": "Method Not Allowed"}),
        ("POST", "/teapot", 418, {"detail": {"why": "tea"}}),
    ],
)
async def test_handled_errors_are_json_and_keep_the_session(deploy: Any, method: str, path: str, status: int, body: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    answer = await servers.http.request(method, servers.urls["probe"] + path)
    assert (answer.status_code, answer.json()) == (status, body)
    assert COOKIE in answer.headers["set-cookie"]


@pytest.mark.parametrize(("path", "text"), [("/broken", "ValueError('no such thing')"), ("/cancels", "Request was cancelled")])
async def test_unhandled_errors_are_a_string_500_without_a_cookie(deploy: Any, path: str, text: str) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    answer = await servers.post("probe", path, {})
    assert (answer.status_code, answer.json()) == (500, text)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"count": "x"}', {"type": "int_parsing", "loc": ["body", "count"], "input": "x"}),
        (b'{"label": "a"}', {"type": "missing", "loc": ["body", "count"], "msg": "Field required", "input": {"label": "a"}}),
        (b'{"count": -1}', {"type": "greater_than_equal", "loc": ["body", "count"], "input": -1, "ctx": {"ge": 0}}),
        (b"{not json", {"type": "json_invalid", "loc": ["body"], "input": {}}),
        (b"", {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}),
        (b"[1]", {"type": "model_type", "loc": ["body"]}),
    ],
)
async def test_bodies_that_do_not_fit_are_422(deploy: Any, body: bytes, detail: dict[str, Any]) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    answer = await servers.post("probe", "/add", content=body)
    assert answer.status_code == 422
    (entry,) = answer.json()["detail"]
    assert detail.items() <= entry.items()
    assert {"type", "loc", "msg", "input"} <= entry.keys()
    assert "url" not in entry
    assert COOKIE in answer.headers["set-cookie"]


async def test_the_log_of_a_422_is_bounded_and_on_one_line(deploy: Any, caplog: pytest.LogCaptureFixture) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    await servers.post("probe", "/add", content=b'{"count": "' + b"\n\x1b[31m" * 4000 + b'"}')
    (record,) = [record for record in caplog.records if "422" in record.getMessage()]
    assert len(record.getMessage()) < 25_000
    assert "\n" not in record.getMessage()
    assert "\x1b" not in record.getMessage()


@pytest.mark.parametrize(
    ("path", "content", "answer"),
    [
        ("/add", b'{"count": 3, "unknown": 1}', {"count": 3, "label": "x"}),
        ("/text", b"", "plain"),
        ("/late", b'{"a": [1]}', {"a": [1]}),
        ("/under%20another/name", b'{"count": 2}', {"count": 2}),
        ("/under%20another/name", b"  ", {"count": None}),
        ("/whatever", b"12345", {"name": "whatever", "length": 5}),
        ("/close_session", b'{"resources_session_id": "s", "episode_id": {"rollout_id": "r"}}', {"resources_session_id": "s"}),
    ],
)
async def test_tools(deploy: Any, path: str, content: bytes, answer: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    got = await servers.post("probe", path, content=content)
    assert (got.status_code, got.json()) == (200, answer)


async def test_a_tool_named_as_a_base_route_is_not_reached(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    assert (await servers.post("probe", "/verify", {})).status_code == 422


async def test_the_rollout_prefix_is_stripped_from_any_path(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    bare = await servers.post("probe", "/verify_too", {})
    prefixed = await servers.post("probe", "/ng-rollout/0-0-a1/verify_too", {})
    assert (bare.json()["rollout"], bare.json()["prefix"]) == (None, "")
    assert (prefixed.json()["rollout"], prefixed.json()["prefix"]) == ("0-0-a1", "/ng-rollout/0-0-a1")
    for bad in ("/ng-rollout/a/b/verify_too", "/ng-rollout/.x/verify_too"):
        assert (await servers.post("probe", bad, {})).status_code == 404


async def test_a_session_lasts_as_long_as_its_cookie_is_sent(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    first = await servers.post("probe", "/verify_too", {})
    value = first.cookies[COOKIE]
    for sent in (value, f'"{value}"'):
        again = await servers.post("probe", "/verify_too", {}, cookies={COOKIE: sent})
        assert again.json()["id"] == first.json()["id"]
        assert COOKIE in again.headers["set-cookie"]
    forged = await servers.post("probe", "/verify_too", {}, cookies={COOKIE: value[:-2] + "xx"})
    assert forged.status_code == 200
    assert forged.json()["id"] != first.json()["id"]


async def test_a_client_that_hangs_up_cancels_its_handler(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    probe: Probe = servers["probe"]
    port = probe.config.port
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
    await asyncio.wait_for(probe.began.wait(), 5)
    assert probe.cancelled == []
    writer.close()
    for _ in range(100):
        if probe.cancelled:
            break
        await asyncio.sleep(0.02)
    assert probe.cancelled == ["slow"]
    assert (await servers.get("probe", "/health")).status_code == 200


async def test_what_a_handler_does_after_its_answer_is_not_cancelled(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    await servers.post("probe", "/afterwards", {})
    await asyncio.sleep(0.2)
    assert servers["probe"].order == ["start", "work"]


async def test_a_body_in_many_pieces_is_read_whole(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))

    async def pieces() -> Any:
        for part in (b'{"count"', b": 1", b"1}"):
            yield part
            await asyncio.sleep(0.03)

    answer = await servers.post("probe", "/add", content=pieces())
    assert answer.json() == {"count": 11, "label": "x"}


async def test_openapi_and_docs(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    document = (await servers.get("probe", "/openapi.json")).json()
    assert {"/verify", "/seed_session", "/add", "/late", "/{name}"} <= document["paths"].keys()
    assert "/health" not in document["paths"]
    assert document["paths"]["/add"]["post"]["description"] == "Counts."
    schema = document["paths"]["/add"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Numbers"}
    docs = await servers.get("probe", "/docs")
    assert docs.status_code == 200
    assert "openapi.json" in docs.text


async def test_start_and_stop_run_around_the_requests(deploy: Any) -> None:
    servers = await deploy(probe=("rs", Probe, {}))
    assert servers["probe"].order == ["start"]


def test_a_handler_with_two_bodies_is_refused() -> None:
    async def handler(one: Numbers, two: Numbers) -> None:
        return None

    with pytest.raises(TypeError, match="more than one body"):
        Endpoint("POST", "/x", handler).asgi()


BLOCK = {"entrypoint": "app.py", "host": "h", "port": 1}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"entrypoint": "app.py", "host": "h"}, r"server instance probe: its config does not fit Probe \(port: Field required\)"),
        ({**BLOCK, "domain": "cooking"}, "domain: Input should be"),
        ({**BLOCK, "num_workers": 2}, "num_workers is 2, and a native server keeps its sessions in one process"),
    ],
)
def test_a_block_that_does_not_fit_names_instance_and_field(block: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Probe.from_config({"probe": {"resources_servers": {"probe": block}}}, "probe", environ={})


def test_unknown_keys_of_a_block_are_ignored() -> None:
    merged = {"probe": {"resources_servers": {"probe": {**BLOCK, "datasets": [], "verified": False}}}}
    assert Probe.from_config(merged, "probe", environ={}).config.name == "probe"


def test_an_instance_without_a_block_is_named() -> None:
    with pytest.raises(InvalidInputError, match="server instance nope: the config has no server block"):
        Probe.from_config({"nope": {}}, "nope", environ={})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "NEMO_GYM_CONFIG_DICT: is not set"),
        ({"NEMO_GYM_CONFIG_DICT": "{}"}, "NEMO_GYM_CONFIG_PATH: is not set"),
        ({"NEMO_GYM_CONFIG_DICT": "a: [", "NEMO_GYM_CONFIG_PATH": "x"}, "neither JSON nor YAML"),
        ({"NEMO_GYM_CONFIG_DICT": "[]", "NEMO_GYM_CONFIG_PATH": "x"}, "is not a mapping"),
    ],
)
def test_a_process_without_a_config_says_which_variable(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_config(environ)


def test_the_config_is_read_as_json_and_as_the_peers_yaml() -> None:
    for text in ('{"a": {"b": 1}}', "a:\n  b: 1\n"):
        assert read_config({"NEMO_GYM_CONFIG_DICT": text, "NEMO_GYM_CONFIG_PATH": "i"}) == ({"a": {"b": 1}}, "i")


def environ_of(merged: dict[str, Any]) -> dict[str, str]:
    return {"NEMO_GYM_CONFIG_DICT": json.dumps(merged), "NEMO_GYM_CONFIG_PATH": "probe"}


def test_a_dry_run_builds_the_server_and_opens_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    merged = {"probe": {"resources_servers": {"probe": BLOCK}}, "dry_run": True}
    Probe.run_webserver(environ_of(merged))
    assert capsys.readouterr() == ("", "")


def test_a_config_without_dry_run_ends_the_process_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Probe.run_webserver(environ_of({"probe": {"resources_servers": {"probe": BLOCK}}}))
    assert ended.value.code == 3
    assert capsys.readouterr().err == "Error: NEMO_GYM_CONFIG_DICT: dry_run: is missing. A server's config must say it.\n"


def test_the_config_class_must_be_a_server_config() -> None:
    class Odd(Server):
        config: int  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"Odd\.config"):
        Odd.config_model()
