from __future__ import annotations

from pathlib import Path

import pytest

from gym_compose.config.model import GymConfig
from gym_compose.project.options import HeadPort, ca_bundle, run_as
from gym_compose.project.source import KeptPorts
from gym_compose.wire.errors import InvalidInputError


def config(port: object = 11000, files: tuple[str, ...] = ()) -> GymConfig:
    head = {} if port is None else {"host": "127.0.0.1", "port": port}
    return GymConfig(merged={}, resolved={"head_server": head}, instances=(), references=(), secret_paths=frozenset(), config_files=files)


@pytest.mark.parametrize(("caller", "servers"), [((0, 0), (10001, 10001)), ((1000, 100), (1000, 100)), ((0, 5), (10001, 10001))])
def test_servers_run_as_the_caller_and_never_as_root(caller: tuple[int, int], servers: tuple[int, int]) -> None:
    assert run_as(*caller) == servers


@pytest.mark.parametrize(
    ("port", "overrides", "wanted", "explicit"),
    [
        (11000, [], 11000, False),
        (11000, ["+config_paths=[a]", "++policy=1"], 11000, False),
        (11000, ["++head_server.port=11000"], 11000, True),
        (11000, ["head_server.port=11000"], 11000, True),
        (11000, ["+head_server={host: x, port: 11000}"], 11000, True),
        (11000, ["++head_server.host=0.0.0.0"], 11000, False),
        (11000, ["++head_server_port=3"], 11000, False),
        (12000, [], 12000, True),
        (None, [], 11000, False),
        ("12000", [], 12000, True),
    ],
)
def test_a_port_counts_as_named_when_a_source_names_it(port: object, overrides: list[str], wanted: int, explicit: bool) -> None:
    assert HeadPort.of(config(port), overrides) == HeadPort(wanted, explicit)


@pytest.mark.parametrize("port", [True, 0, -1, 65536, 99999, "abc", "", 1.5, [11000]])
def test_what_is_no_port_is_an_error(port: object) -> None:
    with pytest.raises(InvalidInputError, match=r"head_server\.port: .* is no port"):
        HeadPort.of(config(port), [])


@pytest.mark.parametrize(
    ("text", "explicit"),
    [
        ("head_server: {port: 11000}\n", True),
        ("head_server:\n  host: 0.0.0.0\n", False),
        ("head_server: {port: null}\n", False),
        ("a: {head_server: {port: 11000}}\n", False),
        ("# head_server\nb: 1\n", False),
        ("- head_server\n", False),
        ("\ufeffhead_server: {port: 11000}\n", True),
    ],
)
def test_a_config_file_names_the_port_at_its_top_level(tmp_path: Path, text: str, explicit: bool) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    assert HeadPort.of(config(files=(str(file), str(tmp_path / "gone.yaml"))), []).explicit is explicit


def test_the_ca_bundle_is_the_environments_or_the_distributions_or_none(tmp_path: Path) -> None:
    own, system = tmp_path / "own.pem", tmp_path / "system.pem"
    own.touch()
    system.touch()
    nowhere = str(tmp_path / "none.pem")
    assert ca_bundle({"SSL_CERT_FILE": str(own)}, [str(system)]) == str(own)
    assert ca_bundle({"SSL_CERT_FILE": nowhere, "PIP_CERT": ""}, [nowhere, str(system)]) == str(system)
    assert ca_bundle({}, [nowhere]) is None


class Fresh:
    """An allocator that gives the first port of the range that is not disallowed."""

    offline = False

    def allocate(self, low: int, high: int, disallowed: object) -> int:
        return next(port for port in range(low, high + 1) if port not in disallowed)  # type: ignore[operator]


def test_kept_ports_are_given_in_order_and_free_ones_in_between() -> None:
    ports = KeptPorts([10002, None, 10005], fresh=Fresh())
    given: list[int] = []
    for _ in range(4):
        given.append(ports.allocate(10001, 10010, [11000, *given]))
    assert given == [10002, 10001, 10005, 10003]


def test_a_kept_port_that_the_config_now_pins_is_not_given_twice() -> None:
    assert KeptPorts([10002], fresh=Fresh()).allocate(10001, 10010, [10002]) == 10001


def test_a_fresh_port_is_never_one_that_is_kept_for_a_later_server() -> None:
    ports = KeptPorts([None, 10001], fresh=Fresh())
    assert ports.allocate(10001, 10010, []) == 10002
    assert ports.allocate(10001, 10010, [10002]) == 10001
