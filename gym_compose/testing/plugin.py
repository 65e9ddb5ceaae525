"""pytest fixtures: ``gym_deployment`` starts deployments that end with the test, ``gym_session_deployment`` with the session.

Registered as the pytest11 entry point ``gym_compose``. Heavy imports wait until a fixture is used: the plugin is loaded in every
pytest run of its environment.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from gym_compose.testing.deployment import GymDeployment


class LeftoverWarning(UserWarning):
    """A test left something of a deployment behind; it was removed at the end of the session."""


class StartDeployment(Protocol):
    """``start(config, overrides=…, engine=…)``: a started GymDeployment, which the fixture stops."""

    def __call__(self, *args: Any, **options: Any) -> GymDeployment: ...


@pytest.fixture(scope="session")
def gym_reaper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """At the end of the session removes what is left of deployments whose files stand below pytest's temporary directory."""
    yield
    from gym_compose.testing.reaper import reap

    left = reap(tmp_path_factory.getbasetemp(), environ=os.environ)
    if left:
        warnings.warn(LeftoverWarning(str(left)), stacklevel=1)


@pytest.fixture
def gym_deployment(gym_reaper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDeployment]:  # noqa: ARG001
    """Starts deployments for one test. Each gets a directory of its own unless ``cwd`` is given."""
    yield from _starter(tmp_path_factory)


@pytest.fixture(scope="session")
def gym_session_deployment(gym_reaper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDeployment]:  # noqa: ARG001
    """Starts deployments that tests share; they end with the session."""
    yield from _starter(tmp_path_factory)


def _starter(factory: pytest.TempPathFactory) -> Iterator[StartDeployment]:
    from gym_compose.testing.deployment import GymDeployment

    with contextlib.ExitStack() as stack:

        def start(*args: Any, **options: Any) -> GymDeployment:
            options.setdefault("cwd", factory.mktemp("gym"))
            return stack.enter_context(GymDeployment(*args, **options))

        yield start
