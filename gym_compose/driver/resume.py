"""Going on with a run that ended early (contract-data 1.12): what its files say is read and checked first, then they are repaired.

The rows are those of the materialized file. Skipped is what the output has, what failed for good, and what failed as often as it may.
Everything is a stream; of a row some 30 bytes are kept. Nothing is changed before ``Survey.apply``.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gym_compose.driver.attempts import MOST_ATTEMPTS, attempts_allowed, elapsed_of, is_terminal
from gym_compose.driver.errors import OutputFailedError, ResumeError
from gym_compose.driver.inputs import Job
from gym_compose.driver.invalid_judge import INVALID_JUDGE, JUDGE_INVALID, MIGRATED, as_failure, migrate, migration_key
from gym_compose.driver.journal import JournalReader
from gym_compose.driver.manifest import FileFacts, Fingerprint, RunManifest, row_changes, row_fields, server_changes, server_fields
from gym_compose.driver.output import OutputPaths
from gym_compose.driver.progress import Tally
from gym_compose.driver.record import FAILURE_CLASS, Outcome, attempt_of, identity_of, request_body
from gym_compose.driver.routing import EnvironmentServer, Router
from gym_compose.driver.stored import Repair, StoredLine, stored_lines
from gym_compose.tasks.rows import AGENT_REF, ATTEMPT_INDEX, ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, parse_row
from gym_compose.tasks.table import PairTable
from gym_compose.wire.deadline import Clock
from gym_compose.wire.run import RunRequest

REUSE = "reuse_cached_deliverable"
_COMPLETED, _FINAL, _REUSED, _UNROUTED = 1, 2, 4, 8
_BREATH = 512


@dataclass
class _Rows:
    """What is known of the rows of the materialized file, by their place in it."""

    index: PairTable = field(default_factory=PairTable)
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    flags: bytearray = field(default_factory=bytearray)
    attempts: array[int] = field(default_factory=lambda: array("H"))
    servers: array[int] = field(default_factory=lambda: array("H"))
    failures: array[int] = field(default_factory=lambda: array("I"))
    elapsed: array[float] = field(default_factory=lambda: array("d"))
    names: dict[str, int] = field(default_factory=dict)

    def add(self, task: int, rollout: int, offset: int, server: str | None) -> bool:
        """Take one more row; False when that task and rollout are there already."""
        place = len(self.flags)
        if self.index.setdefault(task, rollout, place) != place:
            return False
        self.offsets.append(offset)
        self.flags.append(0 if server is not None else _UNROUTED)
        self.attempts.append(0)
        self.servers.append(self.names.setdefault(server or "", len(self.names)))
        self.failures.append(0)
        self.elapsed.append(0.0)
        return True

    def server(self, place: int) -> str:
        return list(self.names)[self.servers[place]]


@dataclass
class Survey:
    """What an earlier run left, and what is still to do. ``jobs`` may be asked after ``apply``."""

    paths: OutputPaths
    router: Router
    tally: Tally
    manifest: RunManifest
    servers: tuple[EnvironmentServer, ...]
    to_send: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    _rows: _Rows
    _allowed: int
    _longest_first: bool
    _repairs: tuple[Repair, ...]
    _migrate: bool

    @property
    def mean_bytes(self) -> float:
        """The mean size of a row."""
        return self.manifest.materialized.size / max(1, self.manifest.materialized.lines)

    def apply(self) -> None:
        """Repair the ends of files, move what counts as a failure now. Raises OutputFailedError."""
        for repair in self._repairs:
            repair.apply()
        if self._migrate:
            migrate(self.paths)

    def jobs(self) -> Iterator[Job]:
        """The rows still to be sent, one at a time, in the order of the materialized file or the longest first."""
        try:
            with self.paths.materialized.open("rb") as lines:
                for place in self._order():
                    lines.seek(self._rows.offsets[place])
                    yield self._job(place, lines.readline())
        except OSError as error:
            raise OutputFailedError(f"cannot be read: {error.strerror}", where=str(self.paths.materialized)) from None

    def _order(self) -> Iterator[int]:
        rows = self._rows
        wanted = (place for place in range(len(rows.flags)) if _to_send(rows, place, self._allowed))
        if not self._longest_first:
            yield from wanted
            return
        places = array("Q", wanted)
        yield from sorted((place for place in places if rows.elapsed[place] > 0), key=lambda place: -rows.elapsed[place])
        yield from (place for place in places if rows.elapsed[place] == 0)

    def _job(self, place: int, text: bytes) -> Job:
        row = parse_row(text, self.paths.materialized, place + 1)
        stamped = AGENT_REF in row  # NeMo Gym's file may lack what the router adds
        server = self.router.place(row, place + 1)
        if server is None:
            self.router.raise_problems()
            raise AssertionError("a row without a server has a problem")
        attempts, reused = self._rows.attempts[place], self._rows.flags[place] & _REUSED
        if attempts:
            row[ATTEMPT_INDEX] = attempts
        if reused:
            row[REUSE] = True
        if attempts or reused or not stamped:
            text = orjson.dumps(row)
        return Job(identity_of(row), request_body(row, text), server, row[TASK_INDEX], row[ROLLOUT_INDEX], attempt_of(row))


async def survey(
    request: RunRequest, router: Router, config: Mapping[str, Any], paths: OutputPaths, environ: Mapping[str, str], clock: Clock
) -> Survey:
    """Read what is there and check all of it. ``paths.resumable()`` was True.

    Raises ResumeError for changed input or config (unless ``resume_anyway`` or ``strict_compatibility``), damaged lines, rows that do not
    belong together; RoutingError for rows that are still to be sent and cannot be.
    """
    reading = _Reading(request, router, config, paths, *attempts_allowed(environ))
    await reading.materialized()
    await reading.failures()
    await reading.rollouts(Tally(len(reading.rows.flags), clock))
    return reading.survey(await reading.journal())


class _Reading:
    """The passes over the files, in their order."""

    def __init__(
        self, request: RunRequest, router: Router, config: Mapping[str, Any], paths: OutputPaths, allowed: int, warning: str | None
    ) -> None:
        self.request = request
        self.router = router
        self.config = config
        self.paths = paths
        self.allowed = allowed
        self.warnings = [] if warning is None else [warning]
        self.rows = _Rows()
        self.repairs: list[Repair] = []
        self.kinds: list[dict[str, Any]] = []
        self.kind_numbers: dict[tuple[Any, ...], int] = {}
        self.migrated: set[tuple[Any, ...]] = set()
        self.invalid_judge = 0
        self.prior_failures = 0

    async def materialized(self) -> None:
        """The rows, and whether each of them has a place to go."""
        path, fingerprint = self.paths.materialized, Fingerprint()
        async for line in _breathing(stored_lines(path, self.repairs)):
            row = line.record
            task, rollout = _key(row, path, line.number)
            try:
                request_body(row, line.text)
            except ValueError as error:
                raise ResumeError(str(error), where=f"{path}, line {line.number}") from None
            server = self.router.place(row, line.number)
            if not self.rows.add(task, rollout, fingerprint.size, None if server is None else server.name):
                raise ResumeError(f"task {task}, rollout {rollout} stands there twice", where=f"{path}, line {line.number}")
            fingerprint.feed(line.text)
        if any(repair.torn for repair in self.repairs):
            raise ResumeError(
                "it ends in the middle of a row, so rows are missing",
                where=str(path),
                hint="Start anew with --overwrite, or another --output.",
            )
        self.facts = fingerprint.facts()

    async def failures(self) -> None:
        """Failed attempts: how often, whether for good, how long."""
        path, nameless = self.paths.failures, 0
        async for line in _breathing(stored_lines(path, self.repairs)):
            record = line.record
            if TASK_INDEX not in record or ROLLOUT_INDEX not in record:
                nameless += 1
                continue
            self._failed(self._place(record, path, line.number), record)
            if record.get(MIGRATED):
                self.migrated.add(migration_key(record))
        if nameless:
            self.warnings.append(f"{path.name}: {nameless} lines name no task and rollout and are passed over")

    def _failed(self, place: int, record: Mapping[str, Any]) -> None:
        rows = self.rows
        self.prior_failures += 1
        rows.attempts[place] = min(rows.attempts[place] + 1, MOST_ATTEMPTS)
        if is_terminal(record, retry_timeouts=self.request.retry_terminal_timeouts):
            rows.flags[place] |= _FINAL
        if record.get(REUSE):
            rows.flags[place] |= _REUSED
        elapsed = elapsed_of(record)
        if elapsed is not None:
            rows.elapsed[place] = max(rows.elapsed[place], elapsed)
        rows.failures[place] = self._kind(place, record) + 1

    def _kind(self, place: int, record: Mapping[str, Any]) -> int:
        """The number of what is shown of a failure: server, agent, class."""
        reference = record.get(AGENT_REF)
        agent = reference.get("name") if isinstance(reference, Mapping) else None
        task = record.get("_ng_task_id")
        taskset = task.get("taskset") if isinstance(task, Mapping) else None
        server = str(record.get(ENVIRONMENT_SERVER) or self.rows.server(place))
        name = str(record.get(FAILURE_CLASS) or JUDGE_INVALID)
        number = self.kind_numbers.setdefault((server, taskset, agent, name), len(self.kinds))
        if number == len(self.kinds):
            kept: dict[str, Any] = {"_ng_task_id": {"taskset": taskset}, AGENT_REF: {"name": agent}}
            self.kinds.append({**kept, ENVIRONMENT_SERVER: server, FAILURE_CLASS: name})
        return number

    async def rollouts(self, tally: Tally) -> None:
        """What is done; counted in ``tally``, as are the failures that stay."""
        path, rows = self.paths.rollouts, self.rows
        async for line in _breathing(stored_lines(path, self.repairs)):
            record = line.record
            place = self._place(record, path, line.number)
            if self.request.retry_invalid_judge_responses and record.get(INVALID_JUDGE):
                self.invalid_judge += 1
                if migration_key(record) not in self.migrated:
                    self._failed(place, as_failure(record))
                continue
            if rows.flags[place] & _COMPLETED:
                raise ResumeError(
                    f"task {record[TASK_INDEX]}, rollout {record[ROLLOUT_INDEX]} stands there twice",
                    where=f"{path}, line {line.number}",
                    hint="Remove one of the two lines.",
                )
            rows.flags[place] |= _COMPLETED
            stamped = record if ENVIRONMENT_SERVER in record else {**record, ENVIRONMENT_SERVER: rows.server(place)}
            tally.carry(Outcome("completed", stamped))
        for place, kind in enumerate(rows.failures):
            if kind and not rows.flags[place] & _COMPLETED and not _to_send(rows, place, self.allowed):
                record = self.kinds[kind - 1]
                tally.carry(Outcome("failed", record, record[FAILURE_CLASS]))
        self.tally = tally

    async def journal(self) -> JournalReader:
        reader = JournalReader()
        async for line in _breathing(stored_lines(self.paths.journal, self.repairs)):
            reader.read(line.record)
        return reader

    def survey(self, journal: JournalReader) -> Survey:
        """All that was read, once it is known that it may be gone on with."""
        rows = self.rows
        places = array("Q", (place for place in range(len(rows.flags)) if _to_send(rows, place, self.allowed)))
        if any(rows.flags[place] & _UNROUTED for place in places):
            self.router.raise_problems()
        names = list(rows.names)
        sent_to = {names[number] for number in {rows.servers[place] for place in places}}
        manifest = self._manifest(journal)
        return Survey(
            paths=self.paths,
            router=self.router,
            tally=self.tally,
            manifest=manifest,
            servers=tuple(server for name, server in self.router.servers.items() if name in sent_to),
            to_send=len(places),
            notes=(self._note(journal, len(places)), *(f"{repair}" for repair in self.repairs)),
            warnings=tuple(self.warnings),
            _rows=rows,
            _allowed=self.allowed,
            _longest_first=self.request.dispatch_longest_first,
            _repairs=tuple(self.repairs),
            _migrate=self.invalid_judge > 0,
        )

    def _manifest(self, journal: JournalReader) -> RunManifest:
        """That of the first run. Raises ResumeError that lists what has changed since."""
        servers = server_fields(self.config, (name for name in self.rows.names if name))
        first = journal.manifest
        if first is None:
            self.warnings.append(
                f"{self.paths.rollouts.name} has no readable journal (NeMo Gym made it, or it was cut): whether its input or config "
                "changed since is not known"
            )
            rows = row_fields(self.request, self.router.routes)
            return RunManifest(rows=rows, servers=servers, input=self._input(), materialized=self.facts)
        edited = () if first.materialized == self.facts else (f"{self.paths.materialized.name} was edited",)
        asked = _changes_of_request(first, self.request, self.router.routes)
        changed = (*edited, *asked, *server_changes(first, servers))
        if changed and not _goes_on_anyway(self.request):
            raise _changed_error(self.paths, changed)
        if changed:
            self.warnings.append(f"gone on with although it changed: {'; '.join(changed)}. The rows are still those of the first run")
        return first

    def _input(self) -> FileFacts | None:
        fingerprint = Fingerprint()
        try:
            with Path(self.request.input_jsonl_fpath).open("rb") as lines:
                for line in lines:
                    fingerprint.feed(line)
        except OSError:
            return None
        return fingerprint.facts()

    def _note(self, journal: JournalReader, left: int) -> str:
        rows = self.rows
        final = sum(1 for flags in rows.flags if flags & _FINAL and not flags & _COMPLETED)
        done, failed = self.tally.completed, self.tally.failed
        kept = f", {failed} failed and stay so ({final} for good, {failed - final} after {self.allowed} attempts)" if failed else ""
        lost = f"; {journal.lost} were in flight when the last driver ended" if journal.lost else ""
        moved = f"; {self.invalid_judge} with an invalid judge response are run again" if self.invalid_judge else ""
        name = f"run {journal.run_id}" if journal.run_id else "a run"
        return f"going on with {name}: {done} of {len(rows.flags)} rollouts are done{kept}, {left} to run{lost}{moved}"

    def _place(self, record: Mapping[str, Any], path: Path, number: int) -> int:
        task, rollout = _key(record, path, number)
        place = self.rows.index.get(task, rollout)
        if place is None:
            raise ResumeError(
                f"task {task}, rollout {rollout} is none of {self.paths.materialized.name}",
                where=f"{path}, line {number}",
                hint="That line belongs to another run: remove it.",
            )
        return place


def check_request(request: RunRequest, paths: OutputPaths) -> None:
    """Whether a request asks for what the run there was asked: all that can be told before any server runs.

    Raises ResumeError as ``survey`` does; nothing without a run of ours.
    """
    if _goes_on_anyway(request) or not paths.resumable():
        return
    for line in stored_lines(paths.journal, []):
        reader = JournalReader()
        reader.read(line.record)
        if reader.manifest is not None:
            changed = _changes_of_request(reader.manifest, request, request.environment_server_routes)
            if changed:
                raise _changed_error(paths, changed)
        return


def _goes_on_anyway(request: RunRequest) -> bool:
    return request.resume_anyway or request.strict_compatibility


def _changed_error(paths: OutputPaths, changed: tuple[str, ...]) -> ResumeError:
    return ResumeError(
        "input or config is not what it was when the run began",
        where=str(paths.rollouts),
        hint="Undo the change, or give --resume-anyway to run the rest of the first run's rows with what is there now.",
        details=changed,
    )


def _changes_of_request(first: RunManifest, request: RunRequest, routes: Mapping[str, str] | None) -> tuple[str, ...]:
    path = Path(request.input_jsonl_fpath)
    try:
        same = first.input is None or first.input.describes(path)
        found = () if same else (f"input {path.name}: its content",)
    except OSError as error:
        found = (f"input {path.name}: it cannot be read any more ({error.strerror})",)
    return (*found, *row_changes(first, row_fields(request, routes)))


def _to_send(rows: _Rows, place: int, allowed: int) -> bool:
    return not rows.flags[place] & (_COMPLETED | _FINAL) and rows.attempts[place] < allowed


def _key(record: Mapping[str, Any], path: Path, number: int) -> tuple[int, int]:
    task, rollout = record.get(TASK_INDEX), record.get(ROLLOUT_INDEX)
    if type(task) is not int or type(rollout) is not int:
        raise ResumeError(f"it has no {TASK_INDEX} and {ROLLOUT_INDEX}", where=f"{path}, line {number}", hint="No driver wrote this line.")
    return task, rollout


async def _breathing(lines: Iterator[StoredLine]) -> AsyncIterator[StoredLine]:
    for line in lines:
        yield line
        if line.number % _BREATH == 0:
            await asyncio.sleep(0)
