"""The in-container launcher: ``python -m gym_compose.serving.launch --slice PUBLIC [--secret SECRET]``.

Reads what this server may know, puts the two halves together, sets up the process as the peer's launcher would (contract-config 4.2, 5.1;
contract-servers 7.5) and runs the server's entry point as ``__main__``. The config never stands in the environment that ``docker inspect``
shows, nor in argv; inside the process it is in NEMO_GYM_CONFIG_DICT, where the peer's servers look for it, unless it is too long to stand
in an environment (``peer_process``).
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import sys
import traceback
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import orjson

from gym_compose.serving.peer_process import RUNTIME, PeerProcess, child_environment, fits_environment
from gym_compose.serving.session import set_deployment_key
from gym_compose.serving.slice_files import merge, read_slice
from gym_compose.wire.errors import GymComposeError, PrerequisiteError
from gym_compose.wire.names import CONFIG_DICT_VARIABLE, CONFIG_PATH_VARIABLE
from gym_compose.wire.slice import PublicSlice, SecretSlice


def prepare(public: PublicSlice, secret: SecretSlice | None, environ: MutableMapping[str, str]) -> None:
    """Set up environment and session key of this process for a slice. Does not change directory or import anything of the server."""
    config = merge(public, secret)
    for extra in (public.environment, secret.environment if secret is not None else {}):
        environ.update(extra)
    text = orjson.dumps(config).decode()
    if public.runtime != RUNTIME or fits_environment(CONFIG_DICT_VARIABLE, text):
        environ[CONFIG_DICT_VARIABLE] = text
    environ[CONFIG_PATH_VARIABLE] = public.instance
    environ["PYTHONPATH"] = os.pathsep.join([public.server_dir, *public.python_path, *filter(None, [environ.get("PYTHONPATH")])])
    environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    set_deployment_key(secret.session_key if secret is not None else None)


def run(public: PublicSlice, *, import_only: bool = False) -> None:
    """Run the entry point as ``__main__`` from the server's directory; ``import_only``: under another name, so that it does not serve.

    Raises PrerequisiteError when directory or file is not there.
    """
    entry = Path(public.server_dir) / public.entrypoint
    if not entry.is_file():
        raise PrerequisiteError("the entry point is not there", where=str(entry), hint="The image was built from another server directory.")
    os.chdir(public.server_dir)
    # As ``python app.py`` has it: the script's directory first. This file's own directory must not stand there.
    own = str(Path(__file__).parent)
    first = dict.fromkeys((str(entry.resolve().parent), public.server_dir))  # an entry point may stand elsewhere (contract-config 4.3)
    sys.path[:] = [*first, *public.python_path, *(path for path in sys.path if path not in ("", own))]
    sys.argv = [str(entry)]
    runpy.run_path(str(entry), run_name="__gym_compose_import__" if import_only else "__main__")


def run_peer(public: PublicSlice, *, import_only: bool = False) -> int:
    """``run`` in a process prepared for NeMo Gym, after ``prepare``. Returns the exit code.

    A server that dies after it read a value that it was not given says so last: the reason stands in the traceback as a KeyError at best.
    """
    process = PeerProcess(public, public.config)
    process.install()
    try:
        run(public, import_only=import_only)
    except SystemExit as ended:
        if ended.code:
            process.withheld.repeat()
        raise
    except GymComposeError:
        raise
    except Exception:  # noqa: BLE001  the server's own error: it is shown as Python would, with one line below it
        traceback.print_exc()
        process.withheld.repeat()
        return 1
    return 0


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # While the server is still importing. Once it listens uvicorn has its own handlers.
    raise SystemExit(0)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m gym_compose.serving.launch", description="Start one server from its config slice.")
    made.add_argument("--slice", type=Path, required=True, metavar="FILE", help="the public half of the slice")
    made.add_argument("--secret", type=Path, metavar="FILE", help="the secret half")
    made.add_argument("--import-only", action="store_true", help="import the server's module and end (gym compose doctor)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: the server's own, or that of the error class with one line on stderr."""
    arguments = parser().parse_args(argv)
    # PID 1 of a container ignores a signal that has no handler.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        public = read_slice(arguments.slice, PublicSlice)
        secret = read_slice(arguments.secret, SecretSlice) if arguments.secret is not None else None
        prepare(public, secret, os.environ)
        if public.runtime == RUNTIME:
            child_environment(os.environ, arguments.slice, arguments.secret)
            return run_peer(public, import_only=arguments.import_only)
        run(public, import_only=arguments.import_only)
    except GymComposeError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
