"""Ports that are listened on at loopback alone, out of the kernel's tables."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.project.listening import listeners, listening_text, loopback_only

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LOOPBACK, ANY, BRIDGE = "0100007F", "00000000", "010011AC"
LOOPBACK6, ANY6, MAPPED = "0" * 24 + "01000000", "0" * 32, "0" * 16 + "FFFF0000" + LOOPBACK


def table(path: Path, *entries: tuple[str, int], state: str = "0A") -> str:
    lines = (
        f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 1 1\n" for address, port in entries
    )
    path.write_text(HEADING + "".join(lines))
    return str(path)


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([(LOOPBACK, 9001)], {9001}),
        ([(ANY, 9001)], set()),
        ([(LOOPBACK, 9001), (ANY, 9001)], set()),
        ([(LOOPBACK, 9001), (BRIDGE, 9001)], {9001}),  # the relay's own socket does not make it needless
        ([(BRIDGE, 9001)], set()),
        ([(LOOPBACK6, 9001)], {9001}),
        ([(ANY6, 9001), (LOOPBACK, 9001)], set()),
        ([(MAPPED, 9001)], {9001}),
        ([(LOOPBACK, 9002)], set()),
        ([], set()),
    ],
)
def test_which_need_a_relay(tmp_path: Path, entries: list[tuple[str, int]], found: set[int]) -> None:
    assert loopback_only([9001, 9000], [table(tmp_path / "tcp", *entries)]) == found


def test_connections_do_not_count_and_missing_tables_are_empty(tmp_path: Path) -> None:
    assert loopback_only([9001], [table(tmp_path / "tcp", (LOOPBACK, 9001), state="01"), str(tmp_path / "none")]) == frozenset()


def test_a_real_socket_is_seen() -> None:
    with socket.socket() as here, socket.socket() as everywhere:
        here.bind(("127.0.0.1", 0))
        everywhere.bind(("0.0.0.0", 0))
        here.listen()
        everywhere.listen()
        ports = [here.getsockname()[1], everywhere.getsockname()[1]]
        assert loopback_only(ports) == {ports[0]}
    assert loopback_only([]) == frozenset()


@given(st.lists(st.text(alphabet="0123456789ABCDEF: \n", max_size=60), max_size=5))
def test_lines_of_another_form_are_skipped(lines: list[str]) -> None:
    assert list(listeners(HEADING + "\n".join(f"x {line.replace(' ', '')} y 01" for line in lines))) == []


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([], "it listens on no port; it should on port 8000"),
        ([("0B00007F", 41000)], "it listens on no port"),  # Docker's name server is none of its own
        ([(LOOPBACK, 8000)], "it listens on 127.0.0.1:8000 only; it should on port 8000, at $GYM_HOST"),
        ([(ANY, 9000), (LOOPBACK, 9001)], "it listens on 0.0.0.0:9000, 127.0.0.1:9001 only"),
        ([(ANY, 8000)], None),
        ([(BRIDGE, 8000)], None),
    ],
)
def test_what_a_server_in_a_container_listens_on(tmp_path: Path, entries: list[tuple[str, int]], says: str | None) -> None:
    (tmp_path / "7" / "net").mkdir(parents=True)
    table(tmp_path / "7" / "net" / "tcp", *entries)
    said = listening_text(7, 8000, tmp_path)
    assert said is None if says is None else said is not None and said.startswith(says)


def test_the_table_of_ipv6_counts_too(tmp_path: Path) -> None:
    (tmp_path / "7" / "net").mkdir(parents=True)
    table(tmp_path / "7" / "net" / "tcp")
    table(tmp_path / "7" / "net" / "tcp6", (MAPPED, 8000), (LOOPBACK6, 9000))
    assert str(listening_text(7, 8000, tmp_path)).startswith("it listens on 127.0.0.1:8000, [::1]:9000 only")
    table(tmp_path / "7" / "net" / "tcp6", (ANY6, 8000))
    assert listening_text(7, 8000, tmp_path) is None
    assert listening_text(8, 8000, tmp_path) is None  # nothing can be seen
