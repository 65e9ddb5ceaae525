from __future__ import annotations

import socket

import pytest

from gym_compose.project.errors import HeadPortTakenError
from gym_compose.project.ports import expected_head_port, free_port, is_free, settled_head_port


@pytest.mark.parametrize(
    ("wanted", "explicit", "remembered", "runs", "taken", "port"),
    [
        (11000, False, None, False, (), 11000),
        (11000, False, None, False, (11000,), 5),  # somebody else has the default: a free one
        (11000, False, 4000, True, (11000, 4000), 4000),  # ours runs there: it stays
        (11000, False, 4000, True, (4000,), 4000),  # also when the default is free again
        (11000, False, 4000, False, (4000,), 11000),  # it does not run: back to the default
        (12000, True, 12000, True, (12000,), 12000),
        (12000, True, 4000, True, (4000,), 12000),  # the config names another one now
    ],
)
def test_the_head_keeps_its_port_while_it_runs(
    wanted: int, explicit: bool, remembered: int | None, runs: bool, taken: tuple[int, ...], port: int
) -> None:
    settled = settled_head_port(
        wanted, explicit=explicit, remembered=remembered, head_runs=runs, free=lambda port: port not in taken, choose=lambda: 5
    )
    assert settled == port


@pytest.mark.parametrize(("remembered", "runs"), [(None, False), (4000, True), (12000, False)])
def test_a_port_that_the_config_names_and_somebody_has_is_an_error_that_names_it(remembered: int | None, runs: bool) -> None:
    with pytest.raises(HeadPortTakenError, match="12000"):
        settled_head_port(12000, explicit=True, remembered=remembered, head_runs=runs, free=lambda port: False)


@pytest.mark.parametrize(
    ("wanted", "explicit", "remembered", "port"), [(11000, False, None, 11000), (11000, False, 4000, 4000), (12000, True, 4000, 12000)]
)
def test_a_plan_shows_the_port_without_looking(wanted: int, explicit: bool, remembered: int | None, port: int) -> None:
    assert expected_head_port(wanted, explicit=explicit, remembered=remembered) == port


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_is_taken_while_somebody_listens_on_it_and_free_afterwards(host: str) -> None:
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)
    assert is_free(free_port())
