"""How ``make peer`` goes on after an interrupt, keeps within memory and disk, and says what a rollout waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.peer import room
from bench.peer.case import Case, read_cases
from bench.peer.journal import Journal
from bench.peer.report import Line
from bench.peer.room import Room, available_memory
from bench.peer.waiting import Request, chain, end_of, named, open_connections

GOOD, BAD = Line("9.0 s", "yes", "", ""), Line("no", "", "", "why")


def test_a_run_that_was_interrupted_goes_on_and_keeps_what_it_is_compared_with(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "run.jsonl"
    first = Journal(file, {"a": GOOD, "b": GOOD}, resume=False)
    first.add("a", BAD)
    again = Journal(file, {"a": BAD, "b": GOOD}, resume=True)  # the page has been written meanwhile
    assert again.before == {"a": GOOD, "b": GOOD}
    assert again.done == {"a": BAD}
    again.add("b", GOOD)
    assert Journal(file, {}, resume=True).done == {"a": BAD, "b": GOOD}
    anew = Journal(file, {"a": BAD}, resume=False)
    assert (anew.before, anew.done) == ({"a": BAD}, {})
    assert Journal(file, {}, resume=True).before == {"a": BAD}


def test_resume_without_an_interrupted_run_begins_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.jsonl", {"a": GOOD}, resume=True)
    assert (journal.before, journal.done) == ({"a": GOOD}, {})


def test_only_images_of_the_run_are_removed_and_only_when_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [room.LEAST_FREE_BYTES + 1]
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> None:
        commands.append(command)
        free[0] = room.LEAST_FREE_BYTES + 1

    monkeypatch.setattr(room, "free_bytes", lambda: free[0])
    monkeypatch.setattr("bench.peer.room.subprocess.run", run)
    monkeypatch.setattr(room, "available_memory", lambda text: room.LEAST_MEMORY_BYTES + 1)
    place = Room()
    place.enter()
    place.leave(("gym-compose/nemo-gym:1", "gym-compose/native:2", "somebody/else:3", "gym-compose/nemo-gym-packages:4"))
    place.enter()
    assert commands == []
    free[0] = 1
    place.enter()
    assert commands == [["docker", "image", "rm", "gym-compose/nemo-gym:1"]]


def test_memory_is_waited_for_while_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = iter([0, 0, room.LEAST_MEMORY_BYTES + 1])
    waited: list[float] = []
    monkeypatch.setattr(room, "available_memory", lambda text: next(memory))
    monkeypatch.setattr(room, "free_bytes", lambda: room.LEAST_FREE_BYTES + 1)
    monkeypatch.setattr("bench.peer.room.time.sleep", waited.append)
    place = Room()
    place.enter()  # the first one is let in whatever there is
    place.enter()
    assert len(waited) == 2


def test_available_memory() -> None:
    assert available_memory("MemTotal: 100 kB\nMemAvailable:  7 kB\n") == 7168


# 10.0.0.5:40000 -> 10.0.0.9:8000 established; 8000 listening; 10.0.0.5:8000 <- probe; 10.0.0.5:40001 -> 192.0.2.1:443 syn sent; one closing
NET_TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0500000A:9C40 0900000A:1F40 01 00000000:00000000 00:00000000 00000000 10001        0 1 1
   1: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 10001        0 2 1
   2: 0500000A:1F40 0200000A:C000 01 00000000:00000000 00:00000000 00000000 10001        0 3 1
   3: 0500000A:9C41 010200C0:01BB 02 00000000:00000000 00:00000000 00000000 10001        0 4 1
   4: 0500000A:9C42 0900000A:1F40 06 00000000:00000000 00:00000000 00000000 10001        0 5 1
"""


def test_open_connections_of_a_network_namespace() -> None:
    assert list(open_connections(NET_TCP)) == [(40000, "10.0.0.9", 8000), (8000, "10.0.0.2", 49152), (40001, "192.0.2.1", 443)]
    assert named("10.0.0.9", 8000, {"10.0.0.9": "judge"}) == "judge"
    assert named("192.0.2.1", 443, {"10.0.0.9": "judge"}) == "192.0.2.1:443"


def test_who_is_waited_for_is_asked_and_asks_nobody() -> None:
    requests = (Request("environment", "agent"), Request("agent", "tool"), Request("tool", "judge"), Request("agent", "model"))
    assert chain(requests) == "environment asks agent; agent asks tool, model; tool asks judge"
    assert end_of(requests) == {"judge", "model"}


def test_a_server_that_writes_gets_a_writable_file_system() -> None:
    case = Case("t", "n", ("c.yaml",), "n", (), (("rows", "{}"),), (), (), "", False, ("n", "other"))
    servers = yaml.safe_load(case.config("http://127.0.0.1:9/v1"))["compose"]["servers"]
    assert servers["other"] == {"writable": True}
    assert servers["n"]["writable"]
    assert len(servers["n"]["mounts"]) == 1


def test_few_servers_write_into_their_file_system() -> None:
    assert sum(bool(case.writable) for case in read_cases()) <= 15


def test_a_fault_of_ours_in_one_case_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.peer import __main__ as tool

    def broken(*_: object) -> None:
        raise SystemError("recursion depth mismatch")

    monkeypatch.setattr(tool, "run_case", broken)
    place = Room()
    outcome = tool.one(read_cases()[0], Path(), "http://127.0.0.1:9/v1", place)
    assert (outcome.ready, outcome.reason) == (False, "a fault of gym_compose: SystemError: recursion depth mismatch")
    assert "Traceback" in capsys.readouterr().err
