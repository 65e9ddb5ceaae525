"""Ray Client's connection: tried again when the head's fork failed, and then only."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from gym_compose.serving.ray_client import ATTEMPTS, patient

FORK = ConnectionAbortedError("Initialization failure from server:\nRuntimeError: Starting Ray client server failed. See x.err")


class Head:
    """Gives ``answers`` one after the other: raises an exception, returns the rest."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[Any] = []

    def init(self, address: str, **options: Any) -> Any:
        """Connect."""
        self.calls.append((address, options))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ray(head: Head) -> Any:
    module = ModuleType("ray")
    module.init = head.init  # type: ignore[attr-defined]
    patient(module)
    return module


def test_a_head_that_could_not_fork_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    head = Head(FORK, "connected")
    assert ray(head).init("ray://r:1", ignore_reinit_error=True) == "connected"
    assert head.calls == [("ray://r:1", {"ignore_reinit_error": True})] * 2
    assert f"attempt 2 of {ATTEMPTS}" in capsys.readouterr().err
    assert ray(head).init.__doc__ == "Connect."


def test_it_is_not_asked_without_end() -> None:
    head = Head(*[FORK] * (ATTEMPTS + 1))
    with pytest.raises(ConnectionAbortedError, match="Starting Ray client server failed"):
        ray(head).init("ray://r:1")
    assert len(head.calls) == ATTEMPTS


@pytest.mark.parametrize("error", [ConnectionAbortedError("Python versions differ"), ConnectionError("refused")])
def test_another_failure_is_raised_at_once(error: Exception) -> None:
    head = Head(error)
    with pytest.raises(type(error), match=str(error)):
        ray(head).init("ray://r:1")
    assert len(head.calls) == 1
