"""``python -m gym_compose.tasks.script_runner``: calls ``prepare(**arguments)`` of a prepare script.

Reads a ScriptRequest from stdin and writes one line, a ScriptAnswer, to stdout. What the script prints goes to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gym_compose.tasks.preparation import FUNCTION, ScriptAnswer, ScriptRequest


def answer(request: ScriptRequest) -> ScriptAnswer:
    """Import the script, call it, say what it returned. A script that raises is shown with its traceback on stderr."""
    try:
        function = getattr(_module(request), FUNCTION)
        made = function(**_arguments(function, request))
    except Exception as error:  # noqa: BLE001  a script may raise anything; all of it is told
        _show(error, request.script)
        return ScriptAnswer(error=f"{type(error).__name__}: {error}")
    if not isinstance(made, str | os.PathLike):
        return ScriptAnswer(error=f"{FUNCTION}() returned {made!r}, not the path of the file that it made")
    return ScriptAnswer(path=str(Path(os.fsdecode(made)).absolute()))


def _arguments(function: Callable[..., Any], request: ScriptRequest) -> dict[str, Any]:
    """The caller's arguments, and ``jsonl_fpath`` for a script that makes the files of several datasets and asks which (ours)."""
    if "jsonl_fpath" in inspect.signature(function).parameters:
        return {"jsonl_fpath": request.jsonl_fpath, **request.arguments}
    return request.arguments


def _show(error: Exception, script: str) -> None:
    """The traceback from the script on: how it was called is not its author's business."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


def _module(request: ScriptRequest) -> ModuleType:
    module = _named(request.module) if request.module is not None else None
    # Another tree may hold a package of this name too; then the script is not what its name leads to.
    if module is not None and module.__file__ is not None and Path(module.__file__).resolve() == Path(request.script).resolve():
        return module
    spec = importlib.util.spec_from_file_location("gym_compose_prepare_script", request.script)
    if spec is None or spec.loader is None:
        raise ImportError(f"{request.script} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _named(name: str) -> ModuleType | None:
    """The module of this dotted name; None when there is none, or its package is another one. Raises what its own import raises."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = ScriptRequest.model_validate_json(sys.stdin.read())
    # Last its own directory: scripts that are also run by hand find what stands beside them there.
    sys.path[:] = [*request.roots, *sys.path, str(Path(request.script).parent)]
    print(answer(request).model_dump_json(), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
