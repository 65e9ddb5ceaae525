"""Dead, silent and busy environment servers: who ends a run, who halts it, who is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from gym_compose.wire.settings import Settings

NEVER = 3600.0
# What is not under test never strikes: a dead server is not found by its silence, nor a silent one by its death.
WATCH = Settings(
    run_head_seconds=5.0, probe_interval_seconds=0.05, connect_retry_seconds=0.05, run_death_seconds=NEVER, run_silence_seconds=NEVER
)
QUICK_DEATH = replace(WATCH, run_death_seconds=0.2)


async def finished(run: Any) -> Any:
    return await asyncio.wait_for(run, 60)


@pytest.fixture
async def hung(stubs: Any) -> AsyncIterator[None]:
    """In the place of ``a_env``: takes connections, reads, never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    stubs.config["a_env"]["environment_servers"]["legacy_agent"]["port"] = server.sockets[0].getsockname()[1]
    yield
    server.close()
    await server.wait_closed()


class TestADeadServer:
    async def test_ends_the_run_within_its_few_seconds_and_is_named(self, stubs: Any) -> None:
        await stubs.servers["a_env"].stop()
        summary = await finished(stubs.run([stubs.flat("a"), stubs.flat("b")], settings=QUICK_DEATH))
        assert summary.exit_code == 7
        assert "environment server 'a_env' takes no connections any more" in (summary.error or "")
        assert summary.counts.failed == 0
        assert summary.unresolved == {"cancelled": summary.counts.unresolved}
        assert stubs.servers["a_env"].seen == []

    async def test_ends_it_at_once_when_the_head_says_the_same(self, stubs: Any) -> None:
        await stubs.servers["a_env"].stop()
        stubs.instances = [{"process_name": "b_env", "status": None}, {"process_name": "a_env", "status": "unreachable"}]
        summary = await finished(stubs.run([stubs.flat("a")], settings=WATCH))
        assert summary.exit_code == 7
        assert "a_env" in (summary.error or "")

    async def test_is_waited_for_when_that_is_asked_and_no_row_is_lost_or_sent_twice(self, stubs: Any) -> None:
        server = stubs.servers["a_env"]
        await server.stop()
        run = asyncio.ensure_future(
            stubs.run([stubs.flat("a", n=n) for n in range(6)], settings=QUICK_DEATH, on_server_death="wait", num_samples_in_parallel=2)
        )
        while not any("wait until it answers" in text for text in stubs.warnings):
            await asyncio.sleep(0.02)
            assert not run.done()
        await server.start()
        summary = await finished(run)
        assert summary.counts.completed == 6
        assert len(server.seen) == 6
        assert any("'a_env' answers again" in text for text in stubs.warnings)

    async def test_is_not_waited_for_for_ever(self, stubs: Any) -> None:
        await stubs.servers["a_env"].stop()
        settings = replace(QUICK_DEATH, run_death_wait_seconds=0.3)
        summary = await finished(stubs.run([stubs.flat("a")], settings=settings, on_server_death="wait"))
        assert summary.exit_code == 7
        assert "its rows have waited for 0.3 s" in (summary.error or "")


class TestAServerThatHangs:
    async def test_ends_the_run_by_its_silence(self, stubs: Any, hung: None) -> None:
        settings = replace(WATCH, run_death_seconds=0.0, run_silence_seconds=0.5)
        summary = await finished(stubs.run([stubs.flat("a"), stubs.flat("b")], settings=settings))
        assert summary.exit_code == 7
        assert "'a_env' has not answered for 0.5 s" in (summary.error or "")
        assert summary.counts.failed == 0
        assert summary.counts.unresolved >= 1

    async def test_costs_its_rows_only_where_rollouts_have_a_bound(self, stubs: Any, hung: None) -> None:
        settings = replace(WATCH, run_death_seconds=0.0)
        summary = await finished(stubs.run([stubs.flat("a"), stubs.flat("b")], settings=settings, rollout_timeout_s=2.0))
        assert summary.exit_code == 0
        assert (summary.counts.completed, summary.counts.failed) == (1, 1)

    async def test_is_halted_for_when_that_is_asked(self, stubs: Any, hung: None) -> None:
        settings = replace(WATCH, run_silence_seconds=0.3, run_death_wait_seconds=0.2)
        summary = await finished(stubs.run([stubs.flat("a")], settings=settings, on_server_death="wait"))
        assert any("has not answered" in text and "wait until it answers" in text for text in stubs.warnings)
        assert "its rows have waited for 0.2 s" in (summary.error or "")


class TestABusyServer:
    async def test_that_answers_nothing_for_long_but_takes_connections_is_not_dead(
        self, stubs: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor when the head has given it up: its probes are short, and a verifier may take the interpreter for seconds."""
        server = stubs.servers["a_env"]
        looked = asyncio.Event()

        async def late(_request: web.Request) -> web.Response:
            looked.set()
            await asyncio.sleep(0.5)
            return web.json_response({"status": "ok"})

        monkeypatch.setattr(server, "_alive", late)
        await server.stop()
        await server.start()
        stubs.instances = [{"process_name": "a_env", "status": "unreachable"}]
        good = stubs.reward()

        async def answer(body: dict[str, Any]) -> web.StreamResponse:
            await looked.wait()
            await asyncio.sleep(0.2)
            reply: web.StreamResponse = await good(body)
            return reply

        server.answer = answer
        summary = await finished(stubs.run([stubs.flat("a", n=n) for n in range(3)], settings=replace(WATCH, run_death_seconds=0.0)))
        assert summary.counts.completed == 3

    async def test_whose_bounded_pool_is_taken_by_long_rollouts_is_still_asked(self, stubs: Any) -> None:
        stubs.config["global_aiohttp_connector_limit_per_host"] = 1
        good = stubs.reward()

        async def long(body: dict[str, Any]) -> web.StreamResponse:
            await asyncio.sleep(4.0)
            reply: web.StreamResponse = await good(body)
            return reply

        stubs.servers["a_env"].answer = long
        summary = await finished(stubs.run([stubs.flat("a")], settings=replace(WATCH, run_silence_seconds=3.0)))
        assert summary.counts.completed == 1


async def test_under_strict_compatibility_a_dead_server_is_waited_for_as_nemo_gym_does(stubs: Any) -> None:
    server = stubs.servers["a_env"]
    await server.stop()
    settings = replace(QUICK_DEATH, run_death_seconds=0.0, run_silence_seconds=0.1)
    run = asyncio.ensure_future(stubs.run([stubs.flat("a")], settings=settings, strict_compatibility=True))
    await asyncio.sleep(0.5)
    assert not run.done()
    await server.start()
    assert (await finished(run)).counts.completed == 1
