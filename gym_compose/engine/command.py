"""The only way to start a program: argv, environment, time, retry, redaction and process group in one place (field-notes D6.5).

A command runs in a process group of its own, so Ctrl+C reaches it only through us, and what it started ends with it when its time is up.
No secret may stand in ``argv``: any user of the machine reads it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gym_compose.engine.errors import CommandCancelledError, CommandError, CommandNotFoundError, CommandTimeoutError
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

Stream = Callable[[str], None]
"""Takes one line of output, masked and without its newline; stdout and stderr mixed, in order of arrival."""

_DETAIL_LINES = 30


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. ``argv`` is masked, the outputs are as written (for parsing); ``seconds`` counts the last attempt."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float
    redactor: Redactor

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def tail(self, count: int = _DETAIL_LINES) -> tuple[str, ...]:
        """The last lines of stderr, of stdout when that is empty; masked."""
        text = self.stderr.strip() or self.stdout.strip()
        return tuple(self.redactor.lines(text.splitlines()[-count:]))

    def error(self, message: str, *, where: str | None = None, hint: str | None = None) -> CommandError:
        """A CommandError with ``message``, the last lines as details."""
        return CommandError(f"{message} (exit code {self.exit_code})", code=self.exit_code, where=where, hint=hint, details=self.tail())


def run_command(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    cwd: Path | None,
    deadline: Deadline,
    redactor: Redactor,
    retries: int = 0,
    attempt_seconds: float | None = None,
    transient: Callable[[CommandResult], bool] | None = None,
    input: str | None = None,
    stream: Stream | None = None,
    cancel: threading.Event | None = None,
    kill_grace_seconds: float = Settings.kill_grace_seconds,
) -> CommandResult:
    """Run ``argv`` to its end and return how it ended, whatever its exit code.

    ``retries`` is for idempotent verbs only: an attempt that took longer than ``attempt_seconds``, or whose result is ``transient``, is
    repeated while ``deadline`` lasts. ``environ`` is the whole environment of the child. ``cancel`` ends it from another thread.

    Raises CommandNotFoundError, CommandTimeoutError (the group was killed), CommandCancelledError. An interrupt (Ctrl+C) ends the group
    first and is then raised again.
    """
    shown = tuple(redactor.lines(argv))
    for attempt in range(retries + 1):
        bound = deadline if attempt_seconds is None or attempt == retries else deadline.within(attempt_seconds)
        try:
            result = _attempt(argv, shown, environ, cwd, bound, redactor, input, stream, cancel, kill_grace_seconds=kill_grace_seconds)
        except CommandTimeoutError:
            if attempt == retries or deadline.expired:
                raise
            continue
        if attempt < retries and not deadline.expired and transient is not None and transient(result):
            continue
        return result
    raise AssertionError("unreachable: the last attempt returns or raises")


def start_process(argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a server that outlives this call: own session and process group, no stdin, stdout and stderr appended to ``log``.

    Raises CommandNotFoundError when the program is not there.
    """
    with log.open("ab") as handle:
        try:
            return subprocess.Popen(
                list(argv),
                env=dict(environ),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise _not_found(argv[0], cwd, environ) from error


def signal_group(leader: int, number: int) -> bool:
    """Send a signal to the process group that ``leader`` leads; False when it is gone."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    return True


def _attempt(
    argv: Sequence[str],
    shown: tuple[str, ...],
    environ: Mapping[str, str],
    cwd: Path | None,
    deadline: Deadline,
    redactor: Redactor,
    text: str | None,
    stream: Stream | None,
    cancel: threading.Event | None,
    *,
    kill_grace_seconds: float,
) -> CommandResult:
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except (FileNotFoundError, PermissionError) as error:
        raise _not_found(argv[0], cwd, environ) from error
    pipes = _Pipes(process, text, redactor, stream)
    try:
        _wait(process, pipes, shown, deadline, cancel)
    except BaseException:
        _end_group(process, kill_grace_seconds)
        raise
    finally:
        pipes.close(kill_grace_seconds)
    if pipes.failure is not None:
        raise pipes.failure
    return CommandResult(shown, process.returncode, "".join(pipes.stdout), "".join(pipes.stderr), time.monotonic() - started, redactor)


class _Pipes:
    """Reads both outputs and feeds the input in threads, so that none of the three can block another.

    An undrained pipe hangs its writer (field-notes A3.6).
    """

    def __init__(self, process: subprocess.Popen[str], text: str | None, redactor: Redactor, stream: Stream | None) -> None:
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self._redactor = redactor
        self._stream = stream
        self._lock = threading.Lock()
        self._open = 2
        self._threads = [
            threading.Thread(target=self._read, args=(process.stdout, self.stdout), daemon=True),
            threading.Thread(target=self._read, args=(process.stderr, self.stderr), daemon=True),
        ]
        if text is not None:
            self._threads.append(threading.Thread(target=self._write, args=(process.stdin, text), daemon=True))
        for thread in self._threads:
            thread.start()

    def tail(self) -> tuple[str, ...]:
        """The last lines so far, masked."""
        with self._lock:
            lines = (self.stderr or self.stdout)[-_DETAIL_LINES:]
        return tuple(self._redactor.text(line.rstrip("\r\n")) for line in lines)

    def close(self, seconds: float) -> None:
        """Wait for the readers, ``seconds`` at most: something that left the group may hold a pipe open for ever."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _read(self, pipe: IO[str], into: list[str]) -> None:
        try:
            for line in pipe:
                with self._lock:
                    into.append(line)
                    self._pass_on(line)
        finally:
            pipe.close()
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    self.ended.set()

    def _pass_on(self, line: str) -> None:
        if self._stream is None or self.failure is not None:
            return
        try:
            self._stream(self._redactor.text(line.rstrip("\r\n")))
        except Exception as error:  # noqa: BLE001  raised again by the caller's thread; the pipe must be drained meanwhile
            self.failure = error

    def _write(self, pipe: IO[str], text: str) -> None:
        # A command may end without reading its input; closing then fails as the writing did, and the pipe is closed all the same.
        with contextlib.suppress(BrokenPipeError), pipe:
            pipe.write(text)


def _wait(
    process: subprocess.Popen[str], pipes: _Pipes, shown: tuple[str, ...], deadline: Deadline, cancel: threading.Event | None
) -> None:
    poll = Settings.event_poll_seconds
    while True:
        # The outputs end with the process, as a rule; waiting for that wakes at once, Popen.wait with a timeout polls.
        pipes.ended.wait(deadline.pause(poll))
        if pipes.ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(deadline.pause(poll))
        if process.poll() is not None:
            return
        if cancel is not None and cancel.is_set():
            raise CommandCancelledError(f"{_name(shown)} was ended")
        if deadline.expired:
            raise CommandTimeoutError(
                f"{_name(shown)} did not end in time" + (f" ({deadline.purpose})" if deadline.purpose else ""),
                hint="It was killed. Is the machine overloaded?",
                details=pipes.tail(),
            )


def _end_group(process: subprocess.Popen[str], seconds: float) -> None:
    """SIGTERM, then SIGKILL, to everything that the command started."""
    signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    # The leader may be gone while its children are not; the group exists as long as one of them does.
    signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _name(shown: Sequence[str]) -> str:
    """A command in a message: program and first words, not a page of arguments."""
    return "`" + " ".join([Path(shown[0]).name, *shown[1:12]]) + (" …`" if len(shown) > 12 else "`")


def _not_found(program: str, cwd: Path | None, environ: Mapping[str, str]) -> GymComposeError:
    """Why a program could not be started. The system says "permission denied" also when a directory of PATH may not be searched."""
    if cwd is not None and not cwd.is_dir():
        return CommandNotFoundError(f"the directory to run {program!r} in is not there", where=str(cwd))
    if shutil.which(program, os.F_OK, environ.get("PATH")) is None:
        return CommandNotFoundError(f"the program {program!r} is not on PATH", hint="Install it, or mend PATH.")
    return CommandNotFoundError(f"the program {program!r} may not be executed", hint="Mend its mode.")
