"""Our command line, run as a user runs it, in a directory of the bench's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gym_compose.engine.command import CommandResult, run_command
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor

PROJECT = "bench-quickstart"
QUICKSTART: Sequence[str] = ("--config", "configs/quickstart.yaml")
COMMAND_SECONDS = 1800.0


class Gym:
    """Runs ``gym-compose`` of this interpreter's environment with ``cwd`` as working directory."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.program = str(Path(sys.executable).with_name("gym-compose"))

    def run(self, *arguments: str) -> float:
        """Seconds that the command took. Raises CommandError with its last lines when it fails."""
        return self.result(*arguments).seconds

    def result(self, *arguments: str) -> CommandResult:
        result = run_command(
            [self.program, *arguments],
            environ=os.environ,
            cwd=self.cwd,
            deadline=Deadline.after(COMMAND_SECONDS, "a bench command"),
            redactor=Redactor(()),
        )
        if not result.ok:
            raise result.error(f"gym-compose {' '.join(arguments)} failed")
        return result
