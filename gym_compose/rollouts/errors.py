"""Errors of the commands on stored rollouts.

InvalidInputError
├── RolloutFileError     a file of a run is not there, or a line of it is not what it should be
└── RolloutsDifferError  files of a run do not belong together
"""

from __future__ import annotations

from gym_compose.wire.errors import InvalidInputError


class RolloutFileError(InvalidInputError):
    """A file of a run cannot be read, or a line of it is no record."""


class RolloutsDifferError(InvalidInputError):
    """Inputs, rollouts and failures of a run, or shards of one, do not fit each other."""
