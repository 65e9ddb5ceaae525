"""Deaths, memory and log lines as a real Docker engine tells them."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.interface import EngineEvent, LogLine
from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SLEEP = ["sleep", "600"]


def soon(seconds: float = 60.0) -> Deadline:
    return Deadline.after(seconds, "a test")


class Listener:
    """Collects events in a thread; subscribed when made."""

    def __init__(self, engine: DockerEngine, project: str) -> None:
        self.stop = threading.Event()
        self.events: queue.Queue[EngineEvent] = queue.Queue()
        self._source = engine.events(project, self.stop)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for event in self._source:
            self.events.put(event)

    def next(self, kind: str, seconds: float = 20) -> EngineEvent:
        until = time.monotonic() + seconds
        while True:
            event = self.events.get(timeout=max(0.01, until - time.monotonic()))
            if event.kind == kind:
                return event

    def close(self) -> None:
        self.stop.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def listen(engine: DockerEngine, project: Any) -> Iterator[Listener]:
    listener = Listener(engine, project.name)
    yield listener
    listener.close()


def test_a_death_comes_with_its_exit_code_within_two_seconds(project: Any, listen: Listener, engine: DockerEngine) -> None:
    project.up({"short": {"command": ["sh", "-c", "sleep 1; exit 7"]}, "long": {"command": SLEEP}})
    assert listen.next("start").service in {"short", "long"}
    death = listen.next("die")
    assert (death.service, death.exit_code, death.oom_killed) == ("short", 7, False)
    assert time.time() - death.at < 5
    long = engine.observe(project.name, soon()).state("long")
    assert long is not None
    assert long.identity is not None
    started = time.monotonic()
    engine.api.kill(long.identity, "SIGKILL", soon())
    death = listen.next("die")
    assert (death.service, death.exit_code, death.oom_killed) == ("long", 137, False)
    assert time.monotonic() - started < 10 + engine.api.settings.event_settle_seconds


def test_out_of_memory_is_told_apart_from_a_kill(project: Any, listen: Listener, engine: DockerEngine, python: Any) -> None:
    eat = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    project.up({"eater": {"command": python(eat), "mem_limit": "32m", "memswap_limit": "32m"}})
    death = listen.next("die", 60)
    assert (death.service, death.exit_code, death.oom_killed) == ("eater", 137, True)
    state = engine.observe(project.name, soon()).state("eater")
    assert state is not None
    assert state.oom_killed


def test_events_of_other_projects_are_not_seen(project: Any, listen: Listener, engine: DockerEngine, image: str) -> None:
    made = engine.api.call(
        lambda client: client.create_container(image, ["true"], labels={"com.docker.compose.project": "another"}), "create", soon()
    )
    try:
        engine.api.call(lambda client: client.start(made["Id"]), "start", soon())
        engine.api.wait(made["Id"], soon())
        with pytest.raises(queue.Empty):
            listen.events.get(timeout=1.5)
    finally:
        engine.api.remove(made["Id"], soon())


def test_a_broken_stream_is_opened_again_and_loses_nothing(project: Any, engine: DockerEngine) -> None:
    stop = threading.Event()
    opened: list[Any] = []
    original = engine.api.stream_client

    def remember(deadline: Deadline) -> Any:
        client = original(deadline)
        opened.append(client)
        return client

    engine.api.stream_client = remember  # type: ignore[method-assign]
    try:
        source = engine.events(project.name, stop)
        seen: queue.Queue[EngineEvent] = queue.Queue()
        thread = threading.Thread(target=lambda: deque(map(seen.put, source), maxlen=0), daemon=True)
        thread.start()
        project.up({"short": {"command": ["sh", "-c", "sleep 2; exit 9"]}})
        assert seen.get(timeout=20).kind == "start"
        source_reader = source.gi_frame.f_locals["reader"]  # type: ignore[attr-defined]
        source_reader._stream.close()
        death = seen.get(timeout=20)
        assert (death.kind, death.service, death.exit_code) == ("die", "short", 9)
        assert len(opened) == 2
        with pytest.raises(queue.Empty):
            seen.get(timeout=1)
    finally:
        stop.set()
        engine.api.stream_client = original  # type: ignore[method-assign]
    thread.join(10)
    assert not thread.is_alive()


def test_logs_of_all_come_in_order_of_time_dead_ones_too(project: Any, engine: DockerEngine) -> None:
    script = "for i in 1 2 3; do echo {name}$$i; sleep 0.4; done"
    project.up(
        {
            "even": {"command": ["sh", "-c", "sleep 0.2; " + script.format(name="even")]},
            "odd": {"command": ["sh", "-c", script.format(name="odd") + "; echo last >&2; exit 1"]},
        }
    )
    until = soon(20)
    while engine.observe(project.name, soon()).state("odd").status != "exited":  # type: ignore[union-attr]
        assert not until.expired
        time.sleep(0.1)
    lines = list(engine.logs(project.name, [], follow=False, tail=None))
    assert [line.at for line in lines] == sorted(line.at for line in lines if line.at is not None)
    assert [line.text for line in lines if line.service == "odd"] == ["odd1", "odd2", "odd3", "last"]
    assert [line.text for line in engine.logs(project.name, ["odd"], follow=False, tail=2)] == ["odd3", "last"]


def test_followed_logs_end_with_the_containers_and_follow_a_recreated_one(project: Any, engine: DockerEngine) -> None:
    services = {"one": {"command": ["sh", "-c", "echo first; sleep 600"]}}
    project.up(services)
    stop = threading.Event()
    lines: queue.Queue[LogLine] = queue.Queue()

    def read() -> None:
        for line in engine.logs(project.name, [], follow=True, tail=None, stop=stop):
            lines.put(line)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert lines.get(timeout=20).text == "first"
    project.up({"one": {"command": ["sh", "-c", "echo second; sleep 600"], "_slice": "s2"}})
    assert lines.get(timeout=20).text == "second"
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_line_longer_than_the_engines_buffer_stays_one_line(project: Any, engine: DockerEngine, python: Any) -> None:
    project.up({"wide": {"command": python("print('x' * 50_000); print('end')")}})
    until = soon(20)
    while len(lines := list(engine.logs(project.name, ["wide"], follow=False, tail=None))) < 2:
        assert not until.expired
        time.sleep(0.1)
    assert [len(line.text) for line in lines] == [50_000, 3]


def test_secrets_of_the_projects_slices_are_masked_in_logs(project: Any, engine: DockerEngine) -> None:
    secret = project.directory / "slices" / "one" / "secret.json"
    secret.parent.mkdir(parents=True)
    secret.write_text('{"format": 1, "values": [{"path": ["a"], "value": "marker-secret-1"}], "environment": {}, "session_key": null}')
    project.up({"one": {"command": ["sh", "-c", "echo key is marker-secret-1 here; sleep 600"]}})
    until = soon(20)
    while not (lines := list(engine.logs(project.name, [], follow=False, tail=None))):
        assert not until.expired
        time.sleep(0.1)
    assert lines[0].text == "key is **** here"
