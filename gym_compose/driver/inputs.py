"""The rows of a run, expanded, routed, checked and laid down in ``<stem>_materialized_inputs.jsonl`` before anything is sent.

They are read, written and read again as streams; what is kept in memory for a row is a few bytes.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from gym_compose.driver.errors import OutputFailedError
from gym_compose.driver.record import attempt_of, identity_of, request_body
from gym_compose.driver.routing import EnvironmentServer, Router
from gym_compose.tasks.errors import RowError
from gym_compose.tasks.expansion import ExpandedRow, Expander, ExpansionOptions
from gym_compose.tasks.prompt import Prompt
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, agent_of, read_rows, source_of, taskset_of
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.run import RunRequest

# Staging is plain computing; every so many rows the loop gets a turn, so that a signal is seen.
_BREATH = 512


@dataclass(frozen=True)
class Job:
    """One row to send: its body, whereto, and of the row itself only what the record needs."""

    row: dict[str, Any]
    body: bytes
    server: EnvironmentServer
    task: int
    rollout: int
    attempt: int


@dataclass(frozen=True)
class Staged:
    """What was laid down. ``servers`` are those that get rows, ``mean_bytes`` is the mean size of a row."""

    requested: int
    servers: tuple[EnvironmentServer, ...]
    mean_bytes: float
    warnings: tuple[str, ...]


class InputStage:
    """Rows on their way to the materialized file. A context manager: without ``commit`` nothing stays."""

    def __init__(self, request: RunRequest, router: Router, target: Path) -> None:
        self._request = request
        self._router = router
        self._target = target
        self._part = target.with_name(target.name + ".part")
        self._sorted = target.with_name(target.name + ".sorted.part")

    def __enter__(self) -> InputStage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._part.unlink(missing_ok=True)
        self._sorted.unlink(missing_ok=True)

    async def lay(self) -> Staged:
        """Expand and check all rows. Raises RowError, RowOptionsError or RoutingError, and OutputFailedError when it cannot be written."""
        path = Path(self._request.input_jsonl_fpath)
        if not path.is_file():
            raise InvalidInputError("the input does not exist" if not path.exists() else "the input is not a file", where=str(path))
        expander = Expander(expansion_options(self._request), self._router.choose, path)
        offsets, rollouts = array("Q"), array("L")
        servers: dict[str, EnvironmentServer] = {}
        position = legacy = 0
        try:
            with self._part.open("wb") as out:
                async for expanded in _breathing(expander.expand(read_rows(path, self._request.limit))):
                    row = expanded.row
                    legacy += ENVIRONMENT_SERVER not in row and agent_of(row) is not None and source_of(row) is None
                    server = self._router.place(row, expanded.line)
                    if server is not None:
                        servers[server.name] = server
                    line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
                    _check_episode(row, line, path, expanded.line)
                    offsets.append(position)
                    rollouts.append(expanded.rollout)
                    position += out.write(line)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._target)) from None
        self._router.raise_problems()
        if self._request.interleave_repeats:
            self._interleave(offsets, rollouts, position)
        warnings = list(expander.warnings)
        if legacy and self._request.agent_name is None and not self._request.agent_map:
            warnings.append(
                f"{legacy} rows are routed by the agent_ref in the data, which is deprecated: collate the dataset anew, or give --agent"
            )
        requested = len(offsets)
        return Staged(requested, tuple(servers.values()), position / requested if requested else 0.0, tuple(warnings))

    def commit(self) -> None:
        """Put the file in place. Raises OutputFailedError."""
        try:
            os.replace(self._part, self._target)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._target)) from None

    def _interleave(self, offsets: array[int], rollouts: array[int], end: int) -> None:
        """All first rollouts, then all second ones, and so on; within each in the order of the input."""
        order = sorted(range(len(offsets)), key=rollouts.__getitem__)
        try:
            with self._part.open("rb") as rows, self._sorted.open("wb") as out:
                for number in order:
                    rows.seek(offsets[number])
                    stop = offsets[number + 1] if number + 1 < len(offsets) else end
                    out.write(rows.read(stop - offsets[number]))
            os.replace(self._sorted, self._part)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {error.strerror}", where=str(self._target)) from None


def expansion_options(request: RunRequest) -> ExpansionOptions:
    """What a request says about rows."""
    prompt = None if request.prompt is None else Prompt(request.prompt.user, request.prompt.system, request.prompt.path)
    return ExpansionOptions(
        agent_name=request.agent_name,
        agent_map=request.agent_map,
        fan_out=request.fan_out,
        num_repeats=request.num_repeats,
        num_repeats_add_seed=request.num_repeats_add_seed,
        responses_create_params=request.responses_create_params,
        prompt=prompt,
        skills_ref=request.skills_ref,
    )


def jobs(path: Path, router: Router) -> Iterator[Job]:
    """The rows of a materialized file as jobs, one at a time. It was checked when it was written, so a bad line is a damaged file."""
    for source in read_rows(path):
        row = source.row
        server = router.place(row, source.line)
        if server is None:
            router.raise_problems()
            continue
        body = request_body(row, source.text)
        yield Job(identity_of(row), body, server, int(row[TASK_INDEX]), int(row[ROLLOUT_INDEX]), attempt_of(row))


async def _breathing(rows: Iterator[ExpandedRow]) -> AsyncIterator[ExpandedRow]:
    for number, row in enumerate(rows, 1):
        yield row
        if number % _BREATH == 0:
            await asyncio.sleep(0)


def _check_episode(row: dict[str, Any], line: bytes, path: Path, number: int) -> None:
    if taskset_of(row) is None:
        return
    try:
        request_body(row, line)
    except ValueError as error:
        raise RowError(str(error), path=path, line=number) from None
