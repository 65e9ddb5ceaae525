"""One server in the test's process: the real routes and errors, played peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gym_compose.serving import Call, ResourcesServer, ResourcesServerConfig, ResourcesServerReference, Verdict, VerifyRequest, tool
from gym_compose.testing import AgentPeer, Peer, PeerAnswer, ResourcesPeer, Served, load_app, response
from gym_compose.wire.errors import InvalidInputError


class Config(ResourcesServerConfig):
    other: ResourcesServerReference


class Asking(ResourcesServer):
    config: Config

    def setup(self) -> None:
        self.log = ["setup"]

    async def start(self) -> None:
        self.log.append("start")

    async def stop(self) -> None:
        self.log.append("stop")

    @tool
    async def ask(self, body: dict[str, Any], call: Call) -> Any:
        reply = await self.client.post(self.config.other, "/ng-rollout/r1/ask", json=body, cookies={"seen": call.session_id[:1]})
        return {"status": reply.status, "body": reply.json(), "cookies": reply.cookies}

    async def verify(self, body: VerifyRequest, call: Call) -> Verdict:
        return Verdict(reward=1.0)


BLOCK = {"domain": "other", "other": {"type": "resources_servers", "name": "other"}}


def ask(answer: Any, body: Any = None) -> tuple[Any, Peer]:
    other = Peer({"/ask": answer})
    with Served(Asking, BLOCK, peers={"other": other}) as served:
        return served.post("/ask", body or {"q": 1}).json(), other


def test_a_peer_gets_what_the_server_sent() -> None:
    answer, other = ask({"a": 1})
    assert answer == {"status": 200, "body": {"a": 1}, "cookies": {}}
    (call,) = other.calls
    assert (call.path, call.body, call.rollout_prefix, set(call.cookies)) == ("/ask", {"q": 1}, "/ng-rollout/r1", {"seen"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (PeerAnswer("no", 503, {"c": "1"}), {"status": 503, "body": "no", "cookies": {"c": "1"}}),
        (lambda body: {"got": body}, {"status": 200, "body": {"got": {"q": 1}}, "cookies": {}}),
    ],
)
def test_answers_are_values_functions_or_whole_answers(given: Any, expected: Any) -> None:
    assert ask(given)[0] == expected


def test_a_peer_may_take_its_time() -> None:
    async def slowly(body: Any) -> Any:
        return {"slow": body["q"]}

    assert ask(slowly)[0]["body"] == {"slow": 1}


def test_a_path_that_no_peer_answers_is_a_404() -> None:
    with Served(Asking, BLOCK, peers={"other": Peer()}) as served:
        assert served.post("/ask", {}).json()["status"] == 404


def test_the_server_starts_and_stops_with_the_block() -> None:
    with Served(Asking, BLOCK, peers={"other": Peer()}) as served:
        assert served.get("/healthz").json() == {"status": "ok"}
    server: Any = served.server
    assert server.log == ["setup", "start", "stop"]


def test_cookies_are_sent_only_when_they_are_given() -> None:
    with Served(Asking, BLOCK, peers={"other": Peer()}) as served:
        first = served.post("/seed_session", {})
        assert dict(served.post("/seed_session", {}).cookies) != dict(first.cookies)
        assert dict(served.post("/seed_session", {}, cookies=dict(first.cookies)).cookies) == dict(first.cookies)


def test_a_block_that_does_not_fit_is_the_error_of_the_start() -> None:
    with pytest.raises(InvalidInputError, match="other: Field required"):
        Served(Asking, {"domain": "other"})


def test_an_agent_gives_its_turns_in_order_and_repeats_the_last() -> None:
    agent = AgentPeer("one", response("two", id="mine"))
    answers = [agent.answers["/v1/responses"]({}) for _ in range(3)]
    assert [answer["output"][0]["content"][0]["text"] for answer in answers] == ["one", "two", "two"]
    assert [answer["id"] for answer in answers] == ["resp_test", "mine", "mine"]


def test_a_resources_server_takes_legacy_seeds_too() -> None:
    resources = ResourcesPeer({"reward": 1.0})
    assert resources.answers["/seed_session"]({}).body == {}
    assert resources.opened == 1


def test_applications_of_two_servers_are_two_modules(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text(f"NAME = {name!r}\n")
    assert [load_app(tmp_path / name).NAME for name in ("first", "second")] == ["first", "second"]
    assert load_app(tmp_path / "first") is load_app(tmp_path / "first")


def test_an_application_that_breaks_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("1 / 0\n")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_app(tmp_path)
    assert {name for name in set(sys.modules) - before if name.startswith("gym_app_")} == set()


def test_a_directory_without_an_entry_point(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no entry point"):
        load_app(tmp_path)
