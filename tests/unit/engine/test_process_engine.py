"""The process engine with real, tiny processes: what one command starts, any other one sees, follows, hears die and stops."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gym_compose.compiler.deployment import Deployment, Image, Service
from gym_compose.engine.command import start_process
from gym_compose.engine.errors import CommandNotFoundError, PortTakenError
from gym_compose.engine.interface import EngineEvent, PlannedAction
from gym_compose.engine.process import proc, records
from gym_compose.engine.process.engine import ProcessEngine
from gym_compose.engine.process.requirements import set_key
from gym_compose.testing.fake_engine import sample_deployment, sample_service
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.settings import Settings

PROJECT = "tiny"
SLEEP = "import time; time.sleep(600)"
POLITE = "import time\ntry:\n    print('up', flush=True); time.sleep(600)\nexcept KeyboardInterrupt:\n    print('bye', flush=True)"
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True); time.sleep(600)"


def soon(seconds: float = 30.0) -> Deadline:
    return Deadline.after(seconds, "a test")


def quiet(_: str) -> None:
    """Takes progress and drops it."""


def python(name: str, code: str, **options: object) -> Service:
    return sample_service(name, (sys.executable, "-u", "-c", textwrap.dedent(code)), **options)  # type: ignore[arg-type]


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = soon(seconds)
    while not condition():
        assert not deadline.expired, "did not come true in time"
        time.sleep(0.05)


class Home:
    """A home of projects with one of them, and engines that know it, each as another command would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = path / PROJECT
        self.directory.mkdir(parents=True)
        self.engine = self.another()

    def another(self, **settings: float) -> ProcessEngine:
        return ProcessEngine({**os.environ, "OPENAI_API_KEY": "host-secret"}, Settings(**settings), self.path)  # type: ignore[arg-type]

    def up(self, *services: Service, images: tuple[Image, ...] = ()) -> list[PlannedAction]:
        deployment: Deployment = sample_deployment(PROJECT, services, images=images, target="process")
        actions = list(self.engine.plan(deployment, self.engine.observe(PROJECT, soon())))
        self.engine.apply(deployment, self.directory, actions, soon(), quiet)
        return actions

    def text(self, service: str) -> list[str]:
        return [line.text for line in self.engine.logs(PROJECT, [service], follow=False, tail=None)]

    def server_type(self, service: str, server_type: str) -> None:
        file = self.directory / "slices" / service / "public.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"server_type": server_type}))

    def left(self) -> list[int]:
        return [
            found.pid
            for found in proc.all_facts()
            if (proc.variable(found.pid, "GYM_COMPOSE_PROCESS") or "").startswith(str(self.directory))
        ]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / ".gym")
    yield made
    made.another(kill_grace_seconds=5.0).stop(PROJECT, soon(10), quiet)
    assert made.left() == []


def test_what_runs_is_seen_by_another_engine_object(home: Home) -> None:
    home.up(python("one", SLEEP), python("head", SLEEP, host="127.0.0.1", port=0))
    seen = home.another().observe(PROJECT, soon())
    assert [(state.service, state.role, state.status, state.slice_sha256) for state in seen.services] == [
        ("head", "head", "running", "s1"),
        ("one", "server", "running", "s1"),
    ]
    assert seen.directory == str(home.directory)
    one = seen.state("one")
    assert one is not None

    def has_memory() -> bool:  # the shell that leads the session is small until Python stands in its place
        state = home.another().observe(PROJECT, soon()).state("one")
        return state is not None and state.memory_bytes is not None and state.memory_bytes > 1_000_000

    until(has_memory)
    assert one.identity is not None
    assert proc.facts(int(one.identity)) is not None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("1 / 0", 1),
    ],
)
def test_an_exit_code_is_known_to_every_command(home: Home, code: str, expected: int) -> None:
    home.up(python("one", code))
    other = home.another()

    def ended() -> bool:
        state = other.observe(PROJECT, soon()).state("one")
        return state is not None and state.status == "exited"

    until(ended)
    state = other.observe(PROJECT, soon()).state("one")
    assert state is not None
    assert state.exit_code == expected
    action = home.up(python("one", SLEEP))[0]
    assert action.action == "recreate"
    assert f"exit code {expected}" in action.reason


def test_only_what_changed_is_started_again(home: Home) -> None:
    home.up(python("one", SLEEP), python("two", SLEEP), python("gone", SLEEP))
    before = {state.service: state.identity for state in home.engine.observe(PROJECT, soon()).services}
    actions = home.up(python("one", SLEEP), python("two", SLEEP, slice_sha256="s2"), python("new", SLEEP))
    assert [(action.service, action.action) for action in actions] == [
        ("one", "keep"),
        ("two", "recreate"),
        ("new", "create"),
        ("gone", "remove"),
    ]
    after = {state.service: state.identity for state in home.engine.observe(PROJECT, soon()).services}
    assert sorted(after) == ["new", "one", "two"]
    assert after["one"] == before["one"]
    assert after["two"] != before["two"]
    assert before["gone"] is not None
    assert proc.facts(int(before["gone"])) is None


def test_stop_goes_in_order_interrupts_and_names_the_killed(home: Home) -> None:
    types = {
        "model": "responses_api_models",
        "resources": "resources_servers",
        "agent": "responses_api_agents",
        "environment": "environment_servers",
    }
    for service, server_type in types.items():
        home.server_type(service, server_type)
    home.up(python("head", POLITE), *(python(name, DEAF if name == "agent" else POLITE, stop_grace_seconds=0.5) for name in types))
    until(lambda: all("up" in home.text(service) for service in ("head", *types)))
    logs = {service: home.directory / "logs" / f"{service}.log" for service in ("head", *types)}
    said: list[str] = []
    report = home.another().stop(PROJECT, soon(), said.append)
    assert report.stopped == ("environment", "agent", "resources", "model", "head")
    assert report.killed == ("agent",)
    assert report.removed == 5
    assert "agent did not stop in time and was killed" in said
    assert "bye" in logs["model"].read_text()
    assert not (home.directory / "processes.json").exists()
    again = home.engine.stop(PROJECT, soon(), quiet)
    assert (again.stopped, again.killed, again.removed) == ((), (), 0)


def test_workers_and_runaways_end_with_their_server(home: Home) -> None:
    code = """
        import os, subprocess, sys, time
        deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('child', flush=True); time.sleep(600)"
        sleep = [sys.executable, "-c", deaf]
        subprocess.Popen(sleep)
        subprocess.Popen(sleep, start_new_session=True)
        time.sleep(600)
    """
    home.up(python("one", code, stop_grace_seconds=0.5))
    # Unbuffered Python writes a line and its end apart: those of two children may meet in one line.
    until(lambda: "".join(home.text("one")).count("child") == 2)
    assert len(home.left()) == 4
    report = home.engine.stop(PROJECT, soon(), quiet)
    assert report.killed == ("one",)
    assert home.left() == []


def test_a_pid_that_was_given_out_again_is_not_touched(home: Home) -> None:
    home.up(python("one", SLEEP))
    listed = records.read(home.directory, PROJECT)
    mine = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        stranger = listed.processes[0].model_copy(update={"service": "ghost", "pid": mine.pid, "mark": "nobody", "start_ticks": 1})
        records.write(home.directory, listed.model_copy(update={"processes": (*listed.processes, stranger)}))
        ghost = home.engine.observe(PROJECT, soon()).state("ghost")
        assert ghost is not None
        assert ghost.status == "exited"
        assert home.engine.stop(PROJECT, soon(), quiet).stopped == ("one",)
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


@pytest.fixture
def listen(home: Home) -> Iterator[Callable[[ProcessEngine], queue.Queue[EngineEvent]]]:
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(engine: ProcessEngine) -> queue.Queue[EngineEvent]:
        told: queue.Queue[EngineEvent] = queue.Queue()
        source = engine.events(PROJECT, stop)

        def read() -> None:
            for event in source:
                told.put(event)

        threads.append(threading.Thread(target=read))
        threads[-1].start()
        return told

    yield start
    stop.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_death_is_told_within_two_seconds_to_who_started_and_who_did_not(
    home: Home, listen: Callable[[ProcessEngine], queue.Queue[EngineEvent]]
) -> None:
    home.up(python("old", SLEEP))
    mine, adopted = listen(home.engine), listen(home.another())
    home.up(python("old", SLEEP), python("one", "import sys; sys.stdin.read(); import time; time.sleep(0.5); sys.exit(9)"))
    for told in (mine, adopted):
        start = told.get(timeout=10)
        assert (start.service, start.kind) == ("one", "start")
        death = told.get(timeout=10)
        assert (death.service, death.kind, death.exit_code, death.oom_killed) == ("one", "die", 9, False)
    state = home.engine.observe(PROJECT, soon()).state("old")
    assert state is not None
    assert state.identity is not None
    killed_at = time.monotonic()
    os.killpg(int(state.identity), signal.SIGKILL)
    for told in (mine, adopted):
        death = told.get(timeout=5)
        assert (death.service, death.kind) == ("old", "die")
        assert time.monotonic() - killed_at < 10


def test_logs_tail_follow_and_end_with_the_processes(home: Home) -> None:
    home.up(
        python(
            "one",
            "import time\nfor n in range(5):\n    print(f'line {n}', flush=True)\ntime.sleep(1)\nprint('last')\nprint('no end', end='')",
        )
    )
    until(lambda: len(home.text("one")) == 5)
    assert [line.text for line in home.engine.logs(PROJECT, [], follow=False, tail=2)] == ["line 3", "line 4"]
    followed = [line.text for line in home.another().logs(PROJECT, ["one"], follow=True, tail=1)]
    assert followed == ["line 4", "last", "no end"]


def test_secrets_of_the_slices_are_masked_in_logs(home: Home) -> None:
    secret = home.directory / "slices" / "one" / "secret.json"
    secret.parent.mkdir(parents=True)
    secret.write_text(json.dumps({"values": [{"path": ["a"], "value": ["marker-secret-9"]}], "environment": {"X": "other-secret-9"}}))
    home.up(python("one", "print('marker-secret-9 and other-secret-9')"))
    until(lambda: bool(home.text("one")))
    assert home.text("one") == ["**** and ****"]


def test_a_server_sees_its_own_environment_and_no_secret_of_the_host(home: Home) -> None:
    home.up(python("one", "import json, os; print(json.dumps(dict(os.environ)))", environment={"OMP_NUM_THREADS": "2"}))
    until(lambda: bool(home.text("one")))
    environment = json.loads(home.text("one")[0])
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["PATH"] == os.environ["PATH"]
    assert "OPENAI_API_KEY" not in environment


def test_a_taken_port_is_named_with_its_holder_and_nothing_is_started(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"port {port} of 127.0.0.1 is in use by pid {os.getpid()}") as caught:
            home.up(python("one", SLEEP, host="127.0.0.1", port=port))
    assert caught.value.port == port
    assert caught.value.where == "services/one"
    assert home.engine.observe(PROJECT, soon()).empty


def test_published_names_what_runs(home: Home) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home.up(python("head", SLEEP, host="127.0.0.1", port=port), python("short", "pass", host="127.0.0.1", port=0))
    assert home.another().published(PROJECT, soon()) == {"head": f"127.0.0.1:{port}"}


def test_a_requirement_set_of_the_cache_is_on_the_path(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "not-to-be-found-anywhere==1"
    image = Image(name="gym-compose/requirements:abc", key="abc", kind="requirements", inputs=(("requirements", lines),))
    home.engine._sets.root = tmp_path / "sets"
    target = tmp_path / "sets" / set_key([lines])
    target.mkdir(parents=True)
    (target / ".gym-compose-complete").write_text("")
    (target / "only_there.py").write_text("print('imported')")
    (built,) = home.engine.build(sample_deployment(PROJECT, images=(image,)), home.directory, soon(), quiet)
    assert not built.built
    home.up(python("one", "import only_there", image=image.name), images=(image,))
    until(lambda: home.text("one") == ["imported"])


def test_a_server_with_an_image_of_its_own_is_refused(home: Home) -> None:
    with pytest.raises(InvalidInputError, match="cannot run as a process"):
        home.up(sample_service("one", ()))


def test_a_broken_list_of_processes_is_said_to_be_broken(home: Home) -> None:
    file = home.directory / "processes.json"
    file.write_text("{")
    with pytest.raises(InvalidInputError, match="not a list of processes"):
        home.engine.observe(PROJECT, soon())
    file.unlink()


def test_a_project_that_never_was_is_empty(home: Home) -> None:
    assert home.engine.observe("nobody", soon()).empty
    assert home.engine.stop("nobody", soon(), quiet).removed == 0
    assert list(home.engine.logs("nobody", [], follow=True, tail=None)) == []


def test_a_program_that_is_not_there_is_named(home: Home) -> None:
    with pytest.raises(CommandNotFoundError, match="/not/there"):
        start_process(["/not/there"], environ={}, cwd=home.directory, log=home.directory / "x.log")


def test_the_log_of_a_server_is_that_of_its_present_process(home: Home) -> None:
    home.up(python("one", "print('of the first')"))
    until(lambda: home.text("one") == ["of the first"])
    home.up(python("one", "print('of the second')"))
    until(lambda: home.text("one") == ["of the second"])
    assert (home.directory / "logs" / "one.log.1").read_text() == "of the first\n"
