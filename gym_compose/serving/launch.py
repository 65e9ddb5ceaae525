"""The in-container launcher: ``python -m gym_compose.serving.launch --slice PUBLIC [--secret SECRET]``.

Reads what this server may know, puts the two halves together, sets up the process as the peer's launcher would (contract-config 4.2, 5.1;
contract-servers 7.5) and runs the server's entry point as ``__main__``. The config never stands in the environment that ``docker inspect``
shows, nor in argv; inside the process it is in NEMO_GYM_CONFIG_DICT, where the peer's servers look for it.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import orjson
from pydantic import ValidationError

from gym_compose import __version__
from gym_compose.serving.session import set_deployment_key
from gym_compose.wire.errors import GymComposeError, InvalidInputError, PrerequisiteError
from gym_compose.wire.names import CONFIG_DICT_VARIABLE, CONFIG_PATH_VARIABLE
from gym_compose.wire.slice import SLICE_FORMAT, PublicSlice, SecretSlice, SecretValue

SliceT = TypeVar("SliceT", PublicSlice, SecretSlice)


def read_slice(path: Path, model: type[SliceT]) -> SliceT:
    """One half of a slice. Raises InvalidInputError naming the file: not there, not readable, not a slice, of another format."""
    try:
        data = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"is not JSON ({error})", where=str(path)) from None
    if isinstance(data, dict) and data.get("format") != SLICE_FORMAT:
        raise InvalidInputError(
            f"has slice format {data.get('format')!r}; this launcher reads {SLICE_FORMAT}",
            where=str(path),
            hint="Run gym compose up again.",
        )
    if isinstance(data, dict) and model is PublicSlice and data.get("gym_compose") != __version__:
        # Before validation: another version's fields would only be misreported.
        raise InvalidInputError(
            f"was made by gym_compose {data.get('gym_compose')}, and this image holds {__version__}",
            where=str(path),
            hint="Run gym compose build, then gym compose up, with one version.",
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(f"is no {model.__name__}: {field}: {first['msg']}", where=str(path)) from None


def merge(public: PublicSlice, secret: SecretSlice | None) -> dict[str, Any]:
    """The config with its secret values put back. Raises InvalidInputError for a path that is not in the public half (never its value)."""
    if secret is not None:
        for value in secret.values:
            _put(public.config, value)
    return public.config


def _put(config: Any, secret: SecretValue) -> None:
    place = ".".join(str(part) for part in secret.path)
    if not secret.path:
        raise InvalidInputError("has an empty path", where="secret slice")
    *parents, last = secret.path
    try:
        for part in parents:
            config = config[part]
        if isinstance(config, dict) and last not in config:
            raise KeyError(last)
        config[last] = secret.value
    except (KeyError, IndexError, TypeError):
        raise InvalidInputError(
            f"the public half has no key {place}",
            where="secret slice",
            hint="The two files are not of one deployment; run gym compose up again.",
        ) from None


def prepare(public: PublicSlice, secret: SecretSlice | None, environ: MutableMapping[str, str]) -> None:
    """Set up environment and session key of this process for a slice. Does not change directory or import anything of the server."""
    config = merge(public, secret)
    for extra in (public.environment, secret.environment if secret is not None else {}):
        environ.update(extra)
    environ[CONFIG_DICT_VARIABLE] = orjson.dumps(config).decode()
    environ[CONFIG_PATH_VARIABLE] = public.instance
    environ["PYTHONPATH"] = os.pathsep.join([public.server_dir, *public.python_path, *filter(None, [environ.get("PYTHONPATH")])])
    environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    set_deployment_key(secret.session_key if secret is not None else None)


def run(public: PublicSlice) -> None:
    """Run the entry point as ``__main__`` from the server's directory. Raises PrerequisiteError when directory or file is not there."""
    entry = Path(public.server_dir) / public.entrypoint
    if not entry.is_file():
        raise PrerequisiteError("the entry point is not there", where=str(entry), hint="The image was built from another server directory.")
    os.chdir(public.server_dir)
    # As ``python app.py`` has it: the script's directory first. This file's own directory must not stand there.
    own = str(Path(__file__).parent)
    sys.path[:] = [public.server_dir, *public.python_path, *(path for path in sys.path if path not in ("", own))]
    sys.argv = [str(entry)]
    if public.runtime == "nemo-gym" and public.ray == "off":
        _without_ray()
    runpy.run_path(str(entry), run_name="__main__")


def _without_ray() -> None:
    """A peer's server class that does not say whether it wants Ray counts as wanting it there, and starts a cluster to relay a request
    (contract-servers 7.6). Here undeclared is off; a class that says True still gets Ray."""
    from importlib import import_module

    import_module("nemo_gym.server_utils").SimpleServer.ray_enabled = False


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # While the server is still importing. Once it listens uvicorn has its own handlers.
    raise SystemExit(0)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m gym_compose.serving.launch", description="Start one server from its config slice.")
    made.add_argument("--slice", type=Path, required=True, metavar="FILE", help="the public half of the slice")
    made.add_argument("--secret", type=Path, metavar="FILE", help="the secret half")
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
        run(public)
    except GymComposeError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
