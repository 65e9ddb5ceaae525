"""Processes that work on datasets: a server's code about rows, a prepare script, a download. Each is bounded in time and ends with us."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gym_compose.engine.command import CommandResult, run_command
from gym_compose.engine.process.environment import server_environment
from gym_compose.engine.process.requirements import RequirementSets
from gym_compose.tasks.download import Download, DownloadAnswer
from gym_compose.tasks.errors import DownloadError, PrepareError, TaskCodeError
from gym_compose.tasks.preparation import Preparation, ScriptAnswer
from gym_compose.tasks.task_code import RowCheckAnswer, RowCheckRequest
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings

_TOKEN = "HF_TOKEN"
_MARK = "data"
_Answer = TypeVar("_Answer", bound=BaseModel)


@dataclass(frozen=True)
class DataProcesses:
    """Starts them. ``cwd``: the user's working directory; ``report`` takes what they print and how far they are, line by line.

    ``token``: for Hugging Face; it goes into the environment of scripts and downloads, never into an argument.
    """

    environ: Mapping[str, str]
    settings: Settings
    cwd: Path
    report: Callable[[str], None]
    token: str | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    def check_rows(self, request: RowCheckRequest, label: str) -> RowCheckAnswer:
        """A server's ``task_data.py`` and ``dataset_metrics.py`` on one file of rows (``tasks.task_code.RunRowCheck``).

        The code sees an allow-listed environment without secrets, as a server does. Raises TaskCodeError when it ends its process,
        CommandTimeoutError after ``row_check_seconds``.
        """
        files = " and ".join(file for file in (request.schema_file, request.metrics_file) if file is not None)
        result = self._run(
            "row_checker",
            request,
            server_environment(self.environ, (), python_path=(), mark=_MARK),
            Deadline.after(self.settings.row_check_seconds, f"rows of {label} to be checked by {files}"),
            stream=_Rows(f"{label}: rows checked", self.report, self.settings.plain_progress_seconds),
        )
        answer = _answer(result, RowCheckAnswer)
        if answer is None:
            raise TaskCodeError(
                f"the process that checks rows with it ended (exit code {result.exit_code})", where=files, details=result.tail()
            )
        return answer

    def prepare(self, preparation: Preparation, roots: Sequence[Path], arguments: Mapping[str, Any]) -> Path:
        """Run a prepare script; the path of the file that it made.

        ``prepare_dependencies`` are installed first, into the cache of requirement sets, not into this interpreter. The script has the
        caller's whole environment: it is the user's own and may need its tokens. Raises PrepareError, RequirementsError,
        CommandTimeoutError after ``prepare_seconds``.
        """
        dataset = preparation.dataset
        deadline = Deadline.after(self.settings.prepare_seconds, preparation.where)
        environ = {**self.environ, "PYTHONUNBUFFERED": "1", **self._token()}
        if dataset.prepare_dependencies:
            sets = RequirementSets(self.environ, self.settings, sys.executable)
            sets.install(dataset.prepare_dependencies, dataset.label, deadline, self.report, self.cancel)
            found = sets.directory(dataset.prepare_dependencies)
            if found is not None:
                environ["PYTHONPATH"] = ":".join(filter(None, (str(found), environ.get("PYTHONPATH"))))
        result = self._run(
            "script_runner",
            preparation.request(roots, arguments),
            environ,
            deadline,
            stream=lambda line: None if line.startswith('{"path":') else self.report(f"{dataset.name}: {line}"),
        )
        answer = _answer(result, ScriptAnswer)
        if answer is None or answer.path is None:
            said = answer.error if answer is not None else f"its process ended (exit code {result.exit_code})"
            # What it printed was shown.
            raise PrepareError(f"the script failed: {self._redactor.text(said or '')}", where=preparation.where)
        made = Path(answer.path)
        preparation.check(made)
        return made

    def fetch(self, download: Download) -> None:
        """Fetch a dataset. Raises DownloadError, CommandTimeoutError after ``download_seconds``."""
        result = self._run(
            "fetcher",
            download,
            {**self.environ, **self._token()},
            Deadline.after(self.settings.download_seconds, f"the download of {download.label}"),
            stream=None,
        )
        answer = _answer(result, DownloadAnswer)
        if answer is None or answer.error is not None:
            said = answer.error if answer is not None else f"the process ended (exit code {result.exit_code})"
            place = download.repo_id if download.artifact is None else f"{download.repo_id}/{download.artifact}"
            raise DownloadError(
                f"{download.label} could not be fetched from {place}: {self._redactor.text(said or '')}",
                hint="A private data set needs hf_token in env.yaml.",
                details=result.tail(),
            )

    def _run(
        self, module: str, request: BaseModel, environ: Mapping[str, str], deadline: Deadline, *, stream: Callable[[str], None] | None
    ) -> CommandResult:
        # -P: the working directory holds the user's trees, and is a search root at the place that the request gives it.
        return run_command(
            [sys.executable, "-P", "-m", f"gym_compose.tasks.{module}"],
            environ=environ,
            cwd=self.cwd,
            deadline=deadline,
            redactor=self._redactor,
            input=request.model_dump_json(),
            stream=stream,
            cancel=self.cancel,
            kill_grace_seconds=self.settings.kill_grace_seconds,
        )

    def _token(self) -> dict[str, str]:
        return {_TOKEN: self.token} if self.token else {}

    @property
    def _redactor(self) -> Redactor:
        return Redactor([value for value in (self.token, self.environ.get(_TOKEN)) if value])


class _Rows:
    """Turns the progress of a row check into a line now and then, and passes on what its code prints."""

    def __init__(self, title: str, report: Callable[[str], None], seconds: float) -> None:
        self._title = title
        self._report = report
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def __call__(self, line: str) -> None:
        if line.startswith('{"report":'):
            return
        if not line.startswith('{"rows":'):
            self._report(line)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self._seconds
            self._report(f"{self._title}: {json.loads(line)['rows']}")


def _answer(result: CommandResult, kind: type[_Answer]) -> _Answer | None:
    """The last line of stdout; None when the process ended without one."""
    lines = result.stdout.splitlines()
    if not result.ok or not lines:
        return None
    try:
        return kind.model_validate_json(lines[-1])
    except ValidationError:
        return None
