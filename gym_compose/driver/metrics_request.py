"""One ``POST /aggregate_metrics``: the records of a server, read from their files while they are sent; its answer, through a file.

The protocol is one request with all records of a server. What is held of a rollout is some 30 bytes.
"""

from __future__ import annotations

import asyncio
import tempfile
from array import array
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import orjson

from gym_compose.driver.errors import AggregationError, OutputFailedError
from gym_compose.driver.metrics_file import MetricsFile, parse_answer
from gym_compose.tasks.rows import ROLLOUT_INDEX, TASK_INDEX
from gym_compose.wire.settings import Settings

_HEAVY = frozenset(("response", "responses_create_params", "ng_agent_observations", "ng_model_call_capture", "ng_trajectory"))
_KEPT_OF_RESPONSE = ("usage", "incomplete_details")
_METRICS = ("agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics")
_CHUNK = 256 * 1024
_EXCERPT = 2000
_INDICES = 2**63


@dataclass
class RecordGroup:
    """The records that one server is asked about: number of the file and offset, task and rollout index of each; and records that no file
    holds. ``head`` is what its entry in the file of metrics begins with."""

    server: str
    url: str
    agent: str | None = None
    head: dict[str, Any] = field(default_factory=dict)
    files: array[int] = field(default_factory=lambda: array("H"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    tasks: array[int] = field(default_factory=lambda: array("q"))
    rollouts: array[int] = field(default_factory=lambda: array("q"))
    added: list[dict[str, Any]] = field(default_factory=list)

    def add(self, file: int, offset: int, record: Mapping[str, Any]) -> None:
        self.files.append(file)
        self.offsets.append(offset)
        self.tasks.append(record[TASK_INDEX])
        self.rollouts.append(record[ROLLOUT_INDEX])

    def add_record(self, record: dict[str, Any]) -> None:
        self.tasks.append(record[TASK_INDEX])
        self.rollouts.append(record[ROLLOUT_INDEX])
        self.added.append(record)

    def order(self) -> list[int]:
        """The rollouts by task and rollout index."""
        return sorted(range(len(self.tasks)), key=lambda number: (self.tasks[number], self.rollouts[number]))


def stripped(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is sent for aggregation: without heavy fields, with ``response: {usage, incomplete_details}`` where they exist."""
    light = {key: value for key, value in record.items() if key not in _HEAVY}
    response = record.get("response")
    if isinstance(response, Mapping):
        kept = {key: response[key] for key in _KEPT_OF_RESPONSE if response.get(key) is not None}
        if kept:
            light["response"] = kept
    return light


async def write_metrics(
    files: Sequence[Path], groups: Sequence[tuple[RecordGroup, Sequence[int]]], target: Path, settings: Settings
) -> tuple[dict[str, Any], ...]:
    """Ask about each group in the given order of its records and write ``target``, whole or not at all. Returns its entries without their
    groups. Raises AggregationError, OutputFailedError."""
    with MetricsFile(target) as written:
        for group, order in groups:
            with tempfile.TemporaryFile(dir=target.parent) as spool:
                await _ask(group, _body(files, group, order), spool, settings)
                _add(written, group, spool)
    return tuple(written.entries)


def refuse_duplicates(group: RecordGroup, order: Sequence[int], files: Sequence[Path]) -> None:
    """The server would refuse them too, after everything has been sent."""
    for one, two in pairwise(order):
        if group.tasks[one] == group.tasks[two] and group.rollouts[one] == group.rollouts[two]:
            where = ", ".join(dict.fromkeys(str(files[group.files[number]]) for number in (one, two)))
            raise AggregationError(
                f"rollout {group.tasks[one]}:{group.rollouts[one]} of {group.server!r} is there twice",
                where=where,
                hint="Shards of one run must not overlap.",
            )


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Offset and record of each line. Raises OutputFailedError with the line that is none."""
    offset = number = 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    record = orjson.loads(line)
                    if not all(type(record[key]) is int and -_INDICES <= record[key] < _INDICES for key in (TASK_INDEX, ROLLOUT_INDEX)):
                        raise ValueError(f"line {number} has no whole numbers as {TASK_INDEX} and {ROLLOUT_INDEX}")
                    yield offset, record
                offset += len(line)
    except orjson.JSONDecodeError as error:
        torn = "its last line is torn" if not line.endswith(b"\n") else f"line {number} is no JSON ({error.msg})"
        hint = "Resume its run, which mends that, or remove the line."
        raise OutputFailedError(f"the rollouts cannot be read back: {torn}", where=str(path), hint=hint) from None
    except (KeyError, TypeError) as error:
        raise OutputFailedError(f"the rollouts cannot be read back: line {number} is no rollout ({error})", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise OutputFailedError(f"the rollouts cannot be read back: {error}", where=str(path)) from None


async def _body(files: Sequence[Path], group: RecordGroup, order: Sequence[int]) -> AsyncIterator[bytes]:
    opened: dict[int, BinaryIO] = {}
    chunk = bytearray(b'{"verify_responses":[')
    try:
        for place, number in enumerate(order):
            if number < len(group.offsets):
                file = group.files[number]
                if file not in opened:
                    opened[file] = files[file].open("rb")
                opened[file].seek(group.offsets[number])
                record = orjson.loads(opened[file].readline())
            else:
                record = group.added[number - len(group.offsets)]
            chunk += b"," if place else b""
            chunk += orjson.dumps(stripped(record))
            if len(chunk) >= _CHUNK:
                yield bytes(chunk)
                chunk.clear()
        yield bytes(chunk) + b"]}"
    finally:
        for lines in opened.values():
            lines.close()


async def _ask(group: RecordGroup, body: AsyncIterator[bytes], spool: BinaryIO, settings: Settings) -> None:
    """Send the records and take the answer. A connection of its own: nothing here is worth a pool, and nothing may be sent twice."""
    if not group.url:
        raise _no_metrics(group, "it has no address that works from here")
    url = f"{group.url}/aggregate_metrics"
    unbounded = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
    try:
        async with (
            asyncio.timeout(settings.aggregate_seconds),
            aiohttp.ClientSession(timeout=unbounded, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.post(url, data=body, headers={"content-type": "application/json"}) as answer,
        ):
            if answer.status >= 400:
                text = (await answer.content.read(_EXCERPT)).decode("utf-8", "replace")
                raise _no_metrics(group, f"it answered {answer.status}: {text}")
            async for chunk in answer.content.iter_chunked(_CHUNK):
                spool.write(chunk)
    except TimeoutError:
        raise _no_metrics(group, f"no answer in {settings.aggregate_seconds:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise _no_metrics(group, f"{type(error).__name__}: {error}") from None


def _add(written: MetricsFile, group: RecordGroup, spool: BinaryIO) -> None:
    spool.flush()
    try:
        answer = parse_answer(spool)
    except ValueError as error:
        raise _no_metrics(group, f"what it answers is no aggregate ({error})") from None
    summary = ("perf_summary",) if bytes(answer.get("perf_summary", b"null")) != b"null" else ()
    written.add(group.head, answer, (*_METRICS, *summary))


def _no_metrics(group: RecordGroup, why: str) -> AggregationError:
    return AggregationError(
        f"no aggregate metrics from {group.server!r}: {why}", where=f"{group.url}/aggregate_metrics", hint="The rollouts are saved."
    )
