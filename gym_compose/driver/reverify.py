"""``gym eval reverify``: stored rollouts are verified again by the servers that run (contract-data 4.8).

Everything that can be wrong with the files is found before one is written. Of a rollout its place in the file is held, nothing else; the
output is locked as in a run, and a rollout that cannot be verified goes to the failures file, where a resume finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from gym_compose.driver.aggregate import labels_of
from gym_compose.driver.attempts import attempts_allowed, is_terminal
from gym_compose.driver.budget import DispatchBudget
from gym_compose.driver.dispatch import in_window
from gym_compose.driver.errors import OutputExistsError, UnsafeReverificationError, VerifyFailedError
from gym_compose.driver.head import ask_head
from gym_compose.driver.invalid_judge import INVALID_JUDGE, JUDGE_INVALID, migrate
from gym_compose.driver.latency import Latencies
from gym_compose.driver.lock import LockHolder, OutputLock
from gym_compose.driver.metrics_request import RecordGroup, read_records, refuse_duplicates, write_metrics
from gym_compose.driver.output import LineFile, OutputPaths
from gym_compose.driver.progress import OnEvent
from gym_compose.driver.stored import Repair, stored_lines
from gym_compose.driver.verifiers import Verifier, Verifiers, verify_body
from gym_compose.serving.client import HttpClient, PeerError, PeerStatusError, PoolOptions
from gym_compose.tasks.rows import AGENT_REF, ENVIRONMENT_SERVER, ROLLOUT_INDEX, TASK_INDEX, agent_of
from gym_compose.wire.deadline import Clock, Deadline
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.failures import JUDGE_FAILED
from gym_compose.wire.jobs import ReverifyJob
from gym_compose.wire.run import RunCounts, RunProgress, RunSummary, RunWarning
from gym_compose.wire.run_body import FAILURE_CLASS, FAILURE_MESSAGE, FAILURE_TERMINAL, NO_PERSIST
from gym_compose.wire.settings import Settings

UNSAFE = "unsafe_"
VERIFIER_ERROR = "verifier_error"
_KEPT = (AGENT_REF, ENVIRONMENT_SERVER, "task_source", "skills_ref")
_WINDOW = 64
"""Rollouts at a time where none was given."""

Key = tuple[int, int]


async def reverify(
    job: ReverifyJob,
    on_event: OnEvent,
    stop: asyncio.Event,
    *,
    settings: Settings,
    environ: Mapping[str, str],
    clock: Clock = time.monotonic,
) -> RunSummary:
    """Verify again and write the output, its failures and its metrics.

    Raises UnsafeReverificationError when a verifier that is needed is not stateless, OutputExistsError, InvalidInputError for files that
    do not belong together, RoutingError, HeadError, VerifyFailedError (strict only), AggregationError.
    """
    async with HttpClient() as http:
        head = await ask_head(http, job.head_url, settings)
    async with HttpClient(PoolOptions.from_config(head.config, settings)) as http:
        return await _Reverification(job, Verifiers(head.config), http, on_event, stop, settings, environ, clock).run()


@dataclass
class _Reverification:
    job: ReverifyJob
    verifiers: Verifiers
    http: HttpClient
    on_event: OnEvent
    stop: asyncio.Event
    settings: Settings
    environ: Mapping[str, str]
    clock: Clock
    counts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    total: float = 0.0
    rewards: int = 0
    in_flight: int = 0

    def __post_init__(self) -> None:
        job = self.job
        self.inputs = Path(job.materialized_inputs_jsonl_fpath)
        self.source = OutputPaths(Path(job.rollouts_jsonl_fpath))
        self.output = OutputPaths(Path(job.output_jsonl_fpath))
        # A run of which only the judge failed: its failures are what is verified.
        self.read_from = self.source.failures if job.judge_failed_only else self.source.rollouts
        if job.append and not job.judge_failed_only:
            raise InvalidInputError("append goes with judge_failed_only", where="append", hint="Give --judge-failed-only too.")
        if job.append and job.overwrite:
            raise InvalidInputError("append and overwrite exclude each other", where="append")

    async def run(self) -> RunSummary:
        job = self.job
        for text in self.verifiers.warnings:
            self.on_event(RunWarning(text=text))
        inputs = self._index_inputs()
        needed = self._check_rows(inputs)
        unsafe = () if job.judge_failed_only else await self._unsafe(needed)
        if unsafe:
            self.output = OutputPaths(self.output.rollouts.with_name(UNSAFE + self.output.rollouts.name))
        self._check_output()
        self.output.make_directory()
        with OutputLock(self.output.lock, LockHolder.of_this_process(job.run_id)):
            self._check_output()
            done = self._prepare()
            started = self.clock()
            await self._verify_all(self._todo(inputs, done))
            self.on_event(self._progress(started))
            if not job.disable_aggregation and not self.stop.is_set():
                await self._aggregate()
        summary = self._summary(started)
        self.on_event(summary)
        return summary

    # What there is

    def _index_inputs(self) -> dict[Key, int]:
        if not self.inputs.exists():
            raise InvalidInputError("there is no such file (--inputs)", where=str(self.inputs))
        if not self.read_from.exists():
            raise InvalidInputError("there is no such file (--rollouts)", where=str(self.read_from))
        return {(record[TASK_INDEX], record[ROLLOUT_INDEX]): offset for offset, record in read_records(self.inputs)}

    def _sources(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What may be verified: the rollouts; or each judge failure once. As many as ``limit`` at most."""
        seen: set[Key] = set()
        taken = 0
        for offset, record in read_records(self.read_from):
            if self.job.limit is not None and taken >= self.job.limit:
                return
            if self.job.judge_failed_only:
                key = _key(record)
                if record.get(FAILURE_CLASS) not in (JUDGE_FAILED, JUDGE_INVALID) or key in seen:
                    continue
                seen.add(key)
            taken += 1
            yield offset, record

    def _check_rows(self, inputs: Mapping[Key, int]) -> dict[str, Verifier]:
        """The verifiers that are needed. Raises for the first row that cannot be sent."""
        needed = {}
        with self.inputs.open("rb") as lines:
            for _, rollout in self._sources():
                if self.job.judge_failed_only and "stage_index" in rollout:
                    raise InvalidInputError(
                        "rows of several stages are not verified again by themselves",
                        where=str(self.read_from),
                        hint="Resume their run instead.",
                    )
                row = _row_of(lines, inputs, rollout, self.read_from)
                verify_body(row, rollout)
                verifier = self.verifiers.of(row)
                needed[verifier.name] = verifier
        return needed

    async def _unsafe(self, needed: Mapping[str, Verifier]) -> tuple[str, ...]:
        names = []
        for verifier in needed.values():
            deadline = Deadline.after(self.settings.run_head_seconds, "asking a resources server for its mode")
            try:
                answer = (await self.http.request("GET", f"{verifier.url}/reverify_mode", deadline=deadline)).raise_for_status().json()
            except (PeerError, ValueError) as error:
                raise VerifyFailedError(f"{verifier.name!r} does not say whether it can verify again: {error}") from None
            if answer != "stateless":
                names.append(verifier.name)
        if not names:
            return ()
        what = f"resources servers that are not stateless: {', '.join(sorted(names))}"
        if not self.job.force:
            raise UnsafeReverificationError(
                f"rewards may be wrong: {what}", hint="--force verifies all the same; the output's name then begins with unsafe_."
            )
        self.on_event(RunWarning(text=f"rewards may be wrong: {what}; the output's name begins with {UNSAFE}"))
        return tuple(names)

    def _check_output(self) -> None:
        job = self.job
        self.output.check_kind()
        if job.append or job.resume_from_cache or job.overwrite:
            return
        for path in (self.output.rollouts, self.output.failures):
            if path.exists() and path.stat().st_size:
                raise OutputExistsError(
                    "results are there already", where=str(path), hint="Give --resume to go on, --overwrite to replace them."
                )

    def _prepare(self) -> set[Key]:
        """Bring the files to where verification begins; the keys that need none."""
        job = self.job
        if job.judge_failed_only and job.retry_invalid_judge_responses:
            migrate(self.source)
        if job.overwrite and not job.resume_from_cache:
            read = [path.resolve() for path in (self.inputs, self.source.rollouts, self.source.failures)]
            for path in (self.output.rollouts, self.output.failures):
                if path.resolve() in read:
                    raise InvalidInputError("the output is the input", where=str(path), hint="Give another --output.")
            self.output.rollouts.unlink(missing_ok=True)
            self.output.failures.unlink(missing_ok=True)
        repairs: list[Repair] = []
        done = {_key(line.record) for line in stored_lines(self.output.rollouts, repairs)}
        allowed, warning = attempts_allowed(self.environ)
        if warning is not None:
            self.on_event(RunWarning(text=warning))
        if job.resume_from_cache:
            attempts: dict[Key, int] = {}
            for line in stored_lines(self.output.failures, repairs):
                key = _key(line.record)
                attempts[key] = attempts.get(key, 0) + 1
                if attempts[key] >= allowed or is_terminal(line.record, retry_timeouts=job.retry_terminal_timeouts):
                    done.add(key)
        for repair in repairs:
            repair.apply()
            self.on_event(RunWarning(text=str(repair), level="note"))
        if job.judge_failed_only and self.output.rollouts != self.source.rollouts:
            done |= self._seed(done)
        return done

    def _seed(self, present: set[Key]) -> set[Key]:
        """Copy the successes of the run, so that its metrics are over all of it."""
        seeded = set()
        out = LineFile(self.output.rollouts)
        try:
            for line in stored_lines(self.source.rollouts, []):
                key = _key(line.record)
                if key not in present and key not in seeded:
                    seeded.add(key)
                    out.append(line.record)
        finally:
            out.close()
        return seeded

    # Verifying

    def _todo(self, inputs: Mapping[Key, int], done: set[Key]) -> list[tuple[int, int]]:
        """Offsets of rollout and input of what is left."""
        return [(offset, inputs[_key(record)]) for offset, record in self._sources() if _key(record) not in done]

    async def _verify_all(self, todo: list[tuple[int, int]]) -> None:
        self.counts = {"requested": len(todo), "completed": 0, "failed": 0, "dropped": 0}
        if not todo:
            self.on_event(RunWarning(text="there is nothing to verify", level="note"))
        window = min(self.job.num_samples_in_parallel or _WINDOW, max(1, len(todo)))
        started = self.clock()
        rollouts, failures = LineFile(self.output.rollouts), LineFile(self.output.failures)
        reporting = asyncio.create_task(self._report(started))
        try:
            with self.inputs.open("rb") as inputs, self.read_from.open("rb") as stored:

                async def verify(place: tuple[int, int]) -> None:
                    stored.seek(place[0])
                    rollout = orjson.loads(stored.readline())
                    inputs.seek(place[1])
                    row = orjson.loads(inputs.readline())
                    record = await self._verify(row, rollout)
                    self._store(record, rollouts, failures)

                await in_window(iter(todo), window, verify, self.stop, DispatchBudget(None, None, Latencies(), self.clock))
        finally:
            reporting.cancel()
            rollouts.close()
            failures.close()

    async def _verify(self, row: Mapping[str, Any], rollout: Mapping[str, Any]) -> dict[str, Any]:
        verifier = self.verifiers.of(row)
        self.in_flight += 1
        try:
            reply = (await self.http.request("POST", f"{verifier.url}/verify", json=verify_body(row, rollout))).raise_for_status()
            record = reply.json()
            if not isinstance(record, dict):
                raise ValueError("the answer is no object")
        except (PeerError, ValueError) as error:
            if self.job.strict_compatibility:
                raise VerifyFailedError(f"a rollout could not be verified: {error}", where=f"task {row[TASK_INDEX]}") from None
            record = {FAILURE_CLASS: VERIFIER_ERROR, FAILURE_MESSAGE: str(error)}
            if isinstance(error, PeerStatusError):
                record["_ng_failure_http_status"] = error.status
        finally:
            self.in_flight -= 1
        if self.job.retry_invalid_judge_responses and record.get(INVALID_JUDGE) and record.get(FAILURE_CLASS) is None:
            final = record.get("invalid_judge_retryable") is False
            record[FAILURE_CLASS] = "permanent" if final else JUDGE_INVALID
            if final:
                record[FAILURE_TERMINAL] = True
        record[TASK_INDEX], record[ROLLOUT_INDEX] = row[TASK_INDEX], row[ROLLOUT_INDEX]
        record.update((name, row[name]) for name in _KEPT if name in row)
        return record

    def _store(self, record: dict[str, Any], rollouts: LineFile, failures: LineFile) -> None:
        if record.get(NO_PERSIST):
            self.counts["dropped"] += 1
        elif record.get(FAILURE_CLASS) is not None:
            failures.append(record)
            self.counts["failed"] += 1
            name = str(record[FAILURE_CLASS])
            self.failures[name] = self.failures.get(name, 0) + 1
        else:
            rollouts.append(record)
            self.counts["completed"] += 1
            reward = record.get("reward")
            if isinstance(reward, int | float):
                self.rewards += 1
                self.total += reward

    # Telling

    async def _report(self, started: float) -> None:
        while True:
            self.on_event(self._progress(started))
            await asyncio.sleep(self.settings.progress_interval_seconds)

    def _counted(self) -> RunCounts:
        requested, completed, failed = (self.counts[name] for name in ("requested", "completed", "failed"))
        return RunCounts(requested=requested, completed=completed, failed=failed, unresolved=requested - completed - failed)

    def _progress(self, started: float) -> RunProgress:
        seconds = self.clock() - started
        back = self.counts["completed"] + self.counts["failed"] + self.counts["dropped"]
        rate = back / seconds if seconds > 0 else 0.0
        return RunProgress(
            counts=self._counted(),
            in_flight=self.in_flight,
            elapsed_seconds=round(seconds, 3),
            rate=round(rate, 3),
            eta_seconds=round((self.counts["requested"] - back) / rate, 1) if rate > 0 else None,
            mean_reward=self.total / self.rewards if self.rewards else None,
            failures=dict(sorted(self.failures.items())),
        )

    async def _aggregate(self) -> None:
        """Metrics from the resources servers themselves; entries name no environment server."""
        groups: dict[tuple[str, str], RecordGroup] = {}
        agents: dict[str, str | None] = {}
        for offset, record in read_records(self.output.rollouts):
            run = record.get(ENVIRONMENT_SERVER) or agent_of(record)
            if not isinstance(run, str):
                continue
            agents[run] = agents.get(run) or agent_of(record)
            verifier = self.verifiers.of(record)
            group = groups.setdefault((run, verifier.name), RecordGroup(verifier.name, verifier.url))
            group.add(0, offset, record)
        labels = labels_of(agents)
        for (run, _), group in groups.items():
            group.head = {AGENT_REF: {"name": labels[run]}}
        asked = [(group, group.order()) for _, group in sorted(groups.items())]
        for group, order in asked:
            refuse_duplicates(group, order, [self.output.rollouts])
        if asked:
            await write_metrics([self.output.rollouts], asked, self.output.aggregate, self.settings)

    def _summary(self, started: float) -> RunSummary:
        last = self._progress(started)
        kinds = {"rollouts": self.output.rollouts, "failures": self.output.failures, "aggregate_metrics": self.output.aggregate}
        return RunSummary(
            run_id=self.job.run_id,
            counts=last.counts,
            elapsed_seconds=last.elapsed_seconds,
            rate=last.rate,
            mean_reward=last.mean_reward,
            failures=last.failures,
            files={kind: str(path) for kind, path in kinds.items() if path.exists()},
            interrupted=self.stop.is_set(),
            exit_code=130 if self.stop.is_set() else 0,
        )


def _key(record: Mapping[str, Any]) -> Key:
    return record[TASK_INDEX], record[ROLLOUT_INDEX]


def _row_of(lines: BinaryIO, inputs: Mapping[Key, int], rollout: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The input row of a rollout. Raises InvalidInputError when there is none."""
    offset = inputs.get(_key(rollout))
    if offset is None:
        task, number = _key(rollout)
        raise InvalidInputError(f"no input row belongs to rollout {task}:{number}", where=str(source), hint="Are these files of one run?")
    lines.seek(offset)
    row: dict[str, Any] = orjson.loads(lines.readline())
    return row
