from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.engine.docker.driver import DriverRequest
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.errors import CommandTimeoutError
from gym_compose.project import collect as module
from gym_compose.project.errors import NoHeadError, RunFailedError
from gym_compose.project.project import Project
from gym_compose.project.runs import RunDirectory, RunOptions, run_directories
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.run import RunCounts, RunFailed, RunProgress, RunRequest, RunSummary, RunWarning
from gym_compose.wire.settings import Settings

Load = Callable[..., Project]
COUNTS = RunCounts(requested=2, completed=2)
PROGRESS = RunProgress(counts=COUNTS, in_flight=0, elapsed_seconds=1, rate=2)
SECRET = "marker-secret-4711"


def line(event: Any) -> str:
    return orjson.dumps(event.model_dump(mode="json")).decode()


def summary(**changes: Any) -> RunSummary:
    values = {"run_id": "r", "counts": COUNTS, "elapsed_seconds": 1, "rate": 2, "files": {"rollouts": "/io/output/o.jsonl"}, **changes}
    return RunSummary.model_validate(values)


@dataclass
class PlayedDriver:
    """A driver container: these lines, this exit code. ``on_line`` is called before each line is given."""

    said: Sequence[str] = ()
    code: int = 0
    run_id: str | None = None
    output: str | None = None
    container: str = "c1"
    on_line: Callable[[int], None] | None = None
    after_signal: Sequence[str] = ()
    stderr: Sequence[str] = ()
    signals: list[str] = field(default_factory=list)
    removed: bool = False
    never_ends: bool = False

    def lines(self, stop: threading.Event, *, tail: int | None = None) -> Iterator[str]:
        everything = [*self.said, *(self.after_signal if self.signals else ())]
        for number, text in enumerate(everything if tail is None else everything[-tail:]):
            if self.on_line is not None and not self.signals:
                self.on_line(number)
            yield text
        if self.never_ends:
            stop.wait(10)

    def errors(self, deadline: Deadline, *, tail: int) -> Sequence[str]:
        return self.stderr

    def signal(self, name: str, deadline: Deadline) -> bool:
        self.signals.append(name)
        return True

    def wait(self, deadline: Deadline) -> int:
        return self.code

    def remove(self, deadline: Deadline) -> bool:
        self.removed = True
        return True


class PlayedDocker(DockerEngine):
    """The Docker engine with one played driver; makes no call."""

    def __init__(self, driver: PlayedDriver) -> None:
        super().__init__({}, Settings())
        self.driver = driver
        self.requests: list[DriverRequest] = []
        self.fail: BaseException | None = None

    def start_driver(self, request: DriverRequest, deadline: Deadline) -> Any:
        self.requests.append(request)
        self.driver.run_id = request.run_id
        self.driver.output = request.output
        if self.fail is not None:
            raise self.fail
        return self.driver

    def drivers(self, project: str, deadline: Deadline, *, running: bool = True) -> Any:
        return [] if self.driver.run_id is None else [self.driver]


@pytest.fixture
def options(cwd: Path) -> RunOptions:
    (cwd / "rows.jsonl").write_text("{}\n")
    return RunOptions(input_jsonl_fpath=str(cwd / "rows.jsonl"), output_jsonl_fpath=str(cwd / "out" / "o.jsonl"), num_repeats=2)


@pytest.fixture
def play(load: Load) -> Callable[..., tuple[Project, PlayedDriver, PlayedDocker]]:
    def make(**driver: Any) -> tuple[Project, PlayedDriver, PlayedDocker]:
        played = PlayedDriver(**driver)
        engine = PlayedDocker(played)
        return load(engine=engine, settings=Settings(driver_stop_seconds=0.3)), played, engine

    return make


def test_a_driver_in_a_container_gets_its_own_paths_and_gives_back_ours(play: Any, options: RunOptions, cwd: Path) -> None:
    project, driver, engine = play(said=[line(PROGRESS), "noise", line(summary())])
    seen: list[Any] = []
    result = project.collect(options, seen.append)
    assert seen == [PROGRESS]
    assert result.files == {"rollouts": str(cwd / "out" / "o.jsonl")}
    (request,) = engine.requests
    (run,) = run_directories(project.directory)
    asked = RunRequest.model_validate(orjson.loads(run.request_file.read_bytes()))
    assert (asked.input_jsonl_fpath, asked.output_jsonl_fpath) == ("/io/input/rows.jsonl", "/io/output/o.jsonl")
    assert (asked.head_url, asked.run_id, asked.num_repeats) == ("http://head.gym:11000", run.run_id, 2)
    assert {(mount.target, mount.read_only) for mount in request.mounts} == {
        ("/io/input/rows.jsonl", True),
        ("/io/output", False),
        ("/io/run", False),
    }
    assert run.exit_code() == 0
    assert driver.removed
    assert driver.signals == []


def test_a_driver_that_failed_says_why_with_its_exit_code_and_stderr_masked(play: Any, options: RunOptions) -> None:
    failed = RunFailed(message=f"no route for {SECRET}", exit_code=3)
    project, driver, _ = play(said=[line(failed)], code=3, stderr=[f"trace of {SECRET}"])
    with pytest.raises(RunFailedError) as caught:
        project.collect(options, lambda _: None)
    assert (caught.value.message, caught.value.exit_code, caught.value.details) == ("no route for ****", 3, ("trace of ****",))
    (run,) = run_directories(project.directory)
    assert run.exit_code() == 3
    assert driver.removed


def interrupt_at(number: int) -> Callable[[int], None]:
    def check(line_number: int) -> None:
        if line_number == number:
            raise KeyboardInterrupt

    return check


def test_an_interrupt_asks_the_driver_to_end_and_gives_its_summary(play: Any, options: RunOptions) -> None:
    project, driver, _ = play(said=[line(PROGRESS)] * 3, on_line=interrupt_at(1), after_signal=[line(summary(interrupted=True))], code=130)
    seen: list[Any] = []
    result = project.collect(options, seen.append)
    assert result.interrupted
    assert driver.signals == ["SIGINT"]
    assert seen == [PROGRESS], "what was told before the interrupt was told twice"
    assert driver.removed


def test_a_driver_that_does_not_end_in_time_is_killed(play: Any, options: RunOptions) -> None:
    project, driver, _ = play(said=[line(PROGRESS)] * 2, on_line=interrupt_at(0), never_ends=True, code=137)
    with pytest.raises(KeyboardInterrupt):
        project.collect(options, lambda _: None)
    assert driver.signals == ["SIGINT", "SIGKILL"]
    assert driver.removed


def test_a_driver_whose_start_failed_or_was_interrupted_is_removed(play: Any, options: RunOptions) -> None:
    project, driver, engine = play()
    for error in (KeyboardInterrupt(), CommandTimeoutError("late")):
        driver.removed = False
        engine.fail = error
        with pytest.raises(type(error)):
            project.collect(options, lambda _: None)
        assert driver.removed


def test_attach_follows_a_run_from_its_first_line(play: Any, options: RunOptions, cwd: Path) -> None:
    project, driver, _ = play(said=[line(PROGRESS), line(summary())])
    driver.run_id, driver.output = "20260101-000000-aaaa", str(cwd / "out" / "o.jsonl")
    RunDirectory.of(project.directory, driver.run_id).path.mkdir(parents=True)
    seen: list[Any] = []
    assert module.attach(project, seen.append).files == {"rollouts": str(cwd / "out" / "o.jsonl")}
    assert seen == [PROGRESS]
    with pytest.raises(InvalidInputError, match="20260101-000000-aaaa"):
        module.attach(project, seen.append, run="other")


def test_there_is_nothing_to_attach_to(play: Any, load: Load) -> None:
    project, _, _ = play()
    with pytest.raises(InvalidInputError, match="no run"):
        module.attach(project, lambda _: None)
    with pytest.raises(InvalidInputError, match="ends with its command"):
        module.attach(load(), lambda _: None)


# Right here


@pytest.fixture
def here(load: Load, engine: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Project, list[RunRequest]]]:
    """A project whose driver runs in this process; ``behaviour(request, on_event, stop)`` is the driver."""

    def make(behaviour: Any) -> tuple[Project, list[RunRequest]]:
        asked: list[RunRequest] = []

        async def drive(request: RunRequest, on_event: Any, stop: Any) -> RunSummary:
            asked.append(request)
            return await behaviour(request, on_event, stop)  # type: ignore[no-any-return]

        monkeypatch.setattr("gym_compose.driver.run.collect", drive)
        engine.name = "process"
        return load(), asked

    return make


def test_with_processes_the_driver_runs_here_against_the_published_head(here: Any, options: RunOptions, cwd: Path, engine: Any) -> None:
    async def behave(request: RunRequest, on_event: Any, stop: Any) -> RunSummary:
        on_event(PROGRESS)
        on_event(RunWarning(text=f"slow {SECRET}"))
        return summary(files={"rollouts": request.output_jsonl_fpath})

    project, asked = here(behave)
    engine.address = "127.0.0.1:4711"
    seen: list[Any] = []
    assert project.collect(options, seen.append).files == {"rollouts": str(cwd / "out" / "o.jsonl")}
    assert asked[0].head_url == "http://127.0.0.1:4711"
    assert seen == [PROGRESS, RunWarning(text="slow ****")]
    assert run_directories(project.directory)[0].exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_driver_here_to_end_and_handlers_are_put_back(here: Any, options: RunOptions, number: signal.Signals) -> None:
    async def behave(request: RunRequest, on_event: Any, stop: Any) -> RunSummary:
        signal.raise_signal(number)
        await stop.wait()
        return summary(interrupted=True)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    project, _ = here(behave)
    assert project.collect(options, lambda _: None).interrupted
    assert run_directories(project.directory)[0].exit_code() == 130
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_interrupt_ends_the_driver_here(here: Any, options: RunOptions) -> None:
    async def behave(request: RunRequest, on_event: Any, stop: Any) -> RunSummary:
        import asyncio

        signal.raise_signal(signal.SIGINT)
        await stop.wait()
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)
        raise AssertionError("the second interrupt did not end it")

    project, _ = here(behave)
    with pytest.raises(KeyboardInterrupt):
        project.collect(options, lambda _: None)


def test_a_failed_driver_here_keeps_its_exit_code(here: Any, options: RunOptions) -> None:
    async def behave(request: RunRequest, on_event: Any, stop: Any) -> RunSummary:
        raise GymComposeError("no")

    project, _ = here(behave)
    with pytest.raises(GymComposeError, match="no"):
        project.collect(options, lambda _: None)
    assert run_directories(project.directory)[0].exit_code() == 1


def test_a_project_that_does_not_run_has_no_head_to_ask(here: Any, options: RunOptions, engine: Any) -> None:
    project, asked = here(None)
    engine.address = None
    with pytest.raises(NoHeadError, match="does not run"):
        project.collect(options, lambda _: None)
    assert asked == []


def test_any_head_server_will_do(here: Any, options: RunOptions, cwd: Path) -> None:
    async def behave(request: RunRequest, on_event: Any, stop: Any) -> RunSummary:
        return summary()

    _, asked = here(behave)
    module.collect_here("http://peer:11000", options, lambda _: None, cwd=cwd)
    assert asked[0].head_url == "http://peer:11000"


def test_what_a_driver_says_of_its_files_is_told_with_the_paths_of_this_host(play: Any, options: RunOptions, cwd: Path) -> None:
    failed = RunFailed(message="/io/output/o_failures.jsonl: cannot be written", exit_code=4)
    project, _, _ = play(said=[line(RunWarning(text="/io/output/o.jsonl is large")), line(failed)], code=4)
    seen: list[Any] = []
    with pytest.raises(RunFailedError) as caught:
        project.collect(options, seen.append)
    assert caught.value.message == f"{cwd}/out/o_failures.jsonl: cannot be written"
    assert seen == [RunWarning(text=f"{cwd}/out/o.jsonl is large")]


def test_a_driver_in_a_container_gets_settings_and_no_more_of_the_environment() -> None:
    environ = {
        "GYM_COMPOSE_JOURNAL_FSYNC": "always",
        "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": "5",
        "GYM_COMPOSE_OTHER": "x",
        "OPENAI_API_KEY": "sk",
    }
    assert module.driver_environment({**environ, "GYM_COMPOSE_AGGREGATE_SECONDS": ""}) == {
        "GYM_COMPOSE_JOURNAL_FSYNC": "always",
        "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": "5",
    }
