from __future__ import annotations

import httpx
import orjson
import pytest

from gym_compose.project.http import HeadClient
from gym_compose.wire.head import InstanceRecord
from gym_compose.wire.settings import Settings

RECORD = InstanceRecord(
    config_path="policy_model",
    dir_path="/srv/gym/responses_api_models/scripted_model",
    entrypoint="app.py",
    host="policy-model.gym",
    name="scripted_model",
    pid=None,
    port=8000,
    process_name="policy_model",
    server_type="responses_api_models",
)


def client(status: int, body: object, path: str) -> HeadClient:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == path
        return httpx.Response(status, content=body if isinstance(body, bytes) else orjson.dumps(body))

    return HeadClient("http://head:1/", Settings(), transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"status": "ok", "phase": "ready", "elapsed_seconds": 2.5}, ("ok", "ready")),
        (503, {"status": "starting", "phase": "model_endpoints", "elapsed_seconds": 0}, ("starting", "model_endpoints")),
        (503, {"status": "failed", "phase": "failed", "elapsed_seconds": 0, "error": "late"}, ("failed", "failed")),
        (200, {"status": "ok"}, ("ok", "ready")),  # the peer's own head
        (503, {"status": "starting"}, ("starting", "servers")),
    ],
)
def test_health_is_read_from_both_answers_and_from_the_peers(status: int, body: object, expected: tuple[str, str]) -> None:
    with client(status, body, "/health") as head:
        report = head.health()
    assert report is not None
    assert (report.status, report.phase) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"3"])
def test_an_answer_that_is_no_health_report_is_none_and_says_why(body: bytes) -> None:
    with client(404, body, "/health") as head:
        assert head.health() is None
        assert head.last_error == "HTTP 404 without a health report"


def test_no_connection_is_none_and_says_why() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused", request=request)

    with HeadClient("http://head:1", Settings(), transport=httpx.MockTransport(refuse)) as head:
        assert (head.health(), head.instances(), head.identity(), head.config_text(), head.answers()) == (None, None, None, None, False)
        assert head.last_error == "Connection refused"


def test_instances_and_identity_are_models() -> None:
    with client(200, [RECORD.model_dump()], "/server_instances") as head:
        assert head.instances() == (RECORD,)
    with client(200, {"detail": "no list"}, "/server_instances") as head:
        assert head.instances() is None
    with client(200, {"gym_compose": "0.1.0", "project": "p", "engine": "docker"}, "/gym_compose") as head:
        identity = head.identity()
        assert identity is not None
        assert identity.project == "p"


def test_a_peers_head_has_no_identity_but_answers() -> None:
    with client(404, {"detail": "Not Found"}, "/gym_compose") as head:
        assert head.identity() is None
        assert head.last_error is None


def test_the_config_is_a_json_string_that_holds_yaml() -> None:
    with client(200, "a: 1\nb: 2\n", "/global_config_dict_yaml") as head:
        assert head.config_text() == "a: 1\nb: 2\n"
    with client(200, {"a": 1}, "/global_config_dict_yaml") as head:
        assert head.config_text() is None
