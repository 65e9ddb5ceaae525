"""The verdict, with a probe and a clock that the test holds (contract-config 4.6; design decision 9)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gym_compose.controller.probe import ProbeResult
from gym_compose.controller.readiness import Readiness
from gym_compose.wire.head import HeadDocument, HealthReport
from gym_compose.wire.settings import Settings

OK = ProbeResult("answered", "HTTP 200")
REFUSED = ProbeResult("refused", "connection refused")
UNRESOLVABLE = ProbeResult("unresolvable", "the name does not resolve")
FAST = Settings(probe_interval_seconds=0.01, probe_timeout_seconds=0.05, liveness_timeout_seconds=0.05)


def document(
    servers: tuple[str, ...] = (), endpoints: tuple[str, ...] = (), spinup: float = 600.0, endpoint_seconds: float = 600.0
) -> HeadDocument:
    return HeadDocument.model_validate(
        {
            "gym_compose": "0",
            "project": "p",
            "engine": "process",
            "config": {},
            "instances": [
                {
                    "config_path": name,
                    "dir_path": "/",
                    "entrypoint": "app.py",
                    "host": f"{name}.gym",
                    "name": "impl",
                    "pid": None,
                    "port": 8000,
                    "process_name": name,
                    "server_type": "resources_servers",
                    "url": f"http://{name}.gym:8000",
                }
                for name in servers
            ],
            "endpoints": [{"url": f"http://{name}/v1/models", "key": f"{name}_base_url"} for name in endpoints],
            "server_spinup_timeout_seconds": spinup,
            "model_endpoint_readiness_timeout_seconds": endpoint_seconds,
            "listen": {"host": "127.0.0.1", "port": 0},
        }
    )


class World:
    """What answers. ``state`` maps a host to a result, everything else refuses."""

    def __init__(self, **state: ProbeResult) -> None:
        self.state = state
        self.asked: list[str] = []
        self.lines: list[str] = []

    async def probe(self, url: str, _seconds: float) -> ProbeResult:
        host = url.partition("://")[2].partition("/")[0].partition(":")[0].removesuffix(".gym")
        self.asked.append(host)
        await asyncio.sleep(0)
        return self.state.get(host, REFUSED)

    @contextlib.asynccontextmanager
    async def judging(self, head: HeadDocument) -> AsyncIterator[Readiness]:
        readiness = Readiness(head, self.probe, FAST, now=lambda: 1000.0, log=self.lines.append)
        task = asyncio.ensure_future(readiness.run())
        yield readiness
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(readiness: Readiness, condition: Callable[[HealthReport], bool]) -> HealthReport:
    async with asyncio.timeout(5):
        while not condition(readiness.report()):
            await asyncio.sleep(0.005)
    return readiness.report()


async def test_who_is_missing_is_named_until_all_have_answered() -> None:
    world = World(a=OK)
    async with world.judging(document(("a", "b"))) as readiness:
        report = await until(readiness, lambda report: [item.name for item in report.waiting] == ["b"])
        assert (report.status, report.phase) == ("starting", "servers")
        assert report.waiting[0].detail == "connection refused"
        world.state["b"] = OK
        report = await until(readiness, lambda report: report.status == "ok")
    assert (report.phase, report.waiting, report.error) == ("ready", (), None)
    assert any(line.startswith("ready after") for line in world.lines)


async def test_no_servers_and_no_endpoints_is_ready_at_once() -> None:
    async with World().judging(document()) as readiness:
        await until(readiness, lambda report: report.status == "ok")


async def test_a_server_that_answered_once_counts_while_others_are_waited_for() -> None:
    world = World(a=OK)
    async with world.judging(document(("a", "b"))) as readiness:
        await until(readiness, lambda report: [item.name for item in report.waiting] == ["b"])
        del world.state["a"]
        await until(readiness, lambda report: [item.name for item in report.unreachable] == ["a"])
        world.state["b"] = OK
        report = await until(readiness, lambda report: report.status == "ok")
    assert [item.name for item in report.unreachable] == ["a"]


async def test_servers_that_never_answer_are_named_with_the_key_that_gives_more_time() -> None:
    async with World(a=OK).judging(document(("a", "b", "c"), spinup=0.1)) as readiness:
        report = await until(readiness, lambda report: report.status == "failed")
        await asyncio.sleep(0.05)
        assert readiness.report().elapsed_seconds == report.elapsed_seconds
    assert report.phase == "failed"
    assert "2 of 3 servers did not answer within 0.1 s: b (connection refused), c (connection refused)" in (report.error or "")
    assert "server_spinup_timeout_seconds" in (report.error or "")
    assert [item.name for item in report.waiting] == ["b", "c"]
    assert not readiness.ready


@pytest.mark.parametrize("spinup", [0.0, -1.0])
async def test_no_time_limit_for_servers(spinup: float) -> None:
    async with World().judging(document(("a",), spinup=spinup)) as readiness:
        await asyncio.sleep(0.1)
        assert readiness.report().status == "starting"


async def test_after_ready_a_silent_server_is_unreachable_since_a_time_and_recovers() -> None:
    world = World(a=OK, b=OK)
    async with world.judging(document(("a", "b"))) as readiness:
        await until(readiness, lambda report: report.status == "ok")
        world.state["b"] = ProbeResult("timeout", "no answer within 1.5 s")
        report = await until(readiness, lambda report: bool(report.unreachable))
        assert (report.status, report.unreachable[0].name, report.unreachable[0].since) == ("ok", "b", 1000.0)
        assert readiness.unreachable() == {"b": 1000.0}
        assert report.answered == {"a": 1000.0, "b": 1000.0}
        world.state["b"] = OK
        await until(readiness, lambda report: not report.unreachable)
    assert readiness.ready


class TestModelEndpoints:
    async def test_are_asked_after_the_servers(self) -> None:
        world = World()
        async with world.judging(document(("a",), ("e",))) as readiness:
            await asyncio.sleep(0.05)
            assert "e" not in world.asked
            world.state["a"] = OK
            report = await until(readiness, lambda report: report.phase == "model_endpoints")
            assert (report.status, [item.name for item in report.waiting]) == ("starting", ["e_base_url"])
            world.state["e"] = ProbeResult("tls", "handshake failed")
            await until(readiness, lambda report: report.status == "ok")

    async def test_zero_does_not_wait(self) -> None:
        world = World(a=OK)
        async with world.judging(document(("a",), ("e",), endpoint_seconds=0.0)) as readiness:
            await until(readiness, lambda report: report.status == "ok")
        assert "e" not in world.asked

    async def test_a_name_that_does_not_resolve_is_warned_about_once_and_skipped(self) -> None:
        world = World(a=OK, e=UNRESOLVABLE, f=OK)
        async with world.judging(document(("a",), ("e", "f"))) as readiness:
            report = await until(readiness, lambda report: report.status == "ok")
        assert len(report.warnings) == 1
        assert "http://e/v1/models (from e_base_url)" in report.warnings[0]
        assert world.asked.count("e") == 1

    async def test_a_name_that_stops_resolving_later_is_waited_for(self) -> None:
        world = World(a=OK)
        async with world.judging(document(("a",), ("e",), endpoint_seconds=0.2)) as readiness:
            await until(readiness, lambda report: report.phase == "model_endpoints" and world.asked.count("e") > 0)
            world.state["e"] = UNRESOLVABLE
            report = await until(readiness, lambda report: report.status == "failed")
        assert report.warnings == ()

    async def test_one_that_never_answers_is_named_with_url_and_key(self) -> None:
        async with World(a=OK, f=OK).judging(document(("a",), ("e", "f"), endpoint_seconds=0.1)) as readiness:
            report = await until(readiness, lambda report: report.status == "failed")
        assert "http://e/v1/models (from e_base_url): connection refused" in (report.error or "")
        assert "1 model endpoint(s) did not answer within 0.1 s" in (report.error or "")
        assert "model_endpoint_readiness_timeout_seconds" in (report.error or "")
        assert [item.name for item in report.waiting] == ["e_base_url"]


async def test_a_slow_server_does_not_hold_up_the_probes_of_others() -> None:
    asked: list[str] = []

    async def probe(url: str, seconds: float) -> ProbeResult:
        asked.append(url)
        if "slow" in url:
            await asyncio.sleep(60)
        return OK

    readiness = Readiness(document(("slow", "a")), probe, FAST, log=lambda _line: None)
    task: Any = asyncio.ensure_future(readiness.run())
    await until(readiness, lambda _report: len([url for url in asked if "//a." in url]) > 3)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
