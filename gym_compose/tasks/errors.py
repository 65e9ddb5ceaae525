"""Errors of datasets and rows.

    InvalidInputError
    ├── RowError            a line of an input file: file and 1-based line
    ├── RowOptionsError     options that contradict each other or the rows
    ├── DatasetError        a declared dataset: its split, its file, its prompt
    └── DatasetAgentError   no agent, or not one agent, runs a dataset

Errors of manifests are the contract's, in ``config.errors``; the driver needs this module and not that package.

All end a command with the exit code of bad input.
"""

from __future__ import annotations

from gym_compose.wire.errors import InvalidInputError


class RowError(InvalidInputError):
    """A line of an input file cannot be used."""

    def __init__(self, message: str, *, path: object, line: int, hint: str | None = None) -> None:
        super().__init__(message, where=f"{path}, line {line}", hint=hint)
        self.line = line


class RowOptionsError(InvalidInputError):
    """Options of a run contradict each other, or rows of the input."""


class DatasetError(InvalidInputError):
    """A dataset that the config declares cannot be used."""


class DatasetAgentError(InvalidInputError):
    """It cannot be told which agent or environment server runs a dataset (contract-data 3.3)."""
