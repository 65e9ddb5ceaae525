"""Hosts, ports and the defaults that are written: contract-config 1.3, 1.14, E66 to E71."""

from __future__ import annotations

import platform
import random
import socket
from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config.errors import ConfigError, PortAllocationError
from gym_compose.config.ports import ProbePorts, can_bind, fixed, machine_address, offline, probe

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


def server(name: str, **fields: Any) -> dict[str, Any]:
    return {name: {"responses_api_models": {"m": {"entrypoint": "app.py", **fields}}}}


def scripted(*numbers: int, free: bool = True) -> ProbePorts:
    """A probe whose random numbers are given."""
    left = list(numbers)
    return ProbePorts(randint=lambda low, high: left.pop(0), is_free=lambda port: free)


def test_ports_are_given_in_the_order_of_the_config(world: World) -> None:
    config = world.load({**server("a"), **server("b"), **server("c")}, ports=scripted(10001, 10001, 10002, 11000, 10003))
    assert [instance.port for instance in config.instances] == [10001, 10002, 10003]
    assert config.merged["disallowed_ports"] == [11000, 10001, 10002, 10003]
    assert list(config.merged["a"]["responses_api_models"]["m"]) == ["entrypoint", "host", "port"]


def test_equal_pinned_ports_are_accepted_and_warned_about(world: World) -> None:  # E66
    tree = {**server("a", port=11000), **server("b", port=11000)}
    config = world.load(tree, ports=probe())
    assert config.merged["disallowed_ports"] == [11000, 11000, 11000]
    assert [instance.port_pinned for instance in config.instances] == [True, True]
    assert any("port 11000 is pinned by head_server, a, b" in warning for warning in config.warnings)
    assert world.load(tree, ports=fixed(8000)).warnings == (), "in containers they do not meet"


@pytest.mark.parametrize("port", [0, None])
def test_a_falsy_port_is_replaced(world: World, port: int | None) -> None:  # E67
    config = world.load(server("a", port=port), ports=scripted(12345))
    assert config.instances[0].port == 12345
    assert not config.instances[0].port_pinned


def test_head_and_default_host(world: World) -> None:  # E68
    config = world.load({**server("a"), **server("b", host="0.0.0.0"), "head_server": {"host": "0.0.0.0"}, "default_host": "10.0.0.1"})
    assert config.merged["head_server"] == {"host": "0.0.0.0", "port": 11000}
    assert [instance.host for instance in config.instances] == ["10.0.0.1", "0.0.0.0"]
    assert world.load({"head_server": {"port": 1}, "default_host": "h"}).merged["head_server"] == {"port": 1, "host": "h"}
    assert world.load({"head_server": None}).merged["head_server"] == {"host": "127.0.0.1", "port": 11000}
    assert world.load({"head_server": {"port": None}}).merged["head_server"] == {"port": None, "host": "127.0.0.1"}
    with pytest.raises(ConfigError, match="head_server: it has to be a mapping"):
        world.load({"head_server": 5})


def test_the_machines_own_address_wins_over_the_default_host(world: World) -> None:  # E69
    tree = {**server("a"), "use_absolute_ip": True, "default_host": "1.2.3.4"}
    assert world.load(tree, ports=fixed(8000), address=lambda: "9.9.9.9").instances[0].host == "9.9.9.9"
    assert world.load(tree, ports=offline()).instances[0].host == "1.2.3.4"


def test_host_for_decides_for_every_server(world: World) -> None:
    block = "b.responses_api_models.m"
    tree = {**server("a"), **server("b", host="0.0.0.0"), "deep": {"url": f"http://${{{block}.host}}:${{{block}.port}}"}}
    config = world.load(tree, ports=fixed(8000), host_for=lambda name: f"{name}.gym")
    assert [(instance.host, instance.port) for instance in config.instances] == [("a.gym", 8000), ("b.gym", 8000)]
    assert config.resolved["deep"]["url"] == "http://b.gym:8000"


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"allow_openai_version_skew": "yes"}, "allow_openai_version_skew"),  # E70
        ({"results_dir": ""}, "results_dir"),
        ({"cache_dir": 5}, "cache_dir"),
        ({**server("a"), "port_range_low": "x"}, "port_range_low"),
        ({**server("a"), "port_range_low": 2000, "port_range_high": 1000}, "2000..1000"),
        ({**server("a"), "port_range_low": 11000, "port_range_high": 11000}, "every port of 11000..11000"),
        ({**server("a"), "port_range_high": 70000}, "70000"),
    ],
)
def test_values_of_the_wrong_kind(world: World, tree: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        world.load(tree, ports=probe())
    assert words in str(caught.value)


def test_the_range_matters_only_where_a_port_is_looked_for(world: World) -> None:
    assert world.load({**server("a"), "port_range_low": "x"}, ports=fixed(8000)).instances[0].port == 8000
    assert world.load({**server("a", port=9), "port_range_low": "x"}, ports=probe()).instances[0].port == 9


def test_a_default_host_that_is_no_host(world: World) -> None:
    with pytest.raises(ConfigError, match="default_host"):
        world.load({**server("a"), "default_host": {"a": 1}})


def test_no_free_port_ends_after_fifty_attempts(world: World) -> None:
    with pytest.raises(PortAllocationError, match=r"no free port in 10001\.\.20000 after 50 attempts"):
        world.load(server("a"), ports=scripted(*range(10001, 10060), free=False))


def test_directories_are_absolute_and_the_cache_holds_uvs(world: World) -> None:  # E71
    merged = world.resolve({"cache_dir": "c", "results_dir": "~/r"})
    assert merged["cache_dir"] == str(world.cwd / "c")
    assert merged["uv_cache_dir"] == str(world.cwd / "c" / "uv")
    world.environ["HOME"] = "/h"
    assert world.resolve({"results_dir": "~/r"})["results_dir"] == "/h/r"
    assert world.resolve({})["results_dir"] == str(world.cwd / "results")
    checkout = world.root / "checkout"
    checkout.mkdir()
    assert world.resolve({}, install_root=checkout)["uv_venv_dir"] == str(world.cwd)
    (checkout / "pyproject.toml").touch()
    assert world.resolve({}, install_root=checkout)["uv_venv_dir"] == str(checkout)


@pytest.mark.parametrize(
    ("tree", "variable", "value"),
    [
        ({}, None, 1800),
        ({}, "77", 77),
        ({}, "7.5", 1800),
        ({"uv_lock_timeout_seconds": None}, "77", None),
        ({"uv_lock_timeout_seconds": 5}, "77", 5),
    ],
)
def test_the_lock_timeout_of_uv(world: World, tree: dict[str, Any], variable: str | None, value: int | None) -> None:
    if variable is not None:
        world.environ["UV_LOCK_TIMEOUT"] = variable
    assert world.resolve(tree)["uv_lock_timeout_seconds"] == value


def test_other_defaults(world: World) -> None:
    merged = world.resolve({"python_version": "2.7", "disallowed_ports": [1], "dry_run": True, "head_server_deps": ["x"]})
    assert merged["python_version"] == platform.python_version()
    assert merged["disallowed_ports"] == [11000]
    assert merged["dry_run"] is True
    assert merged["head_server_deps"] == ["ray[default]>=2.58.0", "openai==2.44.0"]
    assert (merged["server_spinup_timeout_seconds"], merged["model_endpoint_readiness_timeout_seconds"]) == (600, 600)
    assert world.resolve({"server_spinup_timeout_seconds": None})["server_spinup_timeout_seconds"] is None


def test_skip_verification_goes_into_every_agent_that_does_not_set_it(world: World) -> None:
    tree = {**world.MODEL, **world.RESOURCES, **world.agent("a"), **world.agent("b", skip_verification=False)}
    config = world.load(tree | {"skip_verification": True, "skip_verification_reward": 0.5} | world.front("e", x="a", y="b"))
    blocks = [config.instance(name).block for name in "ab"]
    assert [block["skip_verification"] for block in blocks] == [True, False]
    assert list(blocks[0])[-4:] == ["host", "port", "skip_verification", "skip_verification_reward"]
    assert "skip_verification" not in config.instance("pm").block


def test_the_probe_finds_ports_that_can_be_bound() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        assert not can_bind(port)
        allocator = ProbePorts(randint=random.Random(1).randint)
        with pytest.raises(PortAllocationError):
            allocator.allocate(port, port, [])
    assert 10001 <= probe().allocate(10001, 20000, [11000]) <= 20000
    assert offline().allocate(1, 2, []) == -1
    assert fixed(8000).allocate(1, 2, [8000]) == 8000


def test_the_machines_address_or_what_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "5.6.7.8")
    assert machine_address() == "5.6.7.8"

    def fail(name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", fail)
    with pytest.raises(PortAllocationError, match="Set default_host"):
        machine_address()
