"""``gym env init``: makes a server, leaves one that is there alone, hands workloads over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym_compose.cli import peer
from gym_compose.cli.init import run
from gym_compose.wire.errors import InvalidInputError, UsageError


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("env init --resources-server mine", "resources_servers/mine"),
        ("env init --server resources_servers/mine", "resources_servers/mine"),
        ("env init --server environment_servers/mine", "environment_servers/mine"),
        ("env init --server responses_api_agents/mine", "responses_api_agents/mine"),
        ("env init --server responses_api_models/mine", "responses_api_models/mine"),
        ("env init +entrypoint=resources_servers/mine", "resources_servers/mine"),
    ],
)
def test_a_server_is_made_below_the_working_directory(invoke: Any, captured: Any, tmp_path: Path, text: str, made: str) -> None:
    assert run(invoke(text), captured.console) == 0
    assert (tmp_path / made / "app.py").is_file()
    assert captured.stdout.startswith(f"Made {made}:\n  {made}/README.md\n")
    assert f"  pytest {made}/tests\n  gym compose plan --config {made}/configs/mine_demo.yaml\n" in captured.stdout
    assert captured.stderr == ""


def test_a_server_that_stands_for_a_shipped_one_from_now_on_says_so(invoke: Any, captured: Any) -> None:
    assert run(invoke("env init --server environment_servers/legacy_agent"), captured.console) == 0
    assert "it now stands for" in captured.stderr
    assert run(invoke("env init --server environment_servers/my_own"), captured.console) == 0
    assert captured.stderr.count("it now stands for") == 1


def test_a_directory_that_exists_is_a_message_and_no_error(invoke: Any, captured: Any, tmp_path: Path) -> None:
    there = tmp_path / "resources_servers" / "mine"
    there.mkdir(parents=True)
    assert run(invoke("env init --resources-server mine"), captured.console) == 0
    assert captured.stderr == f"{there}: exists already; nothing was made. Choose another name.\n"
    assert captured.stdout == ""
    assert list(there.iterdir()) == []


def test_without_a_target_there_is_nothing_to_make(invoke: Any, captured: Any) -> None:
    with pytest.raises(UsageError, match="nothing to make"):
        run(invoke("env init"), captured.console)


@pytest.mark.parametrize("text", ["env init --server mine", "env init --resources-server my-server", "env init --server agents/mine"])
def test_a_name_that_cannot_be_one_makes_nothing(invoke: Any, captured: Any, tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInputError):
        run(invoke(text), captured.console)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["env init --environment e", "env init --benchmark b --profile custom-gym-verifier"])
def test_workloads_are_handed_over(
    invoke: Any, captured: Any, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, peer_argv: Callable[[], list[str]]
) -> None:
    assert run(invoke(text), captured.console) == 0
    assert peer_argv() == text.split()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def peer_argv(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The arguments that NeMo Gym's CLI was given, in the place of which this stands."""
    given: list[str] = []

    def hand_over(name: str, place: Any, argv: Any, console: Any) -> int:
        given.extend(argv)
        return 0

    monkeypatch.setattr(peer, "hand_over", hand_over)
    return lambda: given


def test_workloads_are_refused_where_the_peer_is_not_installed(invoke: Any, captured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "is_installed", lambda: False)
    with pytest.raises(peer.NotOursError, match="a server, without a manifest"):
        run(invoke("env init --benchmark b"), captured.console)
