"""Commands end: by themselves, in time, or killed with all that they started; and nothing of them is shown unmasked."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gym_compose.engine.command import CommandResult, run_command, start_process
from gym_compose.engine.errors import CommandCancelledError, CommandError, CommandNotFoundError, CommandTimeoutError
from gym_compose.engine.process import proc
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor


def soon(seconds: float = 30.0) -> Deadline:
    return Deadline.after(seconds, "a test")


def run(*argv: str, **options: Any) -> CommandResult:
    given: dict[str, Any] = {"environ": {"PATH": os.environ["PATH"]}, "cwd": None, "deadline": soon(), "redactor": Redactor(["top-secret"])}
    return run_command(argv, **(given | options))


def python(code: str, **options: Any) -> CommandResult:
    return run(sys.executable, "-u", "-c", code, **options)


def test_both_outputs_and_the_exit_code_come_back() -> None:
    result = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (result.exit_code, result.stdout, result.stderr, result.ok) == (3, "out\n", "err\n", False)


def test_output_larger_than_a_pipe_does_not_block() -> None:
    result = python("import sys; sys.stderr.write('e' * 300000); sys.stdout.write('o' * 300000)")
    assert (len(result.stdout), len(result.stderr)) == (300000, 300000)


def test_input_is_written_however_long_and_may_go_unread() -> None:
    assert python("import sys; print(len(sys.stdin.read()))", input="x" * 300000).stdout == "300000\n"
    assert python("pass", input="x" * 300000).ok


def test_the_environment_is_the_given_one_only() -> None:
    result = python("import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))", environ={"ONE": "1"})
    assert result.stdout == "['ONE']\n"


def test_lines_are_streamed_masked_and_in_time() -> None:
    seen: list[tuple[str, float]] = []
    python("import time; print('a top-secret b'); time.sleep(0.5); print('end')", stream=lambda line: seen.append((line, time.monotonic())))
    assert [line for line, _ in seen] == ["a **** b", "end"]
    assert seen[1][1] - seen[0][1] > 0.3


def test_an_error_of_the_stream_is_the_callers(tmp_path: Path) -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError(line)

    with pytest.raises(BrokenPipeError, match="first"):
        python("print('first'); print('x' * 300000)", stream=broken)


def test_an_error_shows_argv_and_output_masked() -> None:
    result = python("import sys; print('it is top-secret', file=sys.stderr); sys.exit(2)")
    assert all("top-secret" not in word for word in result.argv)
    with pytest.raises(CommandError) as caught:
        raise result.error("it failed", where="here", hint="Mend it.")
    assert caught.value.code == 2
    assert str(caught.value) == "here: it failed (exit code 2). Mend it."
    assert caught.value.details == ("it is ****",)


def test_a_timeout_kills_everything_that_was_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'])
open({str(pid_file)!r}, 'w').write(str(child.pid))
print('top-secret so far')
time.sleep(600)
"""
    started = time.monotonic()
    with pytest.raises(CommandTimeoutError, match="did not end in time \\(a test\\)") as caught:
        python(code, deadline=soon(1.0), kill_grace_seconds=0.5)
    assert time.monotonic() - started < 10
    assert caught.value.details == ("**** so far",)
    child = int(pid_file.read_text())
    until = soon(5)
    while (found := proc.facts(child)) is not None and not found.ended:
        assert not until.expired
        time.sleep(0.05)


def test_an_attempt_that_hangs_is_repeated_while_the_deadline_lasts(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    code = f"""
import pathlib, time
file = pathlib.Path({str(counter)!r})
before = file.read_text() if file.exists() else ''
file.write_text(before + 'x')
time.sleep(0 if before else 600)
"""
    assert python(code, retries=2, attempt_seconds=1.0, kill_grace_seconds=0.5).ok
    assert counter.read_text() == "xx"


def test_a_transient_failure_is_repeated_and_another_one_is_not(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    code = (
        f"import pathlib, sys; p = pathlib.Path({str(counter)!r}); p.write_text((p.read_text() if p.exists() else '') + 'x'); sys.exit(4)"
    )
    assert python(code, retries=2, transient=lambda result: result.exit_code == 4).exit_code == 4
    assert counter.read_text() == "xxx"
    assert python(code, retries=2, transient=lambda result: result.exit_code == 5).exit_code == 4
    assert counter.read_text() == "xxxx"


def test_without_retries_nothing_is_repeated(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    code = (
        f"import pathlib, sys; p = pathlib.Path({str(counter)!r}); p.write_text((p.read_text() if p.exists() else '') + 'x'); sys.exit(1)"
    )
    assert python(code, transient=lambda _: True).exit_code == 1
    assert counter.read_text() == "x"


def test_another_thread_can_end_it() -> None:
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(CommandCancelledError):
        python("import time; time.sleep(600)", cancel=cancel, kill_grace_seconds=0.5)
    assert time.monotonic() - started < 10


def test_a_missing_program_and_a_missing_directory_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CommandNotFoundError, match="'no-such-program' is not on PATH") as caught:
        run("no-such-program")
    assert caught.value.exit_code == 4
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(CommandNotFoundError, match="may not be executed"):
        run(str(plain))
    with pytest.raises(CommandNotFoundError, match="directory"):
        run("true", cwd=tmp_path / "missing")


def test_a_grandchild_that_keeps_the_pipe_does_not_keep_us(tmp_path: Path) -> None:
    sleep = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    code = f"import subprocess, sys; print(subprocess.Popen({sleep}, start_new_session=True).pid)"
    started = time.monotonic()
    result = python(code, kill_grace_seconds=0.5)
    assert time.monotonic() - started < 10
    os.kill(int(result.stdout), 9)


def test_a_server_process_appends_to_its_log_and_leads_a_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    process = start_process(
        [sys.executable, "-c", "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '')"],
        environ={},
        cwd=tmp_path,
        log=log,
    )
    assert process.wait(20) == 0
    assert log.read_text() == "before\nTrue True\n"
