"""The root of all errors that are shown to a user.

    GymComposeError             one line: what is wrong, where, what to do; exit code; no traceback
    ├── UsageError              exit 2: the command line itself
    ├── InvalidInputError       exit 3: a file or a value that the user gave
    ├── PrerequisiteError       exit 4: Docker, compose, disk, a right that is missing
    ├── BuildError              exit 5: an image could not be made
    ├── NotReadyError           exit 6: servers or model endpoints did not come up in time
    └── IncompleteError         exit 7: completed + failed + unresolved does not make the requested rollouts

Each package that has errors of its own derives them here; anything else that is raised is a programming error and keeps its traceback.
Exit codes: field-notes C3. The groups ``gym env``, ``gym eval`` and ``gym dataset`` map them to the contract's (0, 1, 2).
"""

from __future__ import annotations


class GymComposeError(Exception):
    """An error for people.

    ``where`` is a file, key or service with its line if there is one; ``hint`` says what to do; ``details`` are further lines
    (a log tail, a list of candidates), shown indented below.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        """``where: message. hint`` on one line, with its full stop whether or not the message has one."""
        message = _one_line(self.message)
        text = f"{_one_line(self.where)}: {message}" if self.where else message
        if not self.hint:
            return text
        return f"{text}{'' if text.endswith(('.', '!', '?', ':')) else '.'} {_one_line(self.hint)}"


def _one_line(text: str) -> str:
    """A message may quote what others wrote: a parser's words, a key, a value."""
    return " ".join(filter(None, (line.strip() for line in text.splitlines())))


class UsageError(GymComposeError):
    """The command line cannot be understood."""

    exit_code = 2


class InvalidInputError(GymComposeError):
    """A file, key or value that the user gave is wrong."""

    exit_code = 3


class PrerequisiteError(GymComposeError):
    """Something that must be on this machine is not."""

    exit_code = 4


class BuildError(GymComposeError):
    """An image could not be made."""

    exit_code = 5


class NotReadyError(GymComposeError):
    """Servers or model endpoints did not come up in time, or one died on the way."""

    exit_code = 6


class IncompleteError(GymComposeError):
    """A run ended without an answer for every row."""

    exit_code = 7
