"""One thing that was looked at, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from gym_compose.wire.errors import GymComposeError, PrerequisiteError

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """``said`` is what was found, ``hint`` what to do, ``details`` further lines (a traceback, a builder's last words).

    ``warn``: it works without, or may. ``fail``: it does not; ``exit_code`` is then the command's.
    """

    name: str
    status: Status
    said: str
    hint: str | None = None
    details: tuple[str, ...] = ()
    exit_code: int = PrerequisiteError.exit_code

    @classmethod
    def of_error(cls, name: str, error: GymComposeError, status: Status = "fail") -> Check:
        """An error as a finding."""
        said = f"{error.where}: {error.message}" if error.where else error.message
        return cls(name, status, said, error.hint, error.details, error.exit_code)


@dataclass
class Findings:
    """All checks in order. Each is told as soon as it is there."""

    tell: Callable[[Check], None]
    checks: list[Check] = field(default_factory=list)

    def add(self, check: Check) -> Check:
        self.checks.append(check)
        self.tell(check)
        return check

    @property
    def exit_code(self) -> int:
        """0 without a failure, else that of the first one."""
        return next((check.exit_code for check in self.checks if check.status == "fail"), 0)
