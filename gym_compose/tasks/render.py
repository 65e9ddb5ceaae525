"""``gym dataset render``: a file of rows with a prompt template filled in (contract-data 3.4, last paragraph)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import orjson

from gym_compose.tasks.errors import DatasetError, RowError
from gym_compose.tasks.prompt import Prompt, has_input
from gym_compose.tasks.rows import TOO_DEEP, read_rows

_USED = "prompt_config_used"


def render(rows: Path, prompt: Prompt, target: Path) -> int:
    """Write each row of ``rows`` to ``target`` with ``responses_create_params.input`` filled in and ``prompt_config_used``; how many.

    Row by row; the file appears whole or not at all. Raises RowError for a row that has an input already or lacks a field of the
    template, DatasetError when ``target`` cannot be written.
    """
    part = target.with_name(f"{target.name}.part")
    count = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            for source in read_rows(rows):
                if has_input(source.row):
                    raise RowError(
                        "the row has a responses_create_params.input already",
                        path=rows,
                        line=source.line,
                        hint="A template fills rows without one.",
                    )
                try:
                    filled = prompt.apply(source.row)
                except DatasetError as error:
                    raise RowError(f"{error.message} ({prompt.path})", path=rows, line=source.line, hint=error.hint) from None
                try:
                    out.write(orjson.dumps({**filled, _USED: prompt.path}, option=orjson.OPT_APPEND_NEWLINE))
                except orjson.JSONEncodeError:
                    raise RowError(TOO_DEEP, path=rows, line=source.line) from None
                count += 1
        os.replace(part, target)
    except OSError as error:
        raise DatasetError(f"the rows cannot be written: {error.strerror}", where=str(target)) from None
    finally:
        with suppress(OSError):  # there may be none, or no place for one; what ends this says so
            part.unlink()
    return count
