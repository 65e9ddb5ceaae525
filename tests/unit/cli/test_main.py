"""The entry point: who is called, what is printed where, and the exit status."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gym_compose.cli import compose, env, main
from gym_compose.cli.console import Console
from gym_compose.cli.translate import Invocation
from gym_compose.config.errors import ConfigPathNotFoundError, OverrideError
from gym_compose.wire.errors import (
    BuildError,
    GymComposeError,
    IncompleteError,
    InvalidInputError,
    NotReadyError,
    PrerequisiteError,
    UsageError,
)

HEAVY = {"omegaconf", "hydra", "pydantic", "yaml", "rich", "docker", "aiohttp", "httpx", "fastapi", "orjson", "uvicorn"}


class Streams:
    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.console = Console(self.out, self.err)

    def run(self, text: str, cwd: Path) -> int:
        return main.run(text.split(), cwd=cwd, environ={}, console=self.console)


@pytest.fixture
def streams() -> Streams:
    return Streams()


def failing(error: BaseException) -> Callable[[Invocation, Console], int]:
    def handler(call: Invocation, console: Console) -> int:
        raise error

    return handler


ERRORS = [
    (GymComposeError("broken", where="here", hint="Mend it.", details=("one", "two")), 1, 1),
    (UsageError("broken", where="here", hint="Mend it."), 2, 2),
    (InvalidInputError("broken", where="here", hint="Mend it."), 3, 1),
    (ConfigPathNotFoundError("broken", where="here", hint="Mend it."), 3, 1),
    (PrerequisiteError("broken", where="here", hint="Mend it."), 4, 1),
    (BuildError("broken", where="here", hint="Mend it."), 5, 1),
    (NotReadyError("broken", where="here", hint="Mend it."), 6, 1),
    (IncompleteError("broken", where="here", hint="Mend it."), 7, 1),
]


@pytest.mark.parametrize(("error", "ours", "contract"), ERRORS, ids=lambda value: type(value).__name__)
def test_exit_codes_and_streams_of_both_kinds_of_group(
    error: GymComposeError, ours: int, contract: int, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "ps", failing(error))
    monkeypatch.setattr(env, "status", failing(error))
    text = "".join(["Error: here: broken. Mend it.\n", *(f"  {line}\n" for line in error.details)])
    assert streams.run("compose ps", tmp_path) == ours
    assert (streams.out.getvalue(), streams.err.getvalue()) == ("", text)
    streams = Streams()
    assert streams.run("env status", tmp_path) == contract
    shown = ("", text) if isinstance(error, UsageError) else (text, "")
    assert (streams.out.getvalue(), streams.err.getvalue()) == shown


def test_an_override_error_goes_to_stderr_as_hydras_do(streams: Streams, tmp_path: Path) -> None:
    assert streams.run("env resolve a=1", tmp_path) == 1
    assert streams.out.getvalue() == ""
    assert streams.err.getvalue().startswith("Error: override 'a=1': ")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (GymComposeError("broken"), "broken"),
        (GymComposeError("broken."), "broken."),
        (GymComposeError("broken.", hint="Mend it."), "broken. Mend it."),
        (GymComposeError("broken", where="a.yaml:3", hint="Mend it."), "a.yaml:3: broken. Mend it."),
        (OverrideError("is it?", token="a", hint="No."), "override 'a': is it? No."),
        (GymComposeError("found:\n  character '\t'\n", where="a\nb", hint="Mend\nit."), "a b: found: character '\t'. Mend it."),
    ],
)
def test_error_text_is_one_line_of_sentences(error: GymComposeError, text: str) -> None:
    assert str(error) == text


def test_any_other_exception_keeps_its_traceback(streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "ps", failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        streams.run("compose ps", tmp_path)


def test_an_interrupt_is_130(streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "ps", failing(KeyboardInterrupt()))
    assert streams.run("compose ps", tmp_path) == 130
    assert streams.err.getvalue() == "Interrupted.\n"


def test_sigterm_is_an_interrupt_while_a_command_runs(streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(call: Invocation, console: Console) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(compose, "ps", handler)
    assert streams.run("compose ps", tmp_path) == 130
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_argparse_says_is_passed_on(streams: Streams, tmp_path: Path) -> None:
    assert streams.run("env", tmp_path) == 1
    assert streams.out.getvalue().startswith("usage: gym env")
    assert streams.run("env stat", tmp_path) == 2
    assert "Did you mean 'start'?" in streams.err.getvalue()


def test_refused_commands_give_the_reason(streams: Streams, tmp_path: Path) -> None:
    assert streams.run("env packages --resources-server x", tmp_path) == 1
    assert streams.out.getvalue().startswith("Error: gym env packages is not done here: servers have images here")


class TestHandingOver:
    @pytest.fixture
    def peer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A package nemo_gym whose CLI writes down its arguments and exits with 5."""
        package = tmp_path / "site" / "nemo_gym" / "cli"
        package.mkdir(parents=True)
        for directory in (package.parent, package):
            (directory / "__init__.py").write_text("")
        (package / "main.py").write_text(
            "import sys\n\ndef main():\n    print(sys.argv[1:])\n    sys.exit(5 if 'upload' in sys.argv else None)\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        yield tmp_path
        for name in [name for name in sys.modules if name.split(".")[0] == "nemo_gym"]:
            del sys.modules[name]

    def test_the_peers_cli_gets_the_arguments_as_they_were(self, peer: Path, streams: Streams, capsys: pytest.CaptureFixture[str]) -> None:
        before = list(sys.argv)
        assert streams.run("dataset upload -i a.jsonl +x=1", peer) == 5
        assert capsys.readouterr().out == "['dataset', 'upload', '-i', 'a.jsonl', '+x=1']\n"
        assert streams.err.getvalue() == "gym dataset upload: handed to NeMo Gym's own CLI.\n"
        assert sys.argv == before
        assert streams.run("eval compare", peer) == 0

    def test_a_peer_that_cannot_be_loaded_is_one_clear_error(self, peer: Path, streams: Streams) -> None:
        (peer / "site" / "nemo_gym" / "cli" / "main.py").write_text("import no_such_module_of_the_peer\n")
        assert streams.run("dataset upload", peer) == 1
        assert "NeMo Gym's CLI cannot be loaded: No module named 'no_such_module_of_the_peer'" in streams.out.getvalue()

    def test_without_the_peer_the_reason_is_given(self, streams: Streams, tmp_path: Path) -> None:
        assert streams.run("dataset upload", tmp_path) == 1
        assert streams.out.getvalue() == (
            "Error: gym dataset upload is NeMo Gym's, which is not installed here; uploads need NeMo Gym's storage clients. "
            "pip install nemo-gym gives it.\n"
        )


def test_version(streams: Streams, tmp_path: Path) -> None:
    assert streams.run("--version", tmp_path) == 0
    assert streams.out.getvalue().startswith("gym_compose 0.")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("argv", [["--help"], ["env", "start", "--help"], ["env", "stat"], ["compose"]])
def test_help_and_usage_errors_load_nothing_heavy(argv: list[str]) -> None:
    code = (
        "import contextlib, io, sys\nfrom gym_compose.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    main({argv!r})\nprint(*sys.modules)"
    )
    loaded = {name.split(".")[0] for name in python(code).split()}
    assert "argparse" in loaded
    assert not HEAVY & loaded


def test_importing_the_package_loads_no_other_module_of_ours_and_no_dependency() -> None:
    loaded = python("import gym_compose, sys\nprint(*sys.modules)").split()
    assert [name for name in loaded if name.startswith("gym_compose")] == ["gym_compose"]
    assert not HEAVY & {name.split(".")[0] for name in loaded}


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    code = (
        "import os, sys\nr, w = os.pipe(); os.close(r); os.dup2(w, 1)\nfrom gym_compose.cli.main import main\n"
        "code = main(['list', 'models'])\nos._exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_behind_a_json_document_of_ours_no_error_stands_on_stdout(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_compose.cli.eval.run", failing(GymComposeError("broken")))
    assert streams.run("eval run --no-serve --json", tmp_path) == 1
    assert (streams.out.getvalue(), streams.err.getvalue()) == ("", "Error: broken\n")
    assert streams.run("eval run --no-serve", tmp_path) == 1
    assert streams.out.getvalue() == "Error: broken\n"
