"""A driver in a container: detached, followed, signalled, waited for, found again by another engine object, and gone after `stop`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.deployment import Mount
from gym_compose.engine.docker.driver import DriverRequest
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.errors import BindSourceError, CommandTimeoutError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.slow]

DRIVER = """
import os, signal, sys, time
def leave(*_):
    print('{"event":"finished"}', flush=True)
    open('/io/output/result', 'w').write(str(os.getuid()))
    sys.exit(5)
signal.signal(signal.SIGINT, leave)
print('{"event":"progress"}', flush=True)
print('a traceback', file=sys.stderr, flush=True)
time.sleep(600)
"""


def soon(seconds: float = 60.0) -> Deadline:
    return Deadline.after(seconds, "a test")


def services(python: Any, code: str = DRIVER) -> dict[str, dict[str, Any]]:
    return {
        "head": {"command": ["sleep", "600"], "_role": "head"},
        "driver": {"command": python(code), "_role": "driver", "profiles": ["driver"]},
    }


def request_for(project: Any, tmp_path: Path, **changes: Any) -> DriverRequest:
    output = tmp_path / "output"
    output.mkdir(exist_ok=True)
    output.chmod(0o777)
    given: dict[str, Any] = {
        "project": project.name,
        "directory": project.directory,
        "run_id": "r1",
        "user": f"{os.getuid()}:{os.getgid()}",
        "mounts": (Mount(str(output), "/io/output", read_only=False),),
        "output": str(output / "result"),
    }
    return DriverRequest(**(given | changes))


def test_a_driver_is_followed_signalled_waited_for_and_removed(project: Any, engine: DockerEngine, python: Any, tmp_path: Path) -> None:
    actions = project.up(services(python))
    assert [action.service for action in actions] == ["head"]
    driver = engine.start_driver(request_for(project, tmp_path), soon())
    lines = driver.lines(threading.Event())
    assert next(lines) == '{"event":"progress"}'
    assert driver.signal("SIGINT", soon())
    assert next(lines) == '{"event":"finished"}'
    assert list(lines) == []
    assert driver.wait(soon()) == 5
    assert driver.errors(soon(), tail=10) == ("a traceback",)
    result = tmp_path / "output" / "result"
    assert result.read_text() == str(os.getuid())
    assert result.stat().st_uid == os.getuid()
    assert not driver.signal("SIGINT", soon())
    assert driver.remove(soon())
    assert not driver.remove(soon())
    assert driver.state(soon()) is None


def test_another_command_finds_a_running_driver_and_sees_it_from_its_first_line(
    project: Any, engine: DockerEngine, python: Any, tmp_path: Path
) -> None:
    project.up(services(python))
    engine.start_driver(request_for(project, tmp_path), soon())
    other = DockerEngine(os.environ, Settings())
    try:
        (found,) = other.drivers(project.name, soon())
        assert (found.run_id, found.output, found.directory) == ("r1", str(tmp_path / "output" / "result"), str(project.directory))
        stop = threading.Event()
        lines = found.lines(stop)
        assert next(lines) == '{"event":"progress"}'
        stop.set()
        assert list(lines) == []
        state = next(state for state in other.observe(project.name, soon()).services if state.role == "driver")
        assert state.status == "running"
        # `up` again leaves the run alone.
        assert [action.action for action in project.up(services(python))] == ["keep"]
        assert [driver.container for driver in other.drivers(project.name, soon())] == [found.container]
    finally:
        other.close()


def test_stop_interrupts_the_driver_first_and_leaves_nothing(project: Any, engine: DockerEngine, python: Any, tmp_path: Path) -> None:
    project.up(services(python))
    driver = engine.start_driver(request_for(project, tmp_path), soon())
    assert next(driver.lines(threading.Event())) == '{"event":"progress"}'
    with pytest.raises(CommandTimeoutError):
        driver.wait(soon(0.5))
    report = engine.stop(project.name, soon(), lambda _: None)
    assert report.stopped == ("driver", "head")
    assert report.killed == ()
    assert (tmp_path / "output" / "result").exists()
    assert project.left() == []


def test_a_deaf_driver_is_killed_and_named(project: Any, python: Any, tmp_path: Path) -> None:
    deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
    project.up(services(python, deaf))
    impatient = DockerEngine(os.environ, Settings(driver_stop_seconds=0.5))
    try:
        driver = impatient.start_driver(request_for(project, tmp_path), soon())
        assert next(driver.lines(threading.Event())) == "up"
        assert impatient.stop(project.name, soon(), lambda _: None).killed == ("driver",)
    finally:
        impatient.close()


def test_mounts_that_cannot_work_are_refused_before_anything_starts(
    project: Any, engine: DockerEngine, python: Any, tmp_path: Path
) -> None:
    project.up(services(python))
    missing = tmp_path / "missing"
    with pytest.raises(BindSourceError, match="not there"):
        engine.start_driver(request_for(project, tmp_path, mounts=(Mount(str(missing), "/io/input"),)), soon())
    assert not missing.exists()
    colon = tmp_path / "a:b"
    colon.mkdir()
    with pytest.raises(InvalidInputError, match="':'"):
        engine.start_driver(request_for(project, tmp_path, mounts=(Mount(str(colon), "/io/input"),)), soon())
    assert engine.drivers(project.name, soon(), running=False) == []
