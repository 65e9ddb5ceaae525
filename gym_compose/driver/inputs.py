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
from gym_compose.driver.manifest import FileFacts, Fingerprint
from gym_compose.driver.output import full_or
from gym_compose.driver.record import attempt_of, identity_of, request_body
from gym_compose.driver.routing import EnvironmentServer, Router
from gym_compose.tasks.errors import RowError
from gym_compose.tasks.expansion import ExpandedRow, Expander, ExpansionOptions
from gym_compose.tasks.prompt import Prompt
from gym_compose.tasks.rows import ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, TOO_DEEP, agent_of, read_rows, source_of, taskset_of
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
    """What was laid down. ``servers`` are those that get rows; ``input`` is what was read of the input."""

    requested: int
    servers: tuple[EnvironmentServer, ...]
    warnings: tuple[str, ...]
    input: FileFacts
    materialized: FileFacts

    @property
    def mean_bytes(self) -> float:
        """The mean size of a row."""
        return self.materialized.size / max(1, self.requested)


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
        """Expand and check all rows.

        Raises RowError, RowOptionsError or RoutingError, InvalidInputError for an input that is not there or changes meanwhile, and
        OutputFailedError when it cannot be written.
        """
        path, limit = Path(self._request.input_jsonl_fpath), self._request.limit
        if not path.is_file():
            raise InvalidInputError("the input does not exist" if not path.exists() else "the input is not a file", where=str(path))
        before = _state(path)
        read, laid = Fingerprint(), Fingerprint()
        expander = Expander(expansion_options(self._request), self._router.choose, path)
        interleave = self._request.interleave_repeats
        offsets, rollouts = array("Q"), array("L")
        servers: dict[str, EnvironmentServer] = {}
        legacy = 0
        try:
            with self._part.open("wb") as out:
                async for expanded in _breathing(expander.expand(read_rows(path, limit, seen=read.feed))):
                    row = expanded.row
                    legacy += ENVIRONMENT_SERVER not in row and agent_of(row) is not None and source_of(row) is None
                    server = self._router.place(row, expanded.line)
                    if server is not None:
                        servers[server.name] = server
                    line = _line_of(row, path, expanded.line)
                    _check_episode(row, line, path, expanded.line)
                    if interleave:
                        offsets.append(laid.size)
                        rollouts.append(expanded.rollout)
                    out.write(line)
                    laid.feed(line)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {full_or(error)}", where=str(self._target)) from None
        if _state(path) != before:
            raise InvalidInputError(
                "the input changed while it was read", where=str(path), hint="Wait until it is written, then run again."
            )
        self._router.raise_problems()
        if interleave:
            laid = self._interleave(offsets, rollouts, laid.size)
        warnings = list(expander.warnings)
        if legacy and self._request.agent_name is None and not self._request.agent_map:
            warnings.append(
                f"{legacy} rows are routed by the agent_ref in the data, which is deprecated: collate the dataset anew, or give --agent"
            )
        whole = not limit or (limit > 0 and read.lines < limit)
        return Staged(laid.lines, tuple(servers.values()), tuple(warnings), read.facts(whole=whole), laid.facts())

    def commit(self, *, sync: bool) -> None:
        """Put the file in place, ``sync``: once it is on the disk. Raises OutputFailedError."""
        try:
            if sync:
                with self._part.open("rb") as part:
                    os.fsync(part.fileno())
            os.replace(self._part, self._target)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {full_or(error)}", where=str(self._target)) from None

    def _interleave(self, offsets: array[int], rollouts: array[int], end: int) -> Fingerprint:
        """All first rollouts, then all second ones, and so on; within each in the order of the input."""
        order = sorted(range(len(offsets)), key=rollouts.__getitem__)
        laid = Fingerprint()
        try:
            with self._part.open("rb") as rows, self._sorted.open("wb") as out:
                for number in order:
                    rows.seek(offsets[number])
                    stop = offsets[number + 1] if number + 1 < len(offsets) else end
                    line = rows.read(stop - offsets[number])
                    out.write(line)
                    laid.feed(line)
            os.replace(self._sorted, self._part)
        except OSError as error:
            raise OutputFailedError(f"cannot be written: {full_or(error)}", where=str(self._target)) from None
        return laid


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


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced. Raises InvalidInputError."""
    try:
        stat = path.stat()
    except OSError as error:
        raise InvalidInputError(f"the input cannot be read: {error.strerror}", where=str(path)) from None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _line_of(row: dict[str, Any], path: Path, number: int) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        raise RowError(TOO_DEEP, path=path, line=number) from None


def _check_episode(row: dict[str, Any], line: bytes, path: Path, number: int) -> None:
    if taskset_of(row) is None:
        return
    try:
        request_body(row, line)
    except ValueError as error:
        raise RowError(str(error), path=path, line=number) from None
