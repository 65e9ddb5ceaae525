"""Errors of datasets and rows.

    InvalidInputError
    ├── RowError            a line of an input file: file and 1-based line
    ├── RowOptionsError     options that contradict each other or the rows
    ├── DatasetError        a declared dataset: its split, its file, its prompt
    ├── DatasetAgentError   no agent, or not one agent, runs a dataset
    ├── TaskDataError       rows do not fit the schema of their server
    ├── TaskCodeError       a server's task_data.py or dataset_metrics.py cannot be used
    ├── PrepareError        a prepare script did not make its file
    └── DownloadError       a dataset could not be fetched

Errors of manifests are the contract's, in ``config.errors``; the driver needs this module and not that package.

All end a command with the exit code of bad input.
"""

from __future__ import annotations

from gym_compose.wire.errors import InvalidInputError


class RowError(InvalidInputError):
    """A line of an input file cannot be used."""

    def __init__(self, message: str, *, path: object, line: int, hint: str | None = None, details: tuple[str, ...] = ()) -> None:
        super().__init__(message, where=f"{path}, line {line}", hint=hint, details=details)
        self.line = line


class RowOptionsError(InvalidInputError):
    """Options of a run contradict each other, or rows of the input."""


class DatasetError(InvalidInputError):
    """A dataset that the config declares cannot be used."""


class DatasetAgentError(InvalidInputError):
    """It cannot be told which agent or environment server runs a dataset (contract-data 3.3)."""


class TaskDataError(InvalidInputError):
    """Rows do not fit the ``task_data.py`` of the server that owns them (contract-data 3.6)."""


class TaskCodeError(InvalidInputError):
    """A server's code about its rows, ``task_data.py`` or ``dataset_metrics.py``, cannot be used."""


class PrepareError(InvalidInputError):
    """A prepare script failed, or did not make the file that its dataset names (contract-data 3.7)."""


class DownloadError(InvalidInputError):
    """A dataset could not be fetched from where its config says it is."""
